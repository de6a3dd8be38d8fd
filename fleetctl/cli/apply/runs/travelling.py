"""Which files go along with a command that has no manifest, and how large they are.

Called by from_flags.py. What is left out is what `source.path` leaves out everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import NotFound, Refused
from fleetctl.common.text import byte_size, safe
from fleetctl.providers.sources.tree import Rules, walk

HERE = "."


class Named(NamedTuple):
    """word: as the command has it. path: what it names, relative to the directory."""

    word: str
    path: Path


def source_of(said: str | None, command: Sequence[str], screen: Screen, *, none: bool) -> str:
    """The directory that travels, as a manifest beside it says it; empty for none. Tells which.

    said: what `--source` names. Without it this directory goes, where the command names a file in
    it. Raises NotFound, and Refused where a whole home would go without a word.
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
        raise NotFound(f"--source: there is no directory `{safe(str(origin))}`")
    if said is None and here in (Path.home(), Path("/")):
        raise Refused(
            f"all of `{here}` would go along, because the command names `{named[0].word}` in it",
            hint="go into the project's own directory, or name it: `--source DIR`, `--no-source`",
        )
    _tell(origin, named, screen)
    return said or HERE


def files_named(command: Sequence[str], here: Path) -> Iterator[Named]:
    """Files and directories below `here` that words of the command name, also as `--flag=FILE` and
    as the module behind `-m`. A first word without a slash is looked up on PATH, so it is none.
    """
    for at, word in enumerate(command):
        module = at > 0 and command[at - 1] == "-m"
        if at == 0 and "/" not in word:
            continue
        text = word.rpartition("=")[2] if word.startswith("-") else word
        parts = text.replace(".", "/")
        for path in (Path(f"{parts}.py"), Path(parts)) if module else (Path(text),):
            if _is_below(path, here):
                yield Named(text, path)
                break


def _is_below(path: Path, here: Path) -> bool:
    """Whether it is there, and not this directory itself, nor a path that leads out of it."""
    if path.is_absolute() or path in (Path(), Path(HERE)) or ".." in path.parts:
        return False
    try:
        return (here / path).exists()
    except (OSError, ValueError):
        return False  # longer than a name can be, or a program's text


def _tell(origin: Path, named: Sequence[Named], screen: Screen) -> None:
    files, size = 0, 0
    going: set[str] = set()
    for entry, relative in walk(origin, Rules.of_project(())):
        going.add(relative)
        if entry.is_file(follow_symlinks=False):
            files, size = files + 1, size + entry.stat(follow_symlinks=False).st_size
    count = "1 file" if files == 1 else f"{files:,} files"
    what = "this directory goes" if origin == Path(HERE) else f"`{safe(str(origin))}` goes"
    screen.talk(f"{what} along: {count}, {byte_size(size)}, without what ignore files leave out")
    if origin != Path(HERE):
        return
    for word, path in named:
        if str(path) not in going:
            screen.warn(f"`{safe(word)}` stays here: an ignore file leaves it out")
