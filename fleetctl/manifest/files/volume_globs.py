"""Chooses the files of a volume's listing that `tasks.fromFiles` names. Pure: the listing is of its
provider; called by includes.py, and by tracking/volume_tasks.py.

The rules are those of task_files.py: `*` and `?` stay within a part of a path, `**` stands for any
number of directories, and a name that begins with a dot needs a part that begins with one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from functools import cache

from fleetctl.common.text import and_more, count_noun
from fleetctl.manifest.files.task_files import (
    FILES_MAX,
    NAMES_MAX,
    PATH_BYTES_MAX,
    SHOWN_MAX,
    FilesError,
    split_glob,
)
from fleetctl.manifest.problems import shorten_text

_DEEP = "**"


def wrong_in_volume(glob: str) -> str:
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
