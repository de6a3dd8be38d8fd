"""What the journals on disk say of runs. Called by providers; reads, never writes."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from pathlib import Path

from fleetctl.controllers.model import Alive, Ended, Observation
from fleetctl.guest.nodes.names import node_name
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.paths import RUNS, checked, jobs_dir, journal_path
from fleetctl.providers.rundir.journal import Ending, Journal
from fleetctl.providers.rundir.logs import LogReader
from fleetctl.providers.rundir.missing import with_module_hint
from fleetctl.providers.rundir.pieces import is_short, read_beginning, read_end, read_piece

DIRECTORIES_KEPT_MAX = 1000
# The last line of a traceback; see guest/library/fleetctl_llm_line.py.
_TOO_MANY_FALLBACKS = re.compile(r"^fleetctl_llm\.TooManyFallbacks: .*\s*\Z", re.MULTILINE)
AT_END = 1 << 62  # the offset of a look that asks how a run stands, and for nothing it reported
BEGINNING_S = (
    5.0  # between the making of a journal and its first line; longer means that its supervisor died
)


class Runs:
    """The journals of one provider."""

    def __init__(self, home: Path, provider: str) -> None:
        self._jobs = jobs_dir(home, provider)  # once: it looks at every part of the path
        self._directories: dict[str, Path] = {}  # asked for several times for each run

    def directory(self, uid: str) -> Path:
        found = self._directories.get(uid)
        if found is None:
            if len(self._directories) >= DIRECTORIES_KEPT_MAX:
                self._directories.clear()
            found = self._directories[uid] = self._jobs / checked(uid) / RUNS
        return found

    def read(self, uid: str, run: str, offset: int = 0) -> Journal | None:
        """A piece of the journal from `offset`; see pieces.py. None when there is no journal."""
        return read_piece(self._path(uid, run), offset) if uid else None

    async def look(self, uid: str, run: str, offset: int) -> Journal | None:
        """The same, elsewhere than on the event loop where there is much to read."""
        if not uid:
            return None
        path = self._path(uid, run)
        if is_short(path, offset):
            return read_piece(path, offset)
        return await asyncio.to_thread(read_piece, path, offset)

    def begun(self, uid: str, run: str) -> Journal | None:
        """What its first line says; None when there is no journal."""
        return read_beginning(self._path(uid, run)) if uid else None

    def end_of(self, uid: str, run: str) -> Journal | None:
        """How the run ended and with what result, without all that it reported; None when the
        journal has no end.
        """
        return read_end(self._path(uid, run)) if uid else None

    def _path(self, uid: str, run: str) -> Path:
        return journal_path(self.directory(uid), run)

    def just_beginning(self, uid: str, run: str) -> bool:
        """Whether the journal was made a moment ago and its first line may still be to come."""
        try:
            path = self._path(uid, run)
            made = path.stat(follow_symlinks=False).st_ctime
        except FileNotFoundError:
            return False
        return time.time() - made < BEGINNING_S


def describe(ref: RunRef, seen: Journal, handle: str, *, sandbox_open: bool) -> Observation:
    """The observation that a journal makes."""
    ending = seen.ending
    if ending is None:
        return alive(ref, seen, handle)
    return _ended(ref, seen, ending, handle, sandbox_open and ending.sandbox_open)


def alive(ref: RunRef, seen: Journal, handle: str) -> Alive:
    """The observation of a run whose journal has no end."""
    return Alive(
        run=ref.run,
        handle=handle,
        started_at_s=seen.started_at_s,
        journal_offset=seen.offset,
        metrics=seen.metrics,
        remarks=seen.remarks,
        checkpoints=seen.checkpoints,
        note=seen.note,
        gpus=seen.gpus,
        nodes=seen.nodes,
        usage=seen.usage,
        stragglers=seen.stragglers,
        more=seen.more,
    )


def with_last_words(seen: Observation, runs: Path, *, node: int = 0) -> Observation:
    """A command says on its output why it failed; that is the message when it has no other, and the
    reason where it was the helper for model endpoints that ended it. node: the one that failed, of
    several.
    """
    if not isinstance(seen, Ended) or seen.ok or seen.infrastructure:
        return seen
    message = seen.message or LogReader(runs, node_name(seen.run, node)).last_words()
    raised = seen.reason in ("Error", "ExitCode:1") and _TOO_MANY_FALLBACKS.search(message)
    reason = "TooManyFallbacks" if raised else seen.reason
    if node:
        message = f"node {node}: {message or seen.reason}"
    return replace(seen, reason=reason, message=with_module_hint(message))


def _ended(ref: RunRef, seen: Journal, ending: Ending, handle: str, sandbox_open: bool) -> Ended:
    return Ended(
        run=ref.run,
        handle=handle,
        started_at_s=ending.started_at_s,
        ended_at_s=ending.at_s,
        ok=ending.ok,
        infrastructure=ending.infrastructure,
        reason=ending.reason,
        message=ending.message,
        exit_code=ending.exit_code,
        journal_offset=seen.offset,
        metrics=seen.metrics,
        remarks=seen.remarks,
        checkpoints=seen.checkpoints,
        result=seen.result,
        sandbox_open=sandbox_open,
        note=ending.note,
        gpus=seen.gpus,
        nodes=seen.nodes,
    )
