"""Finds the files that `tasks.fromFiles` names, in a directory or in the listing of a volume, and
reads their contents' digests.

`*` and `?` stay within a part of a path, `**` stands for any number of directories. A name that
begins with a dot is matched by a part that begins with one alone; links to directories are not
followed below `**`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cache
from hashlib import sha256
from pathlib import Path

from fleetctl.common.text import and_more, count_noun
from fleetctl.manifest.files import fence
from fleetctl.manifest.problems import shorten_text

FILES_MAX = 100_000  # each is an entry of the stored spec, which is read as a whole
NAMES_MAX = 1_000_000  # names that are looked at: about ten seconds of a local disk
FILE_BYTES_MAX = 64 * 1024 * 1024  # each is brought to a sandbox before its task begins
ALL_BYTES_MAX = 4 * 1024 * 1024 * 1024  # all are read at each apply, at about 1 GiB a second
PATH_BYTES_MAX = 1024
SHOWN_MAX = 3
_PIECE_BYTES = 1024 * 1024
_WILD = re.compile(r"[*?\[]")
_DEEP = "**"


class FilesError(ValueError):
    """The reason why the files cannot be tasks, in lower case, and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A file that was found. path: below the base, as users read it. real: absolute, with the bytes
    of its name as `os.fsdecode` has them. digest: SHA-256 of its content, 64 hex digits.
    """

    path: str
    real: str
    digest: str
    size: int


@dataclass(slots=True)
class _Walk:
    """The names that a walk has seen: all, and some that did not match."""

    names: int = 0
    others: list[str] = field(default_factory=list)


def split_glob(glob: str) -> tuple[str, list[str]]:
    """Returns (the directory that all matches lie below, the parts of the pattern below it)."""
    normal = os.path.normpath(glob)
    root = "/" if normal.startswith("/") else ""
    parts = [it for it in normal.split("/") if it] or ["."]
    fixed = next((at for at, it in enumerate(parts) if _WILD.search(it)), len(parts))
    fixed = min(fixed, len(parts) - 1)
    below: list[str] = []
    for part in parts[fixed:]:
        if part != _DEEP or below[-1:] != [_DEEP]:
            below.append(part)
    if below[-1] == _DEEP:
        below.append("*")
    return root + "/".join(parts[:fixed]) or ".", below


def find_files(
    base: str,
    parts: Sequence[str],
    *,
    written: str,
    own: str,
    names: bool,
) -> list[TaskFile]:
    """Returns all files that match, in the order of their paths. base: absolute; parts: of the
    pattern below it. written: the base as its author wrote it. own: the manifest, which is no file
    of its own tasks. names: whether tasks see the names. Raises FilesError, and OSError for a file
    that cannot be read.
    """
    if not os.path.isdir(base):  # pathlib's raises for a long name
        raise FilesError(f"there is no directory `{shorten_text(written)}`")
    walk = _Walk()
    matches = sorted(set(_list_matches(base, parts, walk)))
    matches = [it for it in matches if os.path.join(base, it) != own]
    if not matches:
        raise FilesError(f"no file matches; {_describe_walk(written, walk)}")
    found = []
    total = 0
    for relative in matches:
        one = _read_file(base, relative, names=names)
        total += one.size
        if total > ALL_BYTES_MAX:
            limit = f"{ALL_BYTES_MAX // 1024**3} GiB"
            raise FilesError(f"its files hold more than {limit} in all", _VOLUME)
        found.append(one)
    return found


def _list_matches(
    base: str,
    parts: Sequence[str],
    walk: _Walk,
) -> Iterator[str]:
    """Yields paths below the base, some of them twice."""
    matchers = [None if it == _DEEP else re.compile(translate(it)) for it in parts]
    waiting = [("", 0)]
    known = set(waiting)
    count = 0
    while waiting:
        directory, at = waiting.pop()
        deep = matchers[at] is None
        if deep and (directory, at + 1) not in known:
            known.add((directory, at + 1))
            waiting.append((directory, at + 1))
        for entry in _scan_directory(base, directory, walk):
            relative = os.path.join(directory, entry.name)
            if deep:
                below = not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
                following = [(relative, at)] if below else []
            else:
                last = at == len(parts) - 1
                matcher = matchers[at]
                assert matcher is not None
                if not _matches_part(entry.name, parts[at], matcher):
                    if last and len(walk.others) <= SHOWN_MAX:
                        walk.others.append(relative)
                    continue
                if last and entry.is_file():
                    count += 1
                    if count > FILES_MAX:
                        raise FilesError(f"more than {FILES_MAX:,} files match it", _VOLUME)
                    yield relative
                following = [(relative, at + 1)] if not last and entry.is_dir() else []
            for step in following:
                if step not in known:
                    known.add(step)
                    waiting.append(step)


def _scan_directory(
    base: str,
    directory: str,
    walk: _Walk,
) -> Iterator[os.DirEntry[str]]:
    path = os.path.join(base, directory)
    fence.look_at(path)
    fence.check_inside(path)
    with os.scandir(path) as entries:
        for entry in entries:
            walk.names += 1
            if walk.names > NAMES_MAX:
                raise FilesError(
                    f"more than {NAMES_MAX:,} names would have to be looked at",
                    "name the directories more exactly",
                )
            yield entry


def _matches_part(
    name: str,
    part: str,
    matcher: re.Pattern[str],
) -> bool:
    hidden = name.startswith(".") and not part.startswith(".")
    return not hidden and matcher.fullmatch(name) is not None


def _describe_walk(written: str, walk: _Walk) -> str:
    looked = f"{count_noun(walk.names, 'name')} in and below `{shorten_text(written)}`"
    if not walk.others:
        return f"{looked} were looked at"
    names = [f"`{shorten_text(_show_path(it))}`" for it in sorted(walk.others)[:SHOWN_MAX]]
    return f"{looked} were looked at, such as {and_more(names, most=SHOWN_MAX)}"


def _read_file(
    base: str,
    relative: str,
    *,
    names: bool,
) -> TaskFile:
    shown = _show_path(relative)
    real = os.path.join(base, relative)
    _check_name(relative, shown, names=names)
    digest = sha256()
    size = 0
    with fence.open_regular(real) as stream:
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
            size += len(piece)
            if size > FILE_BYTES_MAX:
                limit = f"{FILE_BYTES_MAX // 1024**2} MiB"
                raise FilesError(f"`{shorten_text(shown)}` is larger than {limit}", _VOLUME)
    return TaskFile(shown, real, digest.hexdigest(), size)


def _check_name(
    relative: str,
    shown: str,
    *,
    names: bool,
) -> None:
    """Raises FilesError for a name that a task could not be given."""
    if len(os.fsencode(relative)) > PATH_BYTES_MAX:
        raise FilesError(f"`{shorten_text(shown)}` has a path of more than {PATH_BYTES_MAX} bytes")
    if not names:
        return
    if shown != relative:
        raise FilesError(
            f"the name of `{shorten_text(shown)}` is not UTF-8",
            "rename it, or leave `names` out, so that tasks do not see it",
        )
    if any(ord(it) < ord(" ") for it in relative):
        raise FilesError(
            f"the name of `{shorten_text(shown)}` holds a line break or a control character",
            "rename it, or leave `names` out, so that tasks do not see it",
        )


def _show_path(relative: str) -> str:
    """Returns a path as text: bytes that are no UTF-8 as `\\\\xff`."""
    return os.fsencode(relative).decode("utf-8", "backslashreplace")


def real_path(directory: str, base: str) -> str:
    """Returns the base from the root; `~` is the home of its user."""
    return os.path.normpath(Path(directory, os.path.expanduser(base)))


_VOLUME = "keep the files on a volume, and their paths in a file of `fromFile`"


def explain_wrong_glob(glob: str) -> str:
    """Returns why a pattern cannot be of a volume's files; or ""."""
    if glob.startswith("~"):
        return "in a volume paths begin at its top, and there is no home"
    if ".." in glob.split("/"):
        return "it leads out of the volume"
    if not glob.strip("/."):
        return "it names no file"
    return ""


def split_volume_glob(glob: str) -> tuple[str, list[str]]:
    """Returns (the directory of the volume that all matches lie below, "" for its top; the parts of
    the pattern below it).
    """
    base, parts = split_glob(glob.lstrip("/"))
    return ("" if base == "." else base), parts


def names_below(parts: Sequence[str]) -> str:
    """Returns a pattern that the names of all matches have, in which `*` alone is special: a
    provider reads the contents of files with such names.
    """
    literal, *rest = re.split(r"[\[\\]", parts[-1], maxsplit=1)
    return literal.replace("?", "*") + "*" * len(rest)


def choose_files(
    glob: str,
    listed: Iterable[str],
    *,
    volume: str,
) -> list[str]:
    """Returns the matching paths in their order. listed: paths of files from the volume's top.
    Raises FilesError where none matches, too many do, or a task could not be given one.
    """
    base, parts = split_volume_glob(glob)
    prefix = f"{base}/" if base else ""
    matches = _build_matcher(parts)
    found: list[str] = []
    others: list[str] = []
    count = 0
    for path in listed:
        count += 1
        if count > NAMES_MAX:
            raise FilesError(
                f"more than {NAMES_MAX:,} names would have to be looked at",
                "name the directories more exactly",
            )
        if path.startswith(prefix) and matches(path.removeprefix(prefix)):
            found.append(path)
        elif len(others) <= SHOWN_MAX:
            others.append(path)
    if not found:
        raise FilesError(f"no file matches; {_describe_listing(count, others, volume)}")
    if len(found) > FILES_MAX:
        raise FilesError(
            f"more than {FILES_MAX:,} files match it", "split the work into several jobs"
        )
    for path in found:
        _check_path(path)
    return sorted(found)


def _build_matcher(parts: Sequence[str]) -> _Matcher:
    return _Matcher(tuple(None if it == _DEEP else it for it in parts))


class _Matcher:
    """A pattern, part by part; None stands for any directories."""

    def __init__(self, parts: tuple[str | None, ...]) -> None:
        self._parts = parts
        self._one = cache(_compile_part)

    def __call__(self, path: str) -> bool:
        reached = {0}
        for name in path.split("/"):
            if not reached:
                return False
            reached = {after for at in reached for after in self._steps(at, name)}
        return len(self._parts) in reached

    def _steps(self, at: int, name: str) -> Iterable[int]:
        """Yields the parts that are next after a name."""
        if at == len(self._parts):
            return
        part = self._parts[at]
        if part is not None:
            hidden = name.startswith(".") and not part.startswith(".")
            if not hidden and self._one(part).fullmatch(name):
                yield at + 1
            return
        if not name.startswith("."):
            yield at
        yield from self._steps(at + 1, name)


def _compile_part(part: str) -> re.Pattern[str]:
    return re.compile(translate(part))


def _describe_listing(
    count: int,
    others: Sequence[str],
    volume: str,
) -> str:
    verb = "was" if count == 1 else "were"
    looked = f"{count_noun(count, 'file')} of volume/{volume} {verb} looked at"
    if not others:
        return looked
    names = [f"`{shorten_text(it)}`" for it in sorted(others)[:SHOWN_MAX]]
    return f"{looked}, such as {and_more(names, most=SHOWN_MAX)}"


def _check_path(path: str) -> None:
    """Raises FilesError for a path that a task could not be given."""
    shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if len(path.encode("utf-8", "surrogateescape")) > PATH_BYTES_MAX:
        raise FilesError(f"`{shorten_text(shown)}` has a path of more than {PATH_BYTES_MAX} bytes")
    if shown != path:
        raise FilesError(
            f"the name of `{shorten_text(shown)}` is not UTF-8", "rename it, as tasks see the path"
        )
    if any(ord(it) < ord(" ") for it in path):
        raise FilesError(
            f"the name of `{shorten_text(shown)}` holds a line break or a control character",
            "rename it, as tasks see the path",
        )
