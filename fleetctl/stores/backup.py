"""Copies the store into one file, and restores the store from it. Called by the verbs `backup` and
`restore`; no controller has to stop for a copy, and none may run during a restore.

The file is a tar of the two databases and a manifest that describes them. Both show one moment,
checked after they were written, and appear under their name whole or not at all.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import sqlite3
import sys
import tarfile
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from fleetctl.common import state_paths as places
from fleetctl.common.errors import NotFound, Refused, StoreError
from fleetctl.common.version import VERSION
from fleetctl.stores.queries import APPLICATION_ID, SCHEMA_VERSION
from fleetctl.stores.read.connecting import connect_readonly
from fleetctl.stores.sqlite.database_files import find_missing_parts
from fleetctl.stores.sqlite_errors import (
    READ_FAILURES,
    damaged_error,
    explain_error,
    is_full,
    is_missed,
    missing_error,
)

FORMAT = 1
MANIFEST = "backup.json"
FILES = (places.STATE_DB, places.EVENTS_DB)
# Both copies begin at one moment of state.db; on a very busy store a commit may fall in between,
# and after this many tries the events are those of some milliseconds later.
TRIES = 50
_CHUNK_BYTES = 1 << 20
MANIFEST_BYTES_MAX = 64 * 1024
# Errors of reading a file that is no backup of ours.
_ODD = (tarfile.TarError, KeyError, ValueError, TypeError, RecursionError, EOFError, OverflowError)
ROOM = ".fleetctl-backup-"  # begins the name of the directory in which a copy is made


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """The manifest of a backup."""

    format: int
    fleetctl: str
    schema: int
    store_id: str
    epoch: int
    copied_at_s: float
    objects: int
    files: dict[str, dict[str, int | str]]  # name -> bytes, sha256


_TYPES: dict[str, type | tuple[type, ...]] = {
    "format": int,
    "fleetctl": str,
    "schema": int,
    "store_id": str,
    "epoch": int,
    "copied_at_s": (int, float),
    "objects": int,
    "files": dict,
}


def write_backup(
    home: Path,
    file: Path,
    *,
    now_s: float,
) -> BackupManifest:
    """Copies the store of `home` to `file`. Raises StoreError, NotFound and Refused; then no file
    was added.
    """
    _must_not_be_another(file)
    try:
        with tempfile.TemporaryDirectory(prefix=ROOM, dir=file.parent) as folder:
            made = Path(folder)
            _copy_both(home, made)
            for path in sorted(made.glob("*.db")):
                if finding := _find_damage(path):
                    raise damaged_error(home / places.STORE / path.name, finding)
            about = _build_manifest(made, now_s)
            _pack_files(made, about, fresh := made / "whole.tar")
            check_backup(fresh, made / "again")
            fresh.replace(file)
            _sync_directory(file.parent)
    except OSError as error:
        raise _unwritable_error(file, error) from error
    return about


def read_manifest(file: Path) -> BackupManifest:
    """Reads the manifest of the backup. Raises NotFound for a missing file, Refused for another
    file.
    """
    try:
        with _open_packed(file) as packed:
            text = _open_member(packed, MANIFEST, MANIFEST_BYTES_MAX).read()
            about = _read_manifest(json.loads(text))
    except FileNotFoundError:
        raise NotFound(f"there is no file `{file}`") from None
    except (IsADirectoryError, *_ODD) as error:
        raise _refuse_file(file) from error
    if about.format > FORMAT or about.schema > SCHEMA_VERSION:
        raise Refused(
            f"`{file}` was written by fleetctl {about.fleetctl}, which is newer than this one",
            hint="use that version, or a later one; nothing was changed",
        )
    return about


def check_backup(file: Path, into: Path) -> BackupManifest:
    """Unpacks the databases into a new directory and checks every page. Raises Refused for a file
    that differs from its manifest.
    """
    about = read_manifest(file)
    into.mkdir(mode=0o700)
    with _open_packed(file) as packed:
        for name, expected in about.files.items():
            try:
                digest = _unpack_database(packed, name, into / name)
            except _ODD as error:
                raise _refuse_file(file) from error
            whole = digest == expected["sha256"]
            finding = _find_damage(into / name) if whole else "it is not what was written"
            if finding:
                raise Refused(
                    f"`{file}` is damaged: `{name}`: {finding}",
                    hint="take another backup; nothing was changed",
                )
    try:
        same = _read_identity(into)[0] == about.store_id
    except (TypeError, sqlite3.Error) as error:  # no row, or one of other types
        raise _refuse_file(file) from error
    if not same:
        raise _refuse_file(file)
    return about


def _open_packed(file: Path) -> tarfile.TarFile:
    """Opens the file as `backup` packs it: not compressed, so that its size is fixed as it is
    read.
    """
    return tarfile.open(file, mode="r:")


def _open_member(
    packed: tarfile.TarFile,
    name: str,
    bytes_max: int,
) -> IO[bytes]:
    """Returns a regular file of the archive. Raises KeyError, ValueError and TarError."""
    about = packed.getmember(name)
    if not about.isreg() or about.issparse() or about.size > bytes_max:
        raise ValueError(f"`{name}` is no file of at most {bytes_max} bytes")
    member = packed.extractfile(about)
    assert member is not None
    return member


def _unpack_database(
    packed: tarfile.TarFile,
    name: str,
    to: Path,
) -> str:
    """Writes a database, durably; its SHA-256. Raises as `_member`."""
    source = _open_member(packed, name, sys.maxsize)
    seen = sha256()
    to.touch(mode=0o600, exist_ok=False)
    with to.open("wb") as target:
        while part := source.read(_CHUNK_BYTES):
            seen.update(part)
            target.write(part)
        target.flush()
        os.fsync(target.fileno())
    return seen.hexdigest()


def _read_manifest(document: Any) -> BackupManifest:
    """Returns the manifest of a backup, each field of its type. Raises ValueError and TypeError."""
    about = BackupManifest(**document)
    for name, sort in _TYPES.items():
        value = getattr(about, name)
        if not isinstance(value, sort) or isinstance(value, bool):
            raise TypeError(f"`{name}` is {value!r:.60}")
    names = {Path(one).name for one in FILES}
    if Path(places.STATE_DB).name not in about.files or not names >= set(about.files):
        raise ValueError("it has other files than a store")
    for expected in about.files.values():
        if not isinstance(expected, dict) or not isinstance(expected.get("sha256"), str):
            raise TypeError("a file has no digest")
    if not math.isfinite(about.copied_at_s) or not 0 <= about.epoch < 1 << 63:
        raise ValueError("its time or epoch is none")
    return about


def note_newest(
    home: Path,
    file: Path | str,
    about: BackupManifest,
) -> bool:
    """Records the path of the newest backup, for the day on which the store is lost. False: the
    state directory cannot be written, and a message will lack the path.
    """
    text = json.dumps({"file": str(file), "at_s": about.copied_at_s, "store": about.store_id})
    path = home / places.LAST_BACKUP
    try:
        path.with_name(path.name + ".new").write_text(text, encoding="utf-8")
        path.with_name(path.name + ".new").replace(path)
    except OSError:
        return False
    return True


def _copy_both(home: Path, into: Path) -> None:
    state = connect_readonly(home / places.STATE_DB)
    if state is None:
        if store_id := is_missed(home):
            raise missing_error(home, store_id)
        raise NotFound(f"there is no store in `{home}` yet", hint="the first `apply` makes one")
    events = connect_readonly(home / places.EVENTS_DB)
    try:
        with closing(state):
            _begin_together(home, state, events)
            _copy_database(state, into / Path(places.STATE_DB).name)
            if events is not None:
                _copy_database(events, into / Path(places.EVENTS_DB).name)
    except READ_FAILURES as error:
        raise explain_error(error, home / places.STATE_DB) from error
    finally:
        if events is not None:
            events.close()


def _begin_together(
    home: Path,
    state: sqlite3.Connection,
    events: sqlite3.Connection | None,
) -> None:
    """Begins a read on both; later commits are invisible to either."""
    watch = connect_readonly(home / places.STATE_DB)
    if watch is None:
        raise missing_error(home, is_missed(home))
    with closing(watch):
        for left in range(TRIES, 0, -1):
            before = watch.execute("PRAGMA data_version").fetchone()
            for database in (state, events):
                if database is not None:
                    database.execute("BEGIN")
                    database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if watch.execute("PRAGMA data_version").fetchone() == before or left == 1:
                return
            for database in (state, events):
                if database is not None:
                    database.execute("ROLLBACK")


def _copy_database(database: sqlite3.Connection, to: Path) -> None:
    to.touch(mode=0o600)
    with closing(sqlite3.connect(to, isolation_level=None)) as copy:
        try:
            database.backup(copy)
            # One file, without a log beside it; the store turns its log on again when it opens.
            copy.execute("PRAGMA journal_mode = DELETE").fetchone()
        except sqlite3.Error as error:
            if not is_full(error):
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
    database.execute("ROLLBACK")


def _build_manifest(folder: Path, now_s: float) -> BackupManifest:
    files: dict[str, dict[str, int | str]] = {}
    for path in sorted(folder.glob("*.db")):
        files[path.name] = {"bytes": path.stat().st_size, "sha256": _digest_file(path)}
    store_id, epoch, objects = _read_identity(folder)
    return BackupManifest(
        FORMAT,
        VERSION,
        SCHEMA_VERSION,
        store_id,
        epoch,
        now_s,
        objects,
        files,
    )


def _read_identity(folder: Path) -> tuple[str, int, int]:
    path = folder / Path(places.STATE_DB).name
    with closing(sqlite3.connect(path)) as state:
        store_id, epoch = state.execute("SELECT store_id, epoch FROM store").fetchone()
        (objects,) = state.execute("SELECT count(*) FROM resources").fetchone()
    return store_id, epoch, objects


def _find_damage(path: Path) -> str:
    """Returns the damage of a database; empty when every page is sound."""
    try:
        with closing(sqlite3.connect(path)) as database:
            found = str(database.execute("PRAGMA integrity_check(1)").fetchone()[0])
            ours = database.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
            lacking = find_missing_parts(database, events=path.name == Path(places.EVENTS_DB).name)
    except READ_FAILURES as error:
        return str(error)
    if not ours:
        return "it is a database of another program"
    if found == "ok":
        return lacking
    return " ".join(found.split())


def _pack_files(
    folder: Path,
    about: BackupManifest,
    to: Path,
) -> None:
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps(asdict(about), indent=2), encoding="utf-8")
    with to.open("xb") as target:
        to.chmod(0o600)
        with tarfile.open(fileobj=target, mode="w") as packed:
            for name in (MANIFEST, *about.files):
                packed.add(folder / name, arcname=name)
        target.flush()
        os.fsync(target.fileno())


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        seen = sha256()
        while part := file.read(_CHUNK_BYTES):
            seen.update(part)
    return seen.hexdigest()


def _must_not_be_another(file: Path) -> None:
    """Refuses to overwrite a file unless it is an older backup."""
    if not os.path.lexists(file):
        return
    try:
        read_manifest(file)
    except (Refused, OSError):
        raise Refused(
            f"`{file}` is there, and is not a backup of fleetctl", hint="choose another name"
        ) from None


def _refuse_file(file: Path) -> Refused:
    return Refused(f"`{file}` is not a backup of a store", hint="`fleetctl backup FILE` writes one")


def _unwritable_error(file: Path, error: OSError) -> StoreError:
    return StoreError(
        f"the backup `{file}` cannot be written: {error.strerror or error}",
        hint="name a file in a directory that you can write, on a disk with room",
    )


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# -- putting back ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """aside: where the earlier files are; None where there were none."""

    about: BackupManifest
    aside: Path | None


def restore_backup(
    home: Path,
    file: Path,
    *,
    now_s: float,
    replace: bool = False,
) -> RestoreResult:
    """Restores the store of `file` into `home`. Raises Refused for another store's file unless
    `replace`, StoreError while a controller runs; then the state directory is unchanged.

    Killed half-way it leaves a state directory whose store is missing, or one of the two databases;
    a second call repairs it.
    """
    from fleetctl.stores import state_dir

    about = read_manifest(file)
    marker = state_dir.read_marker(home)
    if marker is not None and marker.store_id != about.store_id and not replace:
        raise Refused(
            f"`{home}` is the state directory of store `{marker.store_id}`, and `{file}` is a"
            " backup of store "
            f"`{about.store_id}`",
            hint="set FLEETCTL_HOME to a new directory; --replace puts it here all the same",
        )
    store = state_dir.prepare_directory(home)
    lock = state_dir.lock_store(home)
    fresh = store / "restore.new"
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        about = check_backup(file, fresh)
        aside = _set_aside(home, store, now_s)
        (home / places.CHANGES).unlink(missing_ok=True)
        _note_restored(home, about, now_s)
        for name in about.files:
            (fresh / name).replace(store / name)
        _sync_directory(store)
        same = marker is not None and marker.store_id == about.store_id
        known = marker.epoch if marker is not None and same else 0
        state_dir.write_marker(home, state_dir.StoreMarker(about.store_id, max(known, about.epoch)))
        return RestoreResult(about, aside)
    except OSError as error:
        raise StoreError(
            f"the store in `{home}` cannot be put back: {error.strerror or error}",
            hint="fix that, and run the same command again",
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        lock.release()


def _set_aside(
    home: Path,
    store: Path,
    now_s: float,
) -> Path | None:
    """Moves the present files to a directory of their own. The database goes before its log: a log
    without its database is ignored, a database without its log is an older one.
    """
    names = [Path(file).name + tail for file in FILES for tail in ("", "-wal", "-shm")]
    there = [name for name in names if os.path.lexists(store / name)]
    if not there:
        return None
    aside = Path(tempfile.mkdtemp(prefix=f"store-before-restore-{now_s:.0f}-", dir=home))
    for name in there:
        (store / name).replace(aside / name)
    _sync_directory(store)
    _sync_directory(aside)
    return aside


def _note_restored(
    home: Path,
    about: BackupManifest,
    now_s: float,
) -> None:
    """Records for the next controller that runs begun after the copy are not in it. See
    adopt.py.
    """
    path = home / places.RESTORED
    fresh = path.with_name(path.name + ".new")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump({"copied_at_s": about.copied_at_s, "restored_at_s": now_s}, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    _sync_directory(home)
