"""Reads files of metrics while a program writes them; and lines of JSON in them.

Called by followed.py and events.py. Content from before the program's start is not the program's.
"""

from __future__ import annotations

import os
import time

from fleetctl.guest.journal.metriclines import LINE_BYTES_MAX, shown, whole_step
from fleetctl.guest.journal.results import read_file
from fleetctl.guest.metrics.globs import ENTRIES_MAX, FILES_MAX, find_matches
from fleetctl.guest.metrics.numbers import flatten, numbers
from fleetctl.guest.task.text import parse_as_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Optional

    Row = tuple[Optional[int], Optional[float], dict[str, float]]

READ_BYTES_MAX = 1024 * 1024  # a look, so that one run does not hold up others
TAIL_BYTES = 64  # compared to notice that a file was rewritten
CLOCK_S = 1.0  # the most by which clocks of programs and of files differ
EXAMPLE = '{"step": 3, "loss": 0.5}'


class Problems:
    """Collects read problems: the first of each file, with its line or byte."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._fresh: list[str] = []

    def add(self, file: str, text: str) -> None:
        self._counts[file] = self._counts.get(file, 0) + 1
        if self._counts[file] == 1 and len(self._counts) <= FILES_MAX:
            self._fresh.append(text)

    def news(self) -> list[str]:
        fresh = self._fresh
        self._fresh = []
        return fresh

    def totals(self) -> list[str]:
        """Returns a sentence for each file with several problems, with their count; at the end."""
        return [
            f"{count} parts of {file} could not be read as metrics in all"
            for file, count in self._counts.items()
            if count > 1
        ]


class Growing:
    """One file as far as it has been read. `offset` is the next byte to read."""

    def __init__(self) -> None:
        self.offset = 0
        self.lines = 0  # before the offset
        self._tail = b""
        self._untouched: Optional[int] = None  # time of the last write before the program began

    def pass_over(self, path: str) -> None:
        """Skips the present content of the file: the program did not write it."""
        while data := self.read(path):
            self.took(data)
        try:
            self._untouched = os.stat(path).st_mtime_ns
        except OSError:
            self._untouched = None

    def read(self, path: str) -> bytes:
        """Returns the next bytes; b"" without new ones."""
        try:
            about = os.stat(path)
        except OSError:
            return b""
        rewritten = self._untouched not in (None, about.st_mtime_ns)
        if about.st_size < self.offset or (about.st_size == self.offset and rewritten):
            self._anew()
        if about.st_size <= self.offset:
            return b""
        data = _read(path, self.offset - len(self._tail), READ_BYTES_MAX)
        if data.startswith(self._tail):
            return data[len(self._tail) :]
        self._anew()
        return _read(path, 0, READ_BYTES_MAX)

    def took(self, data: bytes) -> None:
        """Advances behind the first bytes of the last read."""
        self.offset += len(data)
        self.lines += data.count(b"\n")
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        self._untouched = None

    def skip(self, size: int) -> None:
        """Advances behind bytes that need not be read; they may still have to be written."""
        self.offset += size
        self._tail = b""

    def _anew(self) -> None:
        self.offset = self.lines = 0
        self._tail = b""
        self._untouched = None


class JsonLines:
    """Reads one object a line, in one file or all that match a pattern."""

    def __init__(self, start: str, path: str) -> None:
        """start: the directory that the program begins in."""
        self.what = f"`{path}`"
        self._path = os.path.join(start, path)
        self._start = start
        self._begun_s = 0.0
        self._files: dict[str, Growing] = {}

    def begin(self, problems: Problems) -> None:  # noqa: ARG002 - others may have some
        self._begun_s = time.time()
        for path in find_matches(self._path)[0]:
            self._files[path] = Growing()
            self._files[path].pass_over(path)

    def rows(self, problems: Problems, *, whole: bool) -> Iterator[Row]:
        found, is_cut = find_matches(self._path)
        if is_cut:
            problems.add(self.what, cut_short(self.what))
        for path in found:
            if os.path.isdir(path):
                name = below(path, self._start)
                problems.add(
                    name, f"`{name}` is a directory; `path` must name a file of JSON lines"
                )
                continue
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = Growing()
                if is_older(path, self._begun_s):
                    file.pass_over(path)
            while data := file.read(path):
                before = file.offset
                yield from self._taken(
                    path,
                    file,
                    data,
                    problems,
                    whole=whole,
                )
                if not whole or file.offset == before:
                    break

    def _taken(
        self,
        path: str,
        file: Growing,
        data: bytes,
        problems: Problems,
        *,
        whole: bool,
    ) -> Iterator[Row]:
        end = data.rfind(b"\n") + 1
        if not end and (whole or len(data) > LINE_BYTES_MAX):
            end = len(data)
        number = file.lines
        name = below(path, self._start)
        for line in data[:end].removesuffix(b"\n").split(b"\n") if end else ():
            step, values, problem = json_row(line, number)
            number += 1
            if values:
                yield step, None, values
            if problem:
                problems.add(name, f"line {number} of `{name}` {problem}")
        file.took(data[:end])


def json_row(line: bytes, number: int) -> tuple[int, dict[str, float], str]:
    """Returns (step, values by dotted name, problem or ""). number: how many lines came before, the
    step of a line without one. Texts and truth values are not metrics and no problem.
    """
    if not line.strip():
        return number, {}, ""
    try:
        row = parse_as_python(line.decode()) if len(line) <= LINE_BYTES_MAX else None
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        return number, {}, f"is not recorded: `{shown(line)}` is not an object such as {EXAMPLE}"
    declared = row.pop("step", number)
    step = whole_step(declared)
    if step is None:
        return (
            number,
            {},
            f"is not recorded: its step `{shown(str(declared).encode())}` is not whole",
        )
    found: dict[str, Any] = {}
    for name, value in row.items():
        flatten(name, value, found, [])
    return step, numbers(found, []), ""


def cut_short(pattern: str) -> str:
    """Returns the problem of a pattern that takes too long to look up."""
    return (
        f"{pattern} takes more than {ENTRIES_MAX:,} files and directories to look through, and"
        " deeper ones are left out; name their directory"
    )


def is_older(path: str, begun_s: float) -> bool:
    """Returns whether a file was written before the program began, and copied here later."""
    try:
        return os.stat(path).st_mtime < begun_s - CLOCK_S
    except OSError:
        return False


def below(path: str, start: str) -> str:
    """Returns a path as its user knows it."""
    inside = os.path.join(start, "")
    if path.startswith(inside):
        return path[len(inside) :]
    return path


def _read(
    path: str,
    offset: int,
    limit: int,
) -> bytes:
    """Reads bytes; b"" for an irregular file. Follows links: it reads with the program's rights."""
    parent, name = os.path.split(os.path.realpath(path))
    try:
        directory = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return read_file(directory, name, offset, limit) or b""
    finally:
        os.close(directory)
