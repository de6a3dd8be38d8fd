"""Copies between this machine and a volume: chooses the files and their targets by the rules of
`docker cp`.

Copies nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleetctl.cli.access.tar import refuse_links
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.task import VolumePath, files_of
from fleetctl.common.clock import RepeatTimer
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import byte_size, count_noun, escape_line
from fleetctl.providers.contract.volume_files import FileCopy, FileEntry, VolumeFiles, clean_path
from fleetctl.tracking.written_files import note_written

DRAW_EVERY_S = 0.1

Sort = Literal["file", "directory", "missing"]


async def copy_to_volume(
    source: str,
    target: VolumePath,
    screen: Screen,
) -> int:

    files = files_of(target, find_state_dir())
    plan = await plan_upload(files, source, target)
    for skipped in plan.skipped:
        screen.warn(f"{escape_line(skipped)} is left out")
    with _CopyProgress(plan.copies, screen) as progress:
        await files.put(target.name, plan.copies, tell=progress.tell)
    screen.data(_describe_copied(plan.copies, target.shown))
    return 0


async def copy_from_volume(
    source: VolumePath,
    target: str,
    screen: Screen,
) -> int:
    """Copies from a volume to this machine."""

    files = files_of(source, find_state_dir())
    plan = await plan_download(files, source, target)
    for one in plan.copies:
        one.local.parent.mkdir(parents=True, exist_ok=True)
    if plan.directory is not None:
        plan.directory.mkdir(exist_ok=True)
    with _CopyProgress(plan.copies, screen) as progress:
        await files.get(source.name, plan.copies, tell=progress.tell)
    note_written(one.local for one in plan.copies)
    screen.data(_describe_copied(plan.copies, str(Path(target))))
    return 0


def _describe_copied(copies: Sequence[FileCopy], to: str) -> str:
    total = byte_size(sum(one.size for one in copies))
    return f"copied {count_noun(len(copies), 'file')} ({total}) to {escape_line(to)}"


class _CopyProgress:
    """One line that is redrawn on a terminal; without a terminal there is no output."""

    def __init__(self, copies: Sequence[FileCopy], screen: Screen) -> None:
        self._total = sum(one.size for one in copies)
        self._done = 0
        self._screen = screen
        self._turn = RepeatTimer(DRAW_EVERY_S, first_s=DRAW_EVERY_S)

    def __enter__(self) -> _CopyProgress:
        return self

    def __exit__(self, *error: object) -> None:
        self._screen.close_line()

    def tell(self, count: int) -> None:
        self._done += count
        if self._screen.talk_is_terminal and self._turn.due():
            percent = 100 * self._done // max(1, self._total)
            done = byte_size(self._done)
            total = byte_size(self._total)
            self._screen.redraw(f"{done} of {total} ({percent}%)")


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
    """Plans which files to copy into a volume, and where to. Raises NotFound and UsageError."""
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
        raise _refuse_in_the_way(source, target.shown)
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
    """Plans which files to copy out of a volume, and to which paths. Raises NotFound and
    UsageError.
    """
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
        raise _refuse_in_the_way(source.shown, target)
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


def _refuse_in_the_way(source: str, target: str) -> UsageError:
    return UsageError(
        f"`{source}` is a directory, and `{target}` is a file",
        hint="name a directory, or a path where nothing is",
    )
