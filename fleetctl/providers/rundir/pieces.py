"""Reads a journal's file a piece at a time, and the end of its run when all before that is read.

One look at the file decides: its size is asked once, and nothing behind that is believed, so what a
run writes meanwhile belongs whole to the next look. Used by reading.py; blocks for at most one
piece, except for the end of a run in an image without Python, whose metrics are read once more.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fleetctl.providers.rundir.journal import RAW_METRICS, Journal, parse, with_raw_remark

PIECE_BYTES = 128 * 1024  # some 2,000 reports, which are taken in within hundredths of a second
SHORT_BYTES = 16 * 1024  # so much is read on the event loop
SMALL_BYTES = 1024 * 1024  # of a whole journal, which may be looked through at its end
LINE_BYTES_MAX = 16 * 1024 * 1024  # far above any line of a guest, see remote/runs/mirror.py
TAIL_BYTES = 16 * 1024  # the event that ends a journal is shorter
ENDED, NODES = b'{"e":"ended"', b'{"e":"nodes"'


def is_short(path: Path, offset: int) -> bool:
    """Whether little enough stands from `offset` on to be read at once."""
    try:
        size = path.stat(follow_symlinks=False).st_size
    except OSError:
        return True
    return size <= SMALL_BYTES and size - offset <= SHORT_BYTES


def read_piece(path: Path, offset: int) -> Journal | None:
    """At most PIECE_BYTES from `offset`, or a longer line. With nothing left behind it, it has the
    end of the run, wherever that stands. None when there is no such regular file.
    """
    with _opened(path) as handle:
        if handle is None:
            return None
        size = os.fstat(handle).st_size
        data = _piece(handle, offset, size)
        seen = parse(data, offset)
        if offset + len(data) < size:
            return replace(seen, result=None, problem="", ending=None, more=True)
        end = _end(handle, size)
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


def read_beginning(path: Path) -> Journal | None:
    """What the first lines say. None when there is no such regular file."""
    with _opened(path) as handle:
        return None if handle is None else parse(os.pread(handle, TAIL_BYTES, 0))


def read_end(path: Path) -> Journal | None:
    """The end of a run with its result and its beginning; None where there is none."""
    with _opened(path) as handle:
        return None if handle is None else _end(handle, os.fstat(handle).st_size)


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """A handle of a regular file; None when there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield handle if stat.S_ISREG(os.fstat(handle).st_mode) else None
    finally:
        os.close(handle)


def _piece(handle: int, offset: int, size: int) -> bytes:
    """Whole lines from `offset`; all that stands there where that is less than a piece."""
    most = PIECE_BYTES
    while True:
        data = os.pread(handle, min(most, size - offset), offset) if offset < size else b""
        whole = data.rfind(b"\n") + 1
        if offset + len(data) >= size:
            return data
        if whole or most >= LINE_BYTES_MAX:
            return data[:whole] if whole else data
        most *= 4


def _end(handle: int, size: int) -> Journal | None:
    tail_at = max(0, size - TAIL_BYTES)
    tail = os.pread(handle, size - tail_at, tail_at)
    at = (b"\n" + tail).rfind(b"\n" + ENDED)
    if at < 0 or b"\n" not in tail[at:]:
        return None
    first = os.pread(handle, TAIL_BYTES, 0)
    first = first[: first.find(b"\n") + 1] if tail_at + at > 0 else b""
    before = _line_before(handle, tail_at + at)
    if before.startswith(NODES):  # how all nodes ended, which several of them write last
        before = _line_before(handle, tail_at + at - len(before)) + before
    seen = parse(first + before + tail[at:])
    return with_raw_remark(seen, _raw_lines(handle, size)) if seen.ending is not None else None


def _line_before(handle: int, end: int) -> bytes:
    """The line that stops at byte `end`."""
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
        data = _piece(handle, at, size)
        if RAW_METRICS in data:
            yield from data.splitlines()
        at += len(data)
