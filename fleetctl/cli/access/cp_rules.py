"""Chooses the files that a `cp` copies and their targets, by the rules of `docker cp`. Copies
nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleetctl.cli.access.target_links import refuse_links
from fleetctl.cli.targets.volume import VolumePath
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.providers.contract.volume_files import FileCopy, FileEntry, VolumeFiles, clean_path

Sort = Literal["file", "directory", "missing"]


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The files to copy. directory: one to make, for a source without files. skipped: paths that
    are neither file nor directory, or lead to a directory by a link.
    """

    copies: tuple[FileCopy, ...]
    skipped: tuple[str, ...] = ()
    directory: Path | None = None


async def plan_upload(
    files: VolumeFiles,
    source: str,
    target: VolumePath,
) -> CopyPlan:
    """Raises NotFound and UsageError."""
    origin = Path(source)
    if not origin.exists():
        raise NotFound(f"there is no file or directory `{source}`")
    wanted = clean_path(target.path)
    sort, _ = await _inspect_path(files, target.name, wanted)
    if origin.is_file():
        into = sort == "directory" or target.path.endswith("/")
        place = _join_path(wanted, origin.name) if into else wanted
        return CopyPlan((FileCopy(origin, place, origin.stat().st_size),))
    if sort == "file":
        raise _in_the_way(source, target.shown)
    if sort == "directory" and not _means_contents(source):
        wanted = _join_path(wanted, origin.resolve().name)
    found = []
    skipped = []
    for path, relative in _walk_files(origin):
        if path.is_file():
            found.append(FileCopy(path, _join_path(wanted, relative), path.stat().st_size))
        else:
            skipped.append(str(path))
    return CopyPlan(tuple(found), tuple(skipped))


async def plan_download(
    files: VolumeFiles,
    source: VolumePath,
    target: str,
) -> CopyPlan:
    """Raises NotFound and UsageError."""
    wanted = clean_path(source.path)
    place = Path(target)
    sort, found = await _inspect_path(files, source.name, wanted, recursive=True)
    if sort == "missing":
        raise NotFound(
            f"{source.target.key} has no `/{wanted}`", hint=f"fleetctl ls {source.target.key}"
        )
    if sort == "file":
        return CopyPlan((_one_file(found[0], target),))
    if place.exists() and not place.is_dir():
        raise _in_the_way(source.shown, target)
    if place.is_dir() and not _means_contents(source.path):
        place = place / (wanted.rpartition("/")[2] or source.target.name)
    elif not place.exists():
        _parent_of(place)
    copies = tuple(
        FileCopy(place / clean_path(entry.path)[len(wanted) :].lstrip("/"), entry.path, entry.size)
        for entry in found
        if not entry.is_directory
    )
    for local in (place, *(one.local for one in copies)):
        refuse_links(local, Path(target))
    return CopyPlan(copies, directory=place)


def _one_file(entry: FileEntry, target: str) -> FileCopy:
    place = Path(target)
    if place.is_dir():
        place = place / clean_path(entry.path).rpartition("/")[2]
    elif target.endswith("/"):
        raise NotFound(f"there is no directory `{target}`", hint=f"mkdir -p {target}")
    _parent_of(place)
    return FileCopy(place, entry.path, entry.size)


def _parent_of(place: Path) -> None:
    if not place.absolute().parent.is_dir():
        raise NotFound(f"there is no directory `{place.parent}`", hint=f"mkdir -p {place.parent}")


async def _inspect_path(
    files: VolumeFiles,
    volume: str,
    path: str,
    *,
    recursive: bool = False,
) -> tuple[Sort, Sequence[FileEntry]]:
    """Returns the sort of `path`, and the entries that the provider lists."""
    try:
        found = await files.entries(volume, path, recursive=recursive)
    except NotFound:
        return "missing", ()
    if path and len(found) == 1 and found[0].path == path and not found[0].is_directory:
        return "file", found
    return "directory", found


def _walk_files(origin: Path) -> Iterator[tuple[Path, str]]:
    """Yields all but directories, each with its path relative to `origin`. Links are not
    followed."""
    for directory, names, files in os.walk(origin):
        links = [name for name in names if Path(directory, name).is_symlink()]
        names.sort()
        for name in sorted((*files, *links)):
            path = os.path.join(directory, name)
            yield Path(path), os.path.relpath(path, origin)


def _means_contents(path: str) -> bool:
    return path.endswith("/.") or path == "."


def _join_path(directory: str, name: str) -> str:
    if directory:
        return f"{directory}/{name}"
    return name


def _in_the_way(source: str, target: str) -> UsageError:
    return UsageError(
        f"`{source}` is a directory, and `{target}` is a file",
        hint="name a directory, or a path where nothing is",
    )
