"""Finds the files that a pattern of `metrics.path` names, and reads the JSON lines of a metrics
file while a program writes it.

Content from before the program's start is skipped: another program wrote it. A pattern works as in
a shell: `*`, `?` and `[...]` stay within a name, `**` is any number of directories, and neither is
a name that begins with a dot. `**` follows no links, which may lead round in circles.
"""

from __future__ import annotations

import os
import time
from collections import deque

from fleetctl.guest.journal.results import LINE_BYTES_MAX, parse_step, read_file, shorten_line
from fleetctl.guest.metrics.numbers import flatten_value, select_numbers
from fleetctl.guest.outputs.selection import matcher_of, pieces_of
from fleetctl.guest.task.text import parse_as_python

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Iterator, Optional

    from fleetctl.guest.outputs.selection import Matcher

    Row = tuple[Optional[int], Optional[float], dict[str, float]]


READ_BYTES_MAX = 1024 * 1024  # per look, so that one run does not hold up others
TAIL_BYTES = 64  # compared to notice that a file was rewritten
CLOCK_S = 1.0  # a guess at the most by which the clocks of programs and of files differ
EXAMPLE = '{"step": 3, "loss": 0.5}'

DEEPER = "**"
WILD = "*?["
FILES_MAX = 100
ENTRIES_MAX = 10_000  # of directories that are looked through for files


class Problems:
    """The problems of reading, by file: the text of each file's first one, and how many there
    are.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._fresh: list[str] = []

    def add(self, file: str, text: str) -> None:
        self._counts[file] = self._counts.get(file, 0) + 1
        if self._counts[file] == 1 and len(self._counts) <= FILES_MAX:
            self._fresh.append(text)

    def take_new(self) -> list[str]:
        """Returns the texts that were added since the last call."""
        fresh = self._fresh
        self._fresh = []
        return fresh

    def totals(self) -> list[str]:
        """Returns a sentence with the count for each file that has several problems. Called once,
        when the run has ended.
        """
        return [
            f"{count} parts of {file} could not be read as metrics in all"
            for file, count in self._counts.items()
            if count > 1
        ]


class GrowingFile:
    """A file that a program appends to, as far as it has been read.

    offset: the next byte to read. lines: how many lines end before it.
    """

    def __init__(self) -> None:
        self.offset = 0
        self.lines = 0
        self._tail = b""
        # The last write before the program began; None once the program has written.
        self._untouched_ns: Optional[int] = None

    def skip_present(self, path: str) -> None:
        """Skips the present content of the file: the program did not write it."""
        while data := self.read(path):
            self.advance(data)
        try:
            self._untouched_ns = os.stat(path).st_mtime_ns
        except OSError:
            self._untouched_ns = None

    def read(self, path: str) -> bytes:
        """Returns at most READ_BYTES_MAX bytes from the offset on; b"" without new ones. Reads from
        the start again when the file was rewritten.
        """
        try:
            status = os.stat(path)
        except OSError:
            return b""
        rewritten = self._untouched_ns not in (None, status.st_mtime_ns)
        if status.st_size < self.offset or (status.st_size == self.offset and rewritten):
            self._restart()
        if status.st_size <= self.offset:
            return b""
        data = _read_bytes(path, self.offset - len(self._tail), READ_BYTES_MAX)
        if data.startswith(self._tail):
            return data[len(self._tail) :]
        self._restart()
        return _read_bytes(path, 0, READ_BYTES_MAX)

    def advance(self, data: bytes) -> None:
        """Moves the offset past `data`, the first bytes of the last read."""
        self.offset += len(data)
        self.lines += data.count(b"\n")
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        self._untouched_ns = None

    def skip(self, size: int) -> None:
        """Moves the offset past bytes that need not be read; the program may yet have to write
        them.
        """
        self.offset += size
        self._tail = b""

    def _restart(self) -> None:
        self.offset = self.lines = 0
        self._tail = b""
        self._untouched_ns = None


class JsonLines:
    """A reader of JSON objects, one a line, in one file or in all that match a pattern."""

    def __init__(self, start: str, path: str) -> None:
        """start: the directory that the program begins in. path: below it, or absolute; a
        pattern.
        """
        self.source = f"`{path}`"
        self._path = os.path.join(start, path)
        self._start = start
        self._begun_s = 0.0
        self._files: dict[str, GrowingFile] = {}

    def begin(self, problems: Problems) -> None:
        self._begun_s = time.time()
        for path in find_matches(self._path)[0]:
            self._files[path] = GrowingFile()
            self._files[path].skip_present(path)

    def rows(self, problems: Problems, *, whole: bool) -> Iterator[Row]:
        found, is_cut = find_matches(self._path)
        if is_cut:
            problems.add(self.source, describe_cut(self.source))
        for path in found:
            if os.path.isdir(path):
                name = path_from(path, self._start)
                problems.add(
                    name, f"`{name}` is a directory; `path` must name a file of JSON lines"
                )
                continue
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = GrowingFile()
                if is_older(path, self._begun_s):
                    file.skip_present(path)
            while data := file.read(path):
                before = file.offset
                yield from self._parse_lines(
                    path,
                    file,
                    data,
                    problems,
                    whole=whole,
                )
                if not whole or file.offset == before:
                    break

    def _parse_lines(
        self,
        path: str,
        file: GrowingFile,
        data: bytes,
        problems: Problems,
        *,
        whole: bool,
    ) -> Iterator[Row]:
        end = data.rfind(b"\n") + 1
        if not end and (whole or len(data) > LINE_BYTES_MAX):
            end = len(data)
        number = file.lines
        name = path_from(path, self._start)
        for line in data[:end].removesuffix(b"\n").split(b"\n") if end else ():
            step, values, problem = parse_json_row(line, number)
            number += 1
            if values:
                yield step, None, values
            if problem:
                problems.add(name, f"line {number} of `{name}` {problem}")
        file.advance(data[:end])


def parse_json_row(line: bytes, number: int) -> tuple[int, dict[str, float], str]:
    """Returns (step, values by dotted name, problem or "").

    number: how many lines come before; it is the step of a line that names none. Texts and truth
    values are skipped: they are no metrics, and no problem.
    """
    if not line.strip():
        return number, {}, ""
    try:
        row = parse_as_python(line.decode()) if len(line) <= LINE_BYTES_MAX else None
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        return (
            number,
            {},
            f"is not recorded: `{shorten_line(line)}` is not an object such as {EXAMPLE}",
        )
    declared = row.pop("step", number)
    step = parse_step(declared)
    if step is None:
        text = shorten_line(str(declared).encode())
        return number, {}, f"is not recorded: its step `{text}` is not a whole number"
    found: dict[str, Any] = {}
    for name, value in row.items():
        flatten_value(name, value, found, [])
    return step, select_numbers(found, []), ""


def describe_cut(pattern: str) -> str:
    """Returns the message for a pattern below which there are too many files to look through."""
    return (
        f"{pattern} takes more than {ENTRIES_MAX:,} files and directories to look through, and"
        " deeper ones are left out; name their directory"
    )


def is_older(path: str, begun_s: float) -> bool:
    """Returns whether a file's last write is from before the program began: it was copied here
    since, with its time.
    """
    try:
        return os.stat(path).st_mtime < begun_s - CLOCK_S
    except OSError:
        return False


def path_from(path: str, start: str) -> str:
    """Returns a path as the user wrote it: from the start directory, where it is below that."""
    inside = os.path.join(start, "")
    if path.startswith(inside):
        return path[len(inside) :]
    return path


def _read_bytes(
    path: str,
    offset: int,
    limit: int,
) -> bytes:
    """Returns up to `limit` bytes; b"" for a file that is not a regular one. Follows links: the
    supervisor has no more rights than the program.
    """
    parent, name = os.path.split(os.path.realpath(path))
    try:
        directory = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return read_file(directory, name, offset, limit) or b""
    finally:
        os.close(directory)


def find_matches(path: str) -> tuple[list[str], bool]:
    """Returns (the existing paths of a path or a pattern such as `runs/*`, sorted; whether others
    were not looked at). The least deep ones are found first.
    """
    parts = [part for part in path.split("/") if part]
    plain = next((at for at, it in enumerate(parts) if _is_wild(it)), None)
    if plain is None:
        return ([path] if os.path.lexists(path) else []), False
    top = "/" * path.startswith("/") + "/".join(parts[:plain])
    search = _Search(
        [it for at, it in enumerate(parts[plain:]) if not _is_repeated(parts[plain:], at)]
    )
    search.walk(top)
    return sorted(search.found)[:FILES_MAX], search.left <= 0


class _Search:
    """left: entries that may still be looked at."""

    def __init__(self, parts: list[str]) -> None:
        self.found: set[str] = set()
        self.left = ENTRIES_MAX
        self._parts = parts
        self._matchers: list[Optional[Matcher]] = [compile_name(it) for it in parts]
        self._ahead: deque[tuple[str, int]] = deque()
        self._seen: set[tuple[str, int]] = set()

    def walk(self, top: str) -> None:
        self._reach(top, 0)
        while self._ahead and self.left > 0:
            self.left -= 1
            directory, at = self._ahead.popleft()
            if _is_wild(self._parts[at]):
                self._look_through(directory, at)
            elif os.path.lexists(inside := os.path.join(directory, self._parts[at])):
                self._reach(inside, at + 1)

    def _reach(self, path: str, at: int) -> None:
        """Takes a path that fits all parts before `at`."""
        if at == len(self._parts):
            self.found.add(path)
        elif (path, at) not in self._seen:
            self._seen.add((path, at))
            self._ahead.append((path, at))

    def _look_through(self, directory: str, at: int) -> None:
        if self._parts[at] == DEEPER:
            self._reach(directory, at + 1)
        try:
            with os.scandir(directory or ".") as entries:
                for entry in entries:
                    self.left -= 1
                    if self.left < 0:
                        return
                    self._take(os.path.join(directory, entry.name), entry, at)
        except OSError:
            return  # no directory, or gone by now

    def _take(
        self,
        path: str,
        entry: os.DirEntry[str],
        at: int,
    ) -> None:
        if self._parts[at] == DEEPER:
            if entry.name.startswith("."):
                return
            if entry.is_dir(follow_symlinks=False):
                self._reach(path, at)
            if at + 1 == len(self._parts):
                self._reach(path, at + 1)
            return
        matcher = self._matchers[at]
        hidden = entry.name.startswith(".") and not self._parts[at].startswith(".")
        if matcher is not None and not hidden and matcher.fullmatch(entry.name):
            self._reach(path, at + 1)


def compile_name(part: str) -> Optional[Matcher]:
    """Returns the matcher of a part of a pattern; None for a part that is one name."""
    if not _is_wild(part):
        return None
    return matcher_of(pieces_of(part))


def _is_wild(part: str) -> bool:
    return any(it in part for it in WILD)


def _is_repeated(parts: list[str], at: int) -> bool:
    return parts[at] == DEEPER and parts[at + 1 : at + 2] == [DEEPER]
