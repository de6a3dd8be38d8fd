"""Archives between this machine and a task: what `cp` packs and unpacks, by the rules of
`docker cp`. Touches local files alone.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from fleetctl.common.errors import NotFound, UsageError
from fleetctl.tracking.written import note_written

MODE_MASK = 0o777  # no bits beyond these are taken over
PIECE_BYTES = 256 * 1024


class Moved(NamedTuple):
    """What was copied. skipped: what is neither a file nor a directory."""

    files: int
    size: int
    skipped: tuple[str, ...]


class Into(NamedTuple):
    """Where an archive is unpacked: in `directory`, its top called `name`; "." is its content."""

    directory: str
    name: str


def means_contents(path: str) -> bool:
    return path == "." or path.endswith("/.")


def upload_place(source: Path, written: str, target: str, sort: str) -> Into:
    """written: the source as the person wrote it. sort: what is at `target` in the sandbox, one of
    file, directory and missing. Raises UsageError.
    """
    parent, _, name = target.rstrip("/").rpartition("/")
    above = parent or ("/" if target.startswith("/") else ".")
    inside = target.rstrip("/") or ("/" if target.startswith("/") else ".")
    if not source.is_dir():
        into = sort == "directory" or target.endswith("/")
        return Into(inside, source.name) if into else Into(above, name)
    if sort == "file":
        raise UsageError(f"`{written}` is a directory, and `{target}` is a file")
    if sort == "missing":
        return Into(above, name)
    return Into(inside, "." if means_contents(written) else source.resolve().name)


def pack(source: Path, name: str, file: IO[bytes]) -> Moved:
    """Write `source` as an archive whose top is called `name`. Links to files go as files."""
    found, size, skipped = 0, 0, []
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, inside in _below(source):
            if not path.is_file() and not (path.is_dir() and not path.is_symlink()):
                skipped.append(str(path))
                continue
            about = path.stat()
            entry = tarfile.TarInfo(f"{name}/{inside}" if inside else name)
            entry.mode, entry.mtime = about.st_mode & MODE_MASK, int(about.st_mtime)
            if path.is_dir():
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
                continue
            entry.size = about.st_size
            with path.open("rb") as content:
                archive.addfile(entry, content)
            found, size = found + 1, size + about.st_size
    return Moved(found, size, tuple(skipped))


def unpack(file: IO[bytes], target: str, *, contents: bool) -> Moved:
    """Write what an archive holds to `target`. Raises NotFound and UsageError; an archive cannot
    write anywhere else.
    """
    size, skipped = 0, []
    written: list[Path] = []
    place: Path | None = None
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for entry in archive:
                parts = _parts(entry.name)
                # The content of a directory is sent as `./...`: there the top has no name.
                below = parts if contents else parts[1:]
                if place is None:
                    name = parts[0] if parts else "."
                    place = _place(target, name, directory=entry.isdir(), contents=contents)
                here = place.joinpath(*below)
                if entry.isdir():
                    here.mkdir(exist_ok=True)
                elif entry.isfile():
                    content = archive.extractfile(entry)
                    assert content is not None
                    here.parent.mkdir(parents=True, exist_ok=True)
                    _write(here, content, entry.mode & MODE_MASK)
                    written.append(here)
                    size += entry.size
                else:
                    skipped.append(entry.name)
    except tarfile.TarError as error:
        raise UsageError("what the sandbox sent is not a whole archive") from error
    note_written(written)
    return Moved(len(written), size, tuple(skipped))


def _below(source: Path) -> Iterator[tuple[Path, str]]:
    """The source itself and all that is in it, with its path below; links are not walked into."""
    yield source, ""
    if source.is_dir():
        for directory, names, files in os.walk(source):
            names.sort()
            for name in sorted((*names, *files)):
                path = Path(directory, name)
                yield path, path.relative_to(source).as_posix()


def _parts(name: str) -> list[str]:
    """The parts of an entry's path, without `.`.

    Raises UsageError for a path that leaves its directory: no honest tar writes one.
    """
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts:
        raise UsageError(f"the sandbox sent `{name}`, which is outside of what was asked for")
    return list(parts)


def _place(target: str, name: str, *, directory: bool, contents: bool) -> Path:
    """Where the top of an archive goes."""
    place = Path(target)
    if place.is_dir() and not contents:
        return place / name
    if directory and place.exists() and not place.is_dir():
        raise UsageError(f"the source is a directory, and `{target}` is a file")
    if not directory and target.endswith("/"):
        raise NotFound(f"there is no directory `{target}`", hint=f"mkdir -p {target}")
    if not place.absolute().parent.is_dir():
        raise NotFound(f"there is no directory `{place.parent}`", hint=f"mkdir -p {place.parent}")
    return place


def _write(place: Path, content: IO[bytes], mode: int) -> None:
    """Beside its place first, then renamed: readers see the old file or the new one."""
    if place.is_dir():
        raise UsageError(f"`{place}` is a directory, and a file would replace it")
    temporary = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            while data := content.read(PIECE_BYTES):
                file.write(data)
        temporary.chmod(mode)
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)
