"""Writes a backup to a target that a user named, and fetches one from it. Called by the verbs
`backup` and `restore`; the controller runs `backup` when its schedule requires it.

A file or directory of this machine needs no package; `file://` is the same. All else goes through
fsspec.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleetctl.common.errors import FleetctlError, NotFound, Refused, StoreError
from fleetctl.stores import backup
from fleetctl.stores.backup import BackupManifest
from fleetctl.stores.copies.backup_names import (
    BackupName,
    list_partials,
    name_for,
    ours_among,
    too_many,
)
from fleetctl.stores.copies.remote_directory import RemoteDirectory
from fleetctl.stores.read.reader import Reader

FILE = "file://"
ROOM = ".backup-"  # begins the name of a directory for a copy on its way
PARTIAL_S = 86_400.0  # no copy is on its way for so long


@dataclass(frozen=True, slots=True)
class WrittenBackup:
    """url: of the backup, an absolute path or a URL. dropped: names of removed older ones. remark:
    why other surplus backups are still there; empty where all were removed.
    """

    url: str
    bytes: int
    about: BackupManifest
    dropped: Sequence[str] = ()
    remark: str = ""


def is_url(where: str) -> bool:
    return "://" in where and not where.startswith(FILE)


def write_copy(
    home: Path,
    where: str,
    *,
    now_s: float,
    keep: int | None = None,
) -> WrittenBackup:
    """Backs up to a file, or to a directory under a name of ours; a URL that ends with our suffix
    is that of a file. keep: of a directory, how many of this store's own stay. Raises
    FleetctlError; then no new file counts as a backup.
    """
    if is_url(where):
        return _write_remote(home, where, now_s, keep)
    path = _local_path(where)
    if not (path.is_dir() or where.endswith("/")):
        if keep is not None:
            raise Refused(
                f"`{where}` is one file, and `keep` counts those of a directory",
                hint=f"make the directory: mkdir -p {where}",
            )
        about = backup.write_backup(home, path, now_s=now_s)
        return WrittenBackup(str(path.absolute()), path.stat().st_size, about)
    try:
        path.mkdir(
            mode=0o700,
            parents=True,
            exist_ok=True,
        )
        _remove_partials(path, backup.ROOM, time.time())
        file = path / name_for(_store_id(home), now_s)
        about = backup.write_backup(home, file, now_s=now_s)
        there = [it.name for it in path.iterdir()]
        dropped = too_many(there, about.store_id, keep or 1 << 30, fresh=file.name)
    except OSError as error:
        raise StoreError(
            f"the backup in `{path}` cannot be written: {error.strerror or error}",
            hint="name a directory that you can write, on a disk with room",
        ) from error
    went, remark = _let_go(dropped, lambda name: (path / name).unlink(missing_ok=True))
    return WrittenBackup(
        str(file.absolute()),
        file.stat().st_size,
        about,
        went,
        remark,
    )


def _write_remote(
    home: Path,
    where: str,
    now_s: float,
    keep: int | None,
) -> WrittenBackup:
    top, name = _split_url(where)
    if name and keep is not None:
        raise Refused(
            f"`{where}` is one file, and `keep` counts those of a directory", hint=f"write `{top}/`"
        )
    remote = RemoteDirectory(top)
    with _make_temp_dir(home) as folder:
        file = folder / "whole"
        about = backup.write_backup(home, file, now_s=now_s)
        name = name or name_for(about.store_id, now_s)
        there = remote.names()
        remote.put(file, name)
        size = file.stat().st_size
    # Only now: older ones are surplus because the new one exists.
    dropped = too_many({*there, name}, about.store_id, keep or 1 << 30, fresh=name)
    halves = list_partials(there, about.store_id, now_s - PARTIAL_S)
    went, remark = _let_go([*dropped, *halves], remote.remove)
    return WrittenBackup(
        remote.of(name),
        size,
        about,
        [it for it in went if it in dropped],
        remark,
    )


def _let_go(names: Sequence[str], remove: Callable[[str], None]) -> tuple[list[str], str]:
    """Returns the removed names, and why some remain. The new backup counts in any case: if it were
    repeated for that, their number would grow.
    """
    went: list[str] = []
    for name in names:
        try:
            remove(name)
        except (FleetctlError, OSError) as error:
            return went, f"older backups cannot be deleted: {error}"
        went.append(name)
    return went, ""


@contextmanager
def fetch_copy(home: Path, where: str) -> Iterator[Path]:
    """The backup at `where` as a file of this machine: of a directory the newest one in it. Raises
    NotFound, Refused and Unavailable.
    """
    if not is_url(where):
        path = _local_path(where)
        if path.is_dir():
            path = path / _choose_newest([it.name for it in path.iterdir()], where).name
        yield path
        return
    top, name = _split_url(where)
    remote = RemoteDirectory(top)
    name = name or _choose_newest(remote.names(), where).name
    with _make_temp_dir(home) as folder:
        remote.fetch(name, folder / name)
        yield folder / name


def _choose_newest(names: Sequence[str], where: str) -> BackupName:
    found = ours_among(names)
    if not found:
        raise NotFound(f"there is no backup in `{where}`", hint="name the file itself")
    stores = {it.store for it in found}
    if len(stores) > 1:
        raise Refused(
            f"`{where}` has backups of {len(stores)} stores",
            hint=f"name the file: {where.rstrip('/')}/{found[-1].name}",
        )
    return found[-1]


def _split_url(url: str) -> tuple[str, str]:
    """Returns (directory, name of the file in it, or empty)"""
    top, _, last = url.rpartition("/")
    if last.endswith(".backup"):
        return (top, last)
    return (url.rstrip("/"), "")


def _local_path(where: str) -> Path:
    return Path(where.removeprefix(FILE)).expanduser()


def _store_id(home: Path) -> str:
    with Reader(home) as reader:
        store_id = reader.store_id()
    if not store_id:
        raise NotFound(f"there is no store in `{home}` yet", hint="the first `apply` makes one")
    return store_id


@contextmanager
def _make_temp_dir(home: Path) -> Iterator[Path]:
    """Makes a directory for a copy that comes or goes; removed afterwards."""
    try:
        home.mkdir(
            mode=0o700,
            parents=True,
            exist_ok=True,
        )
        _remove_partials(home, ROOM, time.time())
        with tempfile.TemporaryDirectory(prefix=ROOM, dir=home) as folder:
            yield Path(folder)
    except OSError as error:
        raise StoreError(
            f"a copy of the store finds no room in `{home}`: {error.strerror or error}",
            hint="free some space there",
        ) from error


def _remove_partials(
    top: Path,
    prefix: str,
    now_s: float,
) -> None:
    """Removes the partial files of processes that were killed while they copied. Raises OSError."""
    for it in top.iterdir():
        if it.name.startswith(prefix) and it.stat().st_mtime < now_s - PARTIAL_S:
            shutil.rmtree(it, ignore_errors=True)
