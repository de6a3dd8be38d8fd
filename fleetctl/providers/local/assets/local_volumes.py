"""Volumes of provider `local`, directories of this machine: their files for `cp`, `ls` and `rm`,
and what is removed with them on disk.

Links in a volume are never followed out of it: a task may have made them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.volume_files import (
    CONTENT_LIMITS,
    FileCopy,
    FileEntry,
    Tell,
    VolumeFiles,
    clean_path,
    contents_too_large,
    contents_too_slow,
    contents_unread,
    is_a_directory,
    path_missing,
)
from fleetctl.providers.local import supervisor_locks
from fleetctl.providers.local.assets.local_sizes import total_bytes
from fleetctl.providers.local.local_layout import LocalLayout, uid_of
from fleetctl.providers.local.supervisor.isolation import mounts
from fleetctl.providers.local.supervisor.run.cleaning import remove_tree
from fleetctl.providers.machines.shipped.file_digests import (
    TooMuchContent,
    TooSlowContent,
    digests_of,
)
from fleetctl.providers.paths import make_private
from fleetctl.providers.rundir.kept_outputs import contents_of, release_contents

LEAVE_S = 10.0  # for a supervisor without runs to leave after it was asked to
PAUSE_S = 0.02

PIECE_BYTES = 1024**2
LOOKED_AT_MAX = 1_000_000  # files of which a size is still added up


def delete_volume(layout: LocalLayout, name: str) -> None:
    """Deletes a volume. It is renamed first, so that a crash leaves it whole or gone."""
    path = layout.volume(name)
    doomed = path.with_name(f".removing-{name}")
    for one in (doomed, path):
        if one is path and path.exists():
            path.rename(doomed)
        if doomed.exists():
            remove_tree(str(doomed))
    if doomed.exists():
        raise Unavailable(f"volume `{name}` cannot be removed completely", hint=f"look at {doomed}")


def remove_scratch(
    layout: LocalLayout,
    uid: str,
    keep_logs: bool,
) -> None:
    """Deletes work directories and supervisors of a resource, and journals and logs unless they are
    kept.
    """
    names = os.listdir(layout.supervisors) if layout.supervisors.exists() else []
    for name in names:
        if uid_of(name) == uid:
            _wait_until_free(layout, name)
            remove_tree(str(layout.supervisor(name)))
            mounts.remove_names(str(layout.supervisor(name)))
    job = layout.job(uid)
    contents = set() if keep_logs else contents_of(job)
    for doomed in (layout.work(uid), layout.inputs(uid)) if keep_logs else (job,):
        if doomed.exists():
            remove_tree(str(doomed))
    release_contents(job.parents[1], contents)
    if keep_logs or not job.exists():
        return
    raise Unavailable(
        f"the scratch space of `{uid}` cannot be removed completely", hint=f"look at {job}"
    )


def _wait_until_free(layout: LocalLayout, name: str) -> None:
    deadline = time.monotonic() + LEAVE_S
    while not supervisor_locks.lock_is_free(layout.supervisor(name)):
        if time.monotonic() > deadline:
            raise Unavailable(f"supervisor `{name}` still runs something", retry_after_s=1.0)
        time.sleep(PAUSE_S)


class LocalFiles:
    def __init__(
        self,
        home: Path,
        account: Account,
        *,
        store_id: str = "",
    ) -> None:
        del account, store_id  # this machine is one, and needs no sandbox for a look
        self._layout = LocalLayout(home)

    async def entries(
        self,
        volume: str,
        path: str,
        *,
        recursive: bool = False,
        contents: str = "",
    ) -> Sequence[FileEntry]:
        found = await asyncio.to_thread(self._entries, volume, clean_path(path), recursive)
        if not contents:
            return found
        top = self._layout.volume(volume)
        return await asyncio.to_thread(_read_contents, top, volume, found, contents)

    async def put(
        self,
        volume: str,
        files: Sequence[FileCopy],
        *,
        tell: Tell,
    ) -> None:
        top = make_private(self._layout.volume(volume))
        for one in files:
            target = _resolve_inside(top, clean_path(one.remote))
            await asyncio.to_thread(
                _copy_file,
                one.local,
                target,
                tell,
                make_parent=True,
            )

    async def get(
        self,
        volume: str,
        files: Sequence[FileCopy],
        *,
        tell: Tell,
    ) -> None:
        top = self._layout.volume(volume)
        for one in files:
            source = _resolve_inside(top, clean_path(one.remote))
            if not source.is_file():
                raise path_missing(volume, one.remote)
            await asyncio.to_thread(_copy_file, source, one.local, tell)

    async def remove(
        self,
        volume: str,
        path: str,
        *,
        recursive: bool = False,
    ) -> None:
        top = self._layout.volume(volume)
        wanted = clean_path(path)
        # The link itself goes, not what it leads to.
        parent, _, name = wanted.rpartition("/")
        target = _resolve_inside(top, parent) / name
        if not os.path.lexists(target) or not wanted:
            raise path_missing(volume, path)
        if target.is_symlink() or not target.is_dir():
            target.unlink()
        elif recursive:
            await asyncio.to_thread(shutil.rmtree, target)
        else:
            raise is_a_directory(path)

    async def size(self, volume: str) -> int | None:
        return await asyncio.to_thread(total_bytes, self._layout.volume(volume), LOOKED_AT_MAX)

    def _entries(
        self,
        volume: str,
        path: str,
        recursive: bool,
    ) -> list[FileEntry]:
        top = self._layout.volume(volume)
        target = _resolve_inside(top, path)
        if path and target.is_file():
            return [_file_entry(path, target.stat())]
        if path and not target.is_dir():
            raise path_missing(volume, path)
        if target.is_dir():
            return sorted(_list_below(target, path, recursive))
        return []


def _list_below(
    directory: Path,
    path: str,
    recursive: bool,
) -> Iterator[FileEntry]:
    with os.scandir(directory) as found:
        for one in found:
            relative = os.path.join(path, one.name)
            about = one.stat(follow_symlinks=False)
            if stat.S_ISDIR(about.st_mode) or stat.S_ISREG(about.st_mode):
                yield _file_entry(relative, about)
            if recursive and stat.S_ISDIR(about.st_mode):
                yield from _list_below(Path(one.path), relative, recursive)


def _file_entry(path: str, about: os.stat_result) -> FileEntry:
    is_directory = stat.S_ISDIR(about.st_mode)
    return FileEntry(path, is_directory, 0 if is_directory else about.st_size, about.st_mtime)


def _read_contents(
    top: Path,
    volume: str,
    found: Sequence[FileEntry],
    names: str,
) -> list[FileEntry]:
    try:
        digests = digests_of(
            str(top),
            [(it.path, it.size) for it in found if not it.is_directory],
            names=names,
            limits=CONTENT_LIMITS,
        )
    except TooMuchContent:
        raise contents_too_large(volume) from None
    except TooSlowContent:
        raise contents_too_slow(volume) from None
    except OSError as error:
        raise contents_unread(volume) from error
    return [it._replace(digest=digests.get(it.path, "")) for it in found]


def _resolve_inside(top: Path, path: str) -> Path:
    """The real path of `path` in the volume. Raises Refused for one that a link leads out."""
    real = os.path.realpath(top / path)
    base = os.path.realpath(top)
    if real != base and not real.startswith(base + os.sep):
        raise Refused(
            f"`{path}` is a link that leads out of the volume",
            hint="name what it leads to, or remove the link",
        )
    return Path(real)


def _copy_file(
    source: Path,
    target: Path,
    tell: Tell,
    *,
    make_parent: bool = False,
) -> None:
    """Copies beside the target first, then renames. Raises Refused where a directory is in the
    way.
    """
    if make_parent:
        target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        raise Refused(
            f"`{target.name}` is a directory, and a file would replace it",
            hint="name another path",
        )
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with source.open("rb") as reader, temporary.open("wb") as writer:
            while piece := reader.read(PIECE_BYTES):
                writer.write(piece)
                tell(len(piece))
        shutil.copymode(source, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


_: type[VolumeFiles] = LocalFiles
