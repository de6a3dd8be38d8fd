"""Reads the state of runs from the journals on disk. Called by providers; reads, never writes."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from pathlib import Path

from fleetctl.common.text import count_noun
from fleetctl.controllers.model import Alive, Ended, Observation
from fleetctl.guest.nodes.names import node_name
from fleetctl.guest.outputs.keeping import OUTPUTS_NOT_KEPT
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.paths import RUNS, checked_name, jobs_dir, journal_path
from fleetctl.providers.rundir.journal_pieces import is_short, read_beginning, read_end, read_piece
from fleetctl.providers.rundir.kept_outputs import has_outputs
from fleetctl.providers.rundir.module_hints import hint_at_module
from fleetctl.providers.rundir.run_journal import RunEnding, RunJournal
from fleetctl.providers.rundir.run_log_reader import RunLogReader

DIRECTORIES_KEPT_MAX = 1000
# The last line of a traceback; see guest/library/fleetctl_llm_line.py.
_TOO_MANY_FALLBACKS = re.compile(r"^fleetctl_llm\.TooManyFallbacks: .*\s*\Z", re.MULTILINE)
AT_END = 1 << 62  # the offset of a look that asks for a run's state, without its reports
BEGINNING_S = (
    5.0  # between the making of a journal and its first line; longer means that its supervisor died
)


class JournalRuns:
    """The journals of a provider."""

    def __init__(self, home: Path, provider: str) -> None:
        self._jobs = jobs_dir(home, provider)  # once: it looks at every part of the path
        self._directories: dict[str, Path] = {}  # asked for several times for each run

    def directory(self, uid: str) -> Path:
        found = self._directories.get(uid)
        if found is None:
            if len(self._directories) >= DIRECTORIES_KEPT_MAX:
                self._directories.clear()
            found = self._directories[uid] = self._jobs / checked_name(uid) / RUNS
        return found

    def read(
        self,
        uid: str,
        run: str,
        offset: int = 0,
    ) -> RunJournal | None:
        """Returns a piece of the journal from `offset` (journal_pieces.py); None without one."""
        if uid:
            return read_piece(self._path(uid, run), offset)
        return None

    async def look(
        self,
        uid: str,
        run: str,
        offset: int,
    ) -> RunJournal | None:
        """The same, elsewhere than on the event loop where there is much to read."""
        if not uid:
            return None
        path = self._path(uid, run)
        if is_short(path, offset):
            return read_piece(path, offset)
        return await asyncio.to_thread(read_piece, path, offset)

    def begun(self, uid: str, run: str) -> RunJournal | None:
        """Returns the content of its first line; None without a journal."""
        if uid:
            return read_beginning(self._path(uid, run))
        return None

    def end_of(self, uid: str, run: str) -> RunJournal | None:
        """Returns how the run ended and with what result, without all its reports; None when the
        journal has no end.
        """
        if uid:
            return read_end(self._path(uid, run))
        return None

    def _path(self, uid: str, run: str) -> Path:
        return journal_path(self.directory(uid), run)

    def just_beginning(self, uid: str, run: str) -> bool:
        """Returns whether the journal was made a moment ago and its first line may still be to
        come.
        """
        try:
            path = self._path(uid, run)
            made = path.stat(follow_symlinks=False).st_ctime
        except FileNotFoundError:
            return False
        return time.time() - made < BEGINNING_S


def with_arrived_outputs(
    seen: RunJournal,
    runs: Path,
    run: str,
) -> RunJournal:
    """Returns the journal of an ended run, as a failure that is not its own where outputs were kept
    in its sandbox and did not arrive here.
    """
    ending = seen.ending
    if ending is None or not ending.ok or not ending.outputs or has_outputs(runs, run):
        return seen
    lost = (
        f"{count_noun(ending.outputs, 'output')} of it did not arrive here before its sandbox ended"
    )
    failed = replace(
        ending,
        ok=False,
        infrastructure=True,
        reason=OUTPUTS_NOT_KEPT,
        message=lost,
    )
    return replace(seen, ending=failed, result=None)


def describe_run(
    ref: RunRef,
    seen: RunJournal,
    handle: str,
    *,
    sandbox_open: bool,
) -> Observation:
    """The observation that a journal makes."""
    ending = seen.ending
    if ending is None:
        return observe_alive(ref, seen, handle)
    return _observe_ended(
        ref,
        seen,
        ending,
        handle,
        sandbox_open and ending.sandbox_open,
    )


def observe_alive(
    ref: RunRef,
    seen: RunJournal,
    handle: str,
) -> Alive:
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


def with_last_words(
    seen: Observation,
    runs: Path,
    *,
    node: int = 0,
) -> Observation:
    """Adds a failed command's last output: as the message, when it has no other; as the reason,
    where the helper for model endpoints ended it. node: the one that failed, of several.
    """
    if not isinstance(seen, Ended) or seen.ok or seen.infrastructure:
        return seen
    message = seen.message or RunLogReader(runs, node_name(seen.run, node)).last_words()
    raised = seen.reason in ("Error", "ExitCode:1") and _TOO_MANY_FALLBACKS.search(message)
    reason = "TooManyFallbacks" if raised else seen.reason
    if node:
        message = f"node {node}: {message or seen.reason}"
    hint = hint_at_module(message)
    message = message.rstrip() if hint else message
    return replace(seen, reason=reason, message=message, hint=hint)


def _observe_ended(
    ref: RunRef,
    seen: RunJournal,
    ending: RunEnding,
    handle: str,
    sandbox_open: bool,
) -> Ended:
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
