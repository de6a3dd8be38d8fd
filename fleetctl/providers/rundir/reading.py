"""What the journals on disk say of runs. Called by providers; reads, never writes."""

from __future__ import annotations

import os
import re
import stat
import time
from dataclasses import replace
from pathlib import Path

from fleetctl.controllers.model import Alive, Ended, Observation
from fleetctl.guest.nodes.names import node_name
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.paths import RUNS, checked, jobs_dir, journal_path
from fleetctl.providers.rundir.journal import Ending, Journal, parse
from fleetctl.providers.rundir.logs import LogReader
from fleetctl.providers.rundir.missing import with_module_hint

DIRECTORIES_KEPT_MAX = 1000
TAIL_BYTES = 16 * 1024  # the last event of a journal is shorter
# The last line of a traceback; see guest/library/fleetctl_llm_line.py.
_TOO_MANY_FALLBACKS = re.compile(r"^fleetctl_llm\.TooManyFallbacks: .*\s*\Z", re.MULTILINE)
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
        """The journal from `offset`, with the end of the run wherever it stands; None when there is
        none.
        """
        if not uid:
            return None
        path = journal_path(self.directory(uid), run)
        data = _read(path, offset)
        if data is None:
            return None
        seen = parse(data, offset)
        if offset == 0 or _complete(seen):
            return seen
        if seen.ending is None and not _ended_before(path):
            return seen
        whole = parse(_read(path, 0) or b"")
        return replace(
            whole,
            metrics=seen.metrics,
            remarks=seen.remarks,
            nodes=seen.nodes,
            checkpoints=seen.checkpoints,
            offset=seen.offset,
        )

    def just_beginning(self, uid: str, run: str) -> bool:
        """Whether the journal was made a moment ago and its first line may still be to come."""
        try:
            path = journal_path(self.directory(uid), run)
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


def _complete(seen: Journal) -> bool:
    """Whether a piece holds all that its end needs."""
    if seen.ending is None or seen.raw:
        return False
    return seen.result is not None or not seen.ending.ok


def _ended_before(path: Path) -> bool:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return False
    return b'{"e":"ended"' in (_read(path, max(0, size - TAIL_BYTES)) or b"")


def _read(path: Path, offset: int) -> bytes | None:
    """The bytes from `offset`; None when there is no such regular file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            return None
        parts = []
        while part := os.pread(handle, 1 << 20, offset):
            parts.append(part)
            offset += len(part)
        return b"".join(parts)
    finally:
        os.close(handle)
