"""Reads the state of runs from the journals on disk, a piece at a time; a run has ended when all
before its end is read. Never writes.

One look at the file decides: its size is read once, and bytes behind it are ignored, so lines
that a run writes meanwhile belong whole to the next look.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fleetctl.common.text import count_noun
from fleetctl.controllers.model import Alive, Ended, Observation
from fleetctl.guest.nodes.gang import node_name
from fleetctl.guest.nodes.ray import NO_RAY
from fleetctl.guest.outputs.keeping import OUTPUTS_NOT_KEPT
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.paths import RUNS, checked_name, jobs_dir, journal_path
from fleetctl.providers.rundir.kept_outputs import has_outputs
from fleetctl.providers.rundir.run_journal import (
    RAW_METRICS,
    RunEnding,
    RunJournal,
    parse_journal,
    with_raw_remark,
)
from fleetctl.providers.rundir.run_log_reader import RunLogReader

DIRECTORIES_KEPT_MAX = 1000
# The last line of a traceback; see guest/library/fleetctl_llm_line.py.
_TOO_MANY_FALLBACKS = re.compile(r"^fleetctl_llm\.TooManyFallbacks: .*\s*\Z", re.MULTILINE)
AT_END = 1 << 62  # the offset of a look that asks for a run's state, without its reports
MEMORY_HINT = "give it more: `resources.memory`; or let it hold less at a time"
BEGINNING_S = (
    5.0  # between the making of a journal and its first line; longer means that its supervisor died
)

PIECE_BYTES = 512 * 1024  # some 5,000 reports, which are taken in within a twentieth of a second
SHORT_BYTES = 16 * 1024  # up to this size is read on the event loop
SMALL_BYTES = 1024 * 1024  # of a whole journal, which may be looked through at its end
LINE_BYTES_MAX = 16 * 1024 * 1024  # far above any line of a guest, see remote/runs/run_mirror.py
TAIL_BYTES = 16 * 1024  # the event that ends a journal is shorter
ENDED = b'{"e":"ended"'
NODES = b'{"e":"nodes"'

_MISSING = re.compile(r"ModuleNotFoundError: No module named '(?P<top>\w+)[\w.]*'\s*\Z")
# Modules that many tasks import, and whose package has another name.
_PACKAGES = {
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "PIL": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


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
        """Returns a piece of the journal from `offset`; None without one."""
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

    def is_just_beginning(self, uid: str, run: str) -> bool:
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
        samples=seen.samples,
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
    hint = MEMORY_HINT if reason == "OOMKilled" else hint
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
        samples=seen.samples,
        remarks=seen.remarks,
        checkpoints=seen.checkpoints,
        result=seen.result,
        sandbox_open=sandbox_open,
        note=ending.note,
        gpus=seen.gpus,
        nodes=seen.nodes,
    )


def is_short(path: Path, offset: int) -> bool:
    """Returns whether little enough stands from `offset` on to be read at once."""
    try:
        size = path.stat(follow_symlinks=False).st_size
    except OSError:
        return True
    return size <= SMALL_BYTES and size - offset <= SHORT_BYTES


def read_piece(path: Path, offset: int) -> RunJournal | None:
    """Returns at most PIECE_BYTES from `offset`, or a longer line. When it is the last piece, it
    has the end of the run, at any position. None without such a regular file.
    """
    with _open_regular(path) as handle:
        if handle is None:
            return None
        size = os.fstat(handle).st_size
        data = _read_lines(handle, offset, size)
        seen = parse_journal(data, offset)
        if offset + len(data) < size:
            return replace(
                seen,
                result=None,
                problem="",
                ending=None,
                more=True,
            )
        end = _find_end(handle, size)
        if end is None:
            return seen
        return replace(
            end,
            metrics=seen.metrics,
            samples=seen.samples,
            remarks=seen.remarks,
            nodes=seen.nodes,
            checkpoints=seen.checkpoints,
            stragglers=seen.stragglers,
            garbage_lines=seen.garbage_lines,
            offset=seen.offset,
        )


def read_beginning(path: Path) -> RunJournal | None:
    """Returns the content of the first lines; None without such a regular file."""
    with _open_regular(path) as handle:
        if handle is None:
            return None
        return parse_journal(os.pread(handle, TAIL_BYTES, 0))


def read_end(path: Path) -> RunJournal | None:
    """Returns the end of a run with its result and its beginning, or None."""
    with _open_regular(path) as handle:
        if handle is None:
            return None
        return _find_end(handle, os.fstat(handle).st_size)


@contextmanager
def _open_regular(path: Path) -> Iterator[int | None]:
    """Yields a handle of a regular file, or None."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield handle if stat.S_ISREG(os.fstat(handle).st_mode) else None
    finally:
        os.close(handle)


def _read_lines(
    handle: int,
    offset: int,
    size: int,
) -> bytes:
    """Whole lines from `offset`; all that stands there where that is less than a piece."""
    most = PIECE_BYTES
    while True:
        data = os.pread(handle, min(most, size - offset), offset) if offset < size else b""
        whole = data.rfind(b"\n") + 1
        if offset + len(data) >= size:
            return data
        if whole or most >= LINE_BYTES_MAX:
            if whole:
                return data[:whole]
            return data
        most *= 4


def _find_end(handle: int, size: int) -> RunJournal | None:
    tail_at = max(0, size - TAIL_BYTES)
    tail = os.pread(handle, size - tail_at, tail_at)
    at = (b"\n" + tail).rfind(b"\n" + ENDED)
    if at < 0 or b"\n" not in tail[at:]:
        return None
    first = os.pread(handle, TAIL_BYTES, 0)
    first = first[: first.find(b"\n") + 1] if tail_at + at > 0 else b""
    before = _line_before(handle, tail_at + at)
    if before.startswith(NODES):  # how all nodes ended, which a run with several nodes writes last
        before = _line_before(handle, tail_at + at - len(before)) + before
    seen = parse_journal(first + before + tail[at:])
    if seen.ending is not None:
        return with_raw_remark(seen, _raw_lines(handle, size))
    return None


def _line_before(handle: int, end: int) -> bytes:
    """Returns the line that stops at byte `end`."""
    length = TAIL_BYTES
    while True:
        start = max(0, end - length)
        data = os.pread(handle, end - start, start)
        cut = data.rfind(b"\n", 0, len(data) - 1) + 1
        if cut or start == 0 or length >= LINE_BYTES_MAX:
            return data[cut:]
        length *= 4


def _raw_lines(handle: int, size: int) -> Iterator[bytes]:
    """Lines in which a guest without Python hands on metrics as they were."""
    at = 0
    while at < size:
        data = _read_lines(handle, at, size)
        if RAW_METRICS in data:
            yield from data.splitlines()
        at += len(data)


def hint_at_module(message: str) -> str:
    """Returns how the task gets the missing module that its message ends with, or Ray; "" without
    one.
    """
    if NO_RAY in message:
        return "add it: `image: {pip: [ray]}`"
    found = _MISSING.search(message)
    if found is None or found["top"] in sys.stdlib_module_names:
        return ""
    package = _PACKAGES.get(found["top"], found["top"])
    return f"add `image: {{pip: [{package}]}}`, or `source` where the module is yours"
