"""Packs and unpacks archives between this machine and a task for `cp`, by the rules of `docker cp`,
and refuses to write through links in the target directory.

Only local files are touched. The names in an archive come from a task or a volume: a name that
meets a link of the user's would be written to wherever the link leads. So only the target that the
user names may be a link.
"""

from __future__ import annotations

import errno
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.common.text import escape_line, shorten_text
from fleetctl.tracking.written_files import note_written

MODE_MASK = 0o777  # no bits beyond these are taken over
PIECE_BYTES = 256 * 1024
NAME_CELLS = 80  # of a name on the screen
DEPTH_MAX = 200  # of nested directories; no real tree is so deep


class CopySummary(NamedTuple):
    """The result of a copy. skipped: paths that are neither file nor directory."""

    files: int
    size: int
    skipped: tuple[str, ...]


class ArchiveTarget(NamedTuple):
    """The target of an archive: in `directory`, its top called `name`; "." is its content."""

    directory: str
    name: str


def means_contents(path: str) -> bool:
    return path == "." or path.endswith("/.")


def resolve_upload(
    source: Path,
    written: str,
    target: str,
    sort: str,
) -> ArchiveTarget:
    """Returns the target of an upload. written: the source as the user wrote it. sort: that of
    `target` in the sandbox, one of file, directory and missing. Raises UsageError.
    """
    parent, _, name = target.rstrip("/").rpartition("/")
    above = parent or ("/" if target.startswith("/") else ".")
    inside = target.rstrip("/") or ("/" if target.startswith("/") else ".")
    if not source.is_dir():
        into = sort == "directory" or target.endswith("/")
        if into:
            return ArchiveTarget(inside, source.name)
        return ArchiveTarget(above, name)
    if sort == "file":
        raise UsageError(f"`{written}` is a directory, and `{target}` is a file")
    if sort == "missing":
        return ArchiveTarget(above, name)
    return ArchiveTarget(inside, "." if means_contents(written) else source.resolve().name)


def pack_archive(
    source: Path,
    name: str,
    file: IO[bytes],
    *,
    within: Path | None = None,
) -> CopySummary:
    """Writes `source` as an archive whose top is called `name`. Links to files become files.

    within: the directory that links must not leave, for files that a task made; None for no bound.
    """
    found = 0
    size = 0
    skipped = []
    with tarfile.open(
        fileobj=file,
        mode="w",
        format=tarfile.GNU_FORMAT,
    ) as archive:
        for path, inside in _walk_tree(source):
            leaves = within is not None and not path.resolve().is_relative_to(within)
            is_tree = path.is_dir() and not path.is_symlink()
            if leaves or not (path.is_file() or is_tree):
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
            found = found + 1
            size = size + about.st_size
    return CopySummary(found, size, tuple(skipped))


def unpack_archive(
    file: IO[bytes],
    target: str,
    *,
    contents: bool,
) -> CopySummary:
    """Writes the content of an archive to `target`. Raises NotFound and UsageError; an archive
    cannot write anywhere else, also not through links in `target`, and not more than was sent.
    """
    size = 0
    skipped = []
    written: list[Path] = []
    place: Path | None = None
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for entry in archive:
                parts = _split_entry_path(entry.name)
                # The content of a directory is sent as `./...`: there the top has no name.
                below = parts if contents else parts[1:]
                if place is None:
                    name = parts[0] if parts else "."
                    place = _resolve_target(
                        target, name, directory=entry.isdir(), contents=contents
                    )
                here = place.joinpath(*below)
                refuse_links(here, Path(target))
                if entry.isdir() or entry.isfile():
                    _take_out(archive, entry, here)
                else:
                    skipped.append(entry.name)
                if entry.isfile():
                    written.append(here)
                    size += entry.size
    except tarfile.TarError as error:
        raise UsageError("what the sandbox sent is not a whole archive") from error
    note_written(written)
    return CopySummary(len(written), size, tuple(skipped))


def _take_out(
    archive: tarfile.TarFile,
    entry: tarfile.TarInfo,
    here: Path,
) -> None:
    """Writes one file or directory. Raises UsageError where it cannot be written there."""
    sent = f"the sandbox sent `{shorten_text(entry.name, NAME_CELLS)}`"
    if entry.issparse():
        raise UsageError(
            f"{sent} with holes in it, which may be of any size",
            hint="a tar that packs without `--sparse` sends it whole",
        )
    try:
        if entry.isdir():
            here.mkdir(parents=True, exist_ok=True)
            return
        content = archive.extractfile(entry)
        assert content is not None
        here.parent.mkdir(parents=True, exist_ok=True)
        _write_file(here, content, entry.mode & MODE_MASK)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{sent}, and a file is where it needs a directory") from error
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise UsageError(f"{sent}: a name that is too long here") from error


def _walk_tree(source: Path) -> Iterator[tuple[Path, str]]:
    """Yields the source itself and all entries in it, with the path below; links are not
    followed."""
    yield source, ""
    if source.is_dir():
        for directory, names, files in os.walk(source):
            names.sort()
            for name in sorted((*names, *files)):
                path = Path(directory, name)
                yield path, path.relative_to(source).as_posix()


def _split_entry_path(name: str) -> list[str]:
    """Returns the parts of an entry's path, without `.`.

    Raises UsageError for a path that leaves its directory: no honest tar writes one.
    """
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts:
        sent = shorten_text(name, NAME_CELLS)
        raise UsageError(f"the sandbox sent `{sent}`, which is outside of what was asked for")
    if len(parts) > DEPTH_MAX:
        raise UsageError(
            f"the sandbox sent `{shorten_text(name, NAME_CELLS)}`, in more than {DEPTH_MAX} "
            f"directories"
        )
    return list(parts)


def _resolve_target(
    target: str,
    name: str,
    *,
    directory: bool,
    contents: bool,
) -> Path:
    """Returns the path for the top of an archive."""
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


def _write_file(
    place: Path,
    content: IO[bytes],
    mode: int,
) -> None:
    """Writes a temporary file beside the target, then renames: readers see the old file or the new
    one."""
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


def refuse_links(here: Path, top: Path) -> None:
    """Raises Refused where `here`, or a directory between it and `top`, is a link to a directory.
    A link to a file is no obstacle: the new file takes its place.

    here: the path to write, at or below `top`. top: the target as the user named it.
    """
    path = here
    while path != top:
        # Of a name that is too long for this machine, Path.is_symlink would raise.
        if os.path.islink(path) and path.is_dir():
            raise Refused(
                f"`{escape_line(str(path))}` is a link to `{escape_line(str(path.readlink()))}`, "
                "and nothing is copied through links",
                hint="name that directory as the target, or remove the link",
            )
        path = path.parent
