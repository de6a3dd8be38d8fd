"""Reads a journal's file a piece at a time, and the end of its run when all before that is read.

One look at the file decides: its size is read once, and bytes behind it are ignored, so lines that
a run writes meanwhile belong whole to the next look. Used by journal_runs.py; blocks for at most
one piece, except for the end of a run in an image without Python, whose metrics are read once more.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fleetctl.providers.rundir.run_journal import (
    RAW_METRICS,
    RunJournal,
    parse_journal,
    with_raw_remark,
)

PIECE_BYTES = 128 * 1024  # some 2,000 reports, which are taken in within hundredths of a second
SHORT_BYTES = 16 * 1024  # up to this size is read on the event loop
SMALL_BYTES = 1024 * 1024  # of a whole journal, which may be looked through at its end
LINE_BYTES_MAX = 16 * 1024 * 1024  # far above any line of a guest, see remote/runs/run_mirror.py
TAIL_BYTES = 16 * 1024  # the event that ends a journal is shorter
ENDED = b'{"e":"ended"'
NODES = b'{"e":"nodes"'


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
