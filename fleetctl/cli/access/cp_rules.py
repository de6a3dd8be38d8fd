"""Which files a `cp` copies and where each goes, by the rules of `docker cp`. Copies nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleetctl.cli.targets.volume import VolumePlace
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.providers.contract.volume_files import Copy, FileEntry, VolumeFiles, clean

Sort = Literal["file", "directory", "missing"]


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """directory: one to make, for a source without files. skipped: what is neither a file nor a
    directory, or leads to a directory by a link.
    """

    copies: tuple[Copy, ...]
    skipped: tuple[str, ...] = ()
    directory: Path | None = None


async def uploads(files: VolumeFiles, source: str, target: VolumePlace) -> CopyPlan:
    """Raises NotFound and UsageError."""
    origin = Path(source)
    if not origin.exists():
        raise NotFound(f"there is no file or directory `{source}`")
    wanted = clean(target.path)
    sort, _ = await _look(files, target.name, wanted)
    if origin.is_file():
        into = sort == "directory" or target.path.endswith("/")
        place = _joined(wanted, origin.name) if into else wanted
        return CopyPlan((Copy(origin, place, origin.stat().st_size),))
    if sort == "file":
        raise _in_the_way(source, target.shown)
    if sort == "directory" and not _means_contents(source):
        wanted = _joined(wanted, origin.resolve().name)
    found, skipped = [], []
    for path, relative in _below(origin):
        if path.is_file():
            found.append(Copy(path, _joined(wanted, relative), path.stat().st_size))
        else:
            skipped.append(str(path))
    return CopyPlan(tuple(found), tuple(skipped))


async def downloads(files: VolumeFiles, source: VolumePlace, target: str) -> CopyPlan:
    """Raises NotFound and UsageError."""
    wanted, place = clean(source.path), Path(target)
    sort, found = await _look(files, source.name, wanted, recursive=True)
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
    copies = (
        Copy(place / clean(entry.path)[len(wanted) :].lstrip("/"), entry.path, entry.size)
        for entry in found
        if not entry.is_directory
    )
    return CopyPlan(tuple(copies), directory=place)


def _one_file(entry: FileEntry, target: str) -> Copy:
    place = Path(target)
    if place.is_dir():
        place = place / clean(entry.path).rpartition("/")[2]
    elif target.endswith("/"):
        raise NotFound(f"there is no directory `{target}`", hint=f"mkdir -p {target}")
    _parent_of(place)
    return Copy(place, entry.path, entry.size)


def _parent_of(place: Path) -> None:
    if not place.absolute().parent.is_dir():
        raise NotFound(f"there is no directory `{place.parent}`", hint=f"mkdir -p {place.parent}")


async def _look(
    files: VolumeFiles, volume: str, path: str, *, recursive: bool = False
) -> tuple[Sort, Sequence[FileEntry]]:
    """What is at `path`, and the entries that the provider told."""
    try:
        found = await files.entries(volume, path, recursive=recursive)
    except NotFound:
        return "missing", ()
    if path and len(found) == 1 and found[0].path == path and not found[0].is_directory:
        return "file", found
    return "directory", found


def _below(origin: Path) -> Iterator[tuple[Path, str]]:
    """All but directories, each with its path relative to `origin`. Links are not walked into."""
    for directory, names, files in os.walk(origin):
        links = [name for name in names if Path(directory, name).is_symlink()]
        names.sort()
        for name in sorted((*files, *links)):
            path = os.path.join(directory, name)
            yield Path(path), os.path.relpath(path, origin)


def _means_contents(path: str) -> bool:
    return path.endswith("/.") or path == "."


def _joined(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _in_the_way(source: str, target: str) -> UsageError:
    return UsageError(
        f"`{source}` is a directory, and `{target}` is a file",
        hint="name a directory, or a place where nothing is",
    )
