"""Chooses the files that are uploaded for a command without a manifest, and measures them.

Called by from_flags.py. The excludes are those of `source.path` everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import NotFound, Refused
from fleetctl.common.text import byte_size, escape_line
from fleetctl.providers.sources.tree_copy import CopyRules, walk_tree

HERE = "."


class NamedFile(NamedTuple):
    """A word that names a file. word: as in the command. path: of the file, relative to the
    directory."""

    word: str
    path: Path


def source_of(
    said: str | None,
    command: Sequence[str],
    screen: Screen,
    *,
    none: bool,
) -> str:
    """Returns the directory to upload, as a manifest beside it would name it; empty for none.
    Prints the choice.

    said: the value of `--source`. Without it this directory is uploaded, where the command names a
    file in it. Raises NotFound, and Refused where a whole home directory would be uploaded without
    a flag.
    """
    if none:
        return ""
    here = Path.cwd()
    named = list(files_named(command, here))
    if said is None and not named:
        screen.talk("no files go along: the command names none here (`--source .` takes them)")
        return ""
    origin = Path(said or HERE)
    if not origin.is_dir():
        raise NotFound(f"--source: there is no directory `{escape_line(str(origin))}`")
    if said is None and here in (Path.home(), Path("/")):
        raise Refused(
            f"all of `{here}` would go along, because the command names `{named[0].word}` in it",
            hint="go into the project's own directory, or name it: `--source DIR`, `--no-source`",
        )
    _report_files(origin, named, screen)
    return said or HERE


def files_named(command: Sequence[str], here: Path) -> Iterator[NamedFile]:
    """Yields files and directories below `here` that words of the command name, also as
    `--flag=FILE` and as the module behind `-m`. A first word without a slash is looked up on PATH,
    so it names no file.
    """
    for at, word in enumerate(command):
        module = at > 0 and command[at - 1] == "-m"
        if at == 0 and "/" not in word:
            continue
        text = word.rpartition("=")[2] if word.startswith("-") else word
        parts = text.replace(".", "/")
        for path in (Path(f"{parts}.py"), Path(parts)) if module else (Path(text),):
            if _is_below(path, here):
                yield NamedFile(text, path)
                break


def _is_below(path: Path, here: Path) -> bool:
    """Returns true for an existing path inside of this directory; not for the directory itself."""
    if path.is_absolute() or path in (Path(), Path(HERE)) or ".." in path.parts:
        return False
    try:
        return (here / path).exists()
    except (OSError, ValueError):
        return False  # longer than a name can be, or a program's text


def _report_files(
    origin: Path,
    named: Sequence[NamedFile],
    screen: Screen,
) -> None:
    files = 0
    size = 0
    going: set[str] = set()
    for entry, relative in walk_tree(origin, CopyRules.of_project(())):
        going.add(relative)
        if entry.is_file(follow_symlinks=False):
            files = files + 1
            size = size + entry.stat(follow_symlinks=False).st_size
    count = "1 file" if files == 1 else f"{files:,} files"
    what = "this directory goes" if origin == Path(HERE) else f"`{escape_line(str(origin))}` goes"
    screen.talk(f"{what} along: {count}, {byte_size(size)}, without what ignore files leave out")
    if origin != Path(HERE):
        return
    for word, path in named:
        if str(path) not in going:
            screen.warn(f"`{escape_line(word)}` stays here: an ignore file leaves it out")
