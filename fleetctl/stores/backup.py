"""A copy of the store in one file, and the store put back from it. Called by the verbs `backup` and
`restore`; no controller has to stop for a copy, and none may run while one is put back.

The file is a tar of the two databases and a manifest that says what they are. Both are of one
moment, checked after they were written, and appear under their name whole or not at all.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from fleetctl.common import home as places
from fleetctl.common.errors import NotFound, Refused, StoreError
from fleetctl.common.version import VERSION
from fleetctl.stores.codes import APPLICATION_ID, SCHEMA_VERSION
from fleetctl.stores.damage import damaged, gone, is_missed
from fleetctl.stores.errors import READ_FAILURES, explain, is_full
from fleetctl.stores.read.connecting import connect_readonly

FORMAT = 1
MANIFEST = "backup.json"
FILES = (places.STATE_DB, places.EVENTS_DB)
# Both copies begin at one moment of state.db; on a very busy store a commit may fall in between,
# and after so many tries the events are those of some milliseconds later.
TRIES = 50
_CHUNK_BYTES = 1 << 20
ROOM = ".fleetctl-backup-"  # begins the name of the directory in which a copy is made


@dataclass(frozen=True, slots=True)
class About:
    """What a backup says of itself."""

    format: int
    fleetctl: str
    schema: int
    store_id: str
    epoch: int
    copied_at_s: float
    objects: int
    files: dict[str, dict[str, int | str]]  # name -> bytes, sha256


def write(home: Path, file: Path, *, now_s: float) -> About:
    """Copy the store of `home` to `file`. Raises StoreError, NotFound and Refused; then nothing is
    there that was not there before.
    """
    _must_not_be_another(file)
    try:
        with tempfile.TemporaryDirectory(prefix=ROOM, dir=file.parent) as folder:
            made = Path(folder)
            _copy_both(home, made)
            for path in sorted(made.glob("*.db")):
                if finding := _finding(path):
                    raise damaged(home / places.STORE / path.name, finding)
            about = _about(made, now_s)
            _pack(made, about, fresh := made / "whole.tar")
            check(fresh, made / "again")
            fresh.replace(file)
            _sync(file.parent)
    except OSError as error:
        raise _unwritable(file, error) from error
    return about


def read(file: Path) -> About:
    """What the backup says of itself. Raises NotFound for no file, Refused for what is none."""
    try:
        with tarfile.open(file) as packed:
            member = packed.extractfile(MANIFEST)
            if member is None:
                raise _no_backup(file)
            document = json.loads(member.read())
            about = About(**document)
    except FileNotFoundError:
        raise NotFound(f"there is no file `{file}`") from None
    except (tarfile.TarError, KeyError, ValueError, TypeError) as error:
        raise _no_backup(file) from error
    if about.format > FORMAT or about.schema > SCHEMA_VERSION:
        raise Refused(
            f"`{file}` was written by fleetctl {about.fleetctl}, which is newer than this one",
            hint="use that version, or a later one; nothing was changed",
        )
    return about


def check(file: Path, into: Path) -> About:
    """Unpack the databases into a new directory and look at every page of them. Raises Refused for
    a file that is not what it says.
    """
    about = read(file)
    into.mkdir(mode=0o700)
    with tarfile.open(file) as packed:
        for name, expected in about.files.items():
            if name not in {Path(one).name for one in FILES}:
                raise _no_backup(file)
            source = packed.extractfile(name)
            if source is None:
                raise _no_backup(file)
            seen = sha256()
            (into / name).touch(mode=0o600, exist_ok=False)
            with (into / name).open("wb") as target:
                while part := source.read(_CHUNK_BYTES):
                    seen.update(part)
                    target.write(part)
                target.flush()
                os.fsync(target.fileno())
            whole = seen.hexdigest() == expected["sha256"]
            finding = _finding(into / name) if whole else "it is not what was written"
            if finding:
                raise Refused(
                    f"`{file}` is damaged: `{name}`: {finding}",
                    hint="take another backup; nothing was changed",
                )
    if _identity(into)[0] != about.store_id:
        raise _no_backup(file)
    return about


def note_newest(home: Path, file: Path | str, about: About) -> bool:
    """Remember where the newest backup is, for the day on which the store is lost. False: the home
    cannot be written, and a message will not know of it.
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
            raise gone(home, store_id)
        raise NotFound(f"there is no store in `{home}` yet", hint="the first `apply` makes one")
    events = connect_readonly(home / places.EVENTS_DB)
    try:
        with closing(state):
            _begin_together(home, state, events)
            _copy(state, into / Path(places.STATE_DB).name)
            if events is not None:
                _copy(events, into / Path(places.EVENTS_DB).name)
    except READ_FAILURES as error:
        raise explain(error, home / places.STATE_DB) from error
    finally:
        if events is not None:
            events.close()


def _begin_together(
    home: Path, state: sqlite3.Connection, events: sqlite3.Connection | None
) -> None:
    """Both begin to read; what is committed from here on neither sees."""
    watch = connect_readonly(home / places.STATE_DB)
    if watch is None:
        raise gone(home, is_missed(home))
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


def _copy(database: sqlite3.Connection, to: Path) -> None:
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


def _about(folder: Path, now_s: float) -> About:
    files: dict[str, dict[str, int | str]] = {}
    for path in sorted(folder.glob("*.db")):
        files[path.name] = {"bytes": path.stat().st_size, "sha256": _digest(path)}
    store_id, epoch, objects = _identity(folder)
    return About(FORMAT, VERSION, SCHEMA_VERSION, store_id, epoch, now_s, objects, files)


def _identity(folder: Path) -> tuple[str, int, int]:
    path = folder / Path(places.STATE_DB).name
    with closing(sqlite3.connect(path)) as state:
        store_id, epoch = state.execute("SELECT store_id, epoch FROM store").fetchone()
        (objects,) = state.execute("SELECT count(*) FROM resources").fetchone()
    return store_id, epoch, objects


def _finding(path: Path) -> str:
    """What is wrong with a database; empty when every page of it is sound."""
    try:
        with closing(sqlite3.connect(path)) as database:
            found = str(database.execute("PRAGMA integrity_check(1)").fetchone()[0])
            ours = database.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    except READ_FAILURES as error:
        return str(error)
    if not ours:
        return "it is a database of another program"
    return "" if found == "ok" else " ".join(found.split())


def _pack(folder: Path, about: About, to: Path) -> None:
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps(asdict(about), indent=2), encoding="utf-8")
    with to.open("xb") as target:
        to.chmod(0o600)
        with tarfile.open(fileobj=target, mode="w") as packed:
            for name in (MANIFEST, *about.files):
                packed.add(folder / name, arcname=name)
        target.flush()
        os.fsync(target.fileno())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        seen = sha256()
        while part := file.read(_CHUNK_BYTES):
            seen.update(part)
    return seen.hexdigest()


def _must_not_be_another(file: Path) -> None:
    """An older backup gives its name to the newer one; nothing else does."""
    if not os.path.lexists(file):
        return
    try:
        read(file)
    except (Refused, OSError):
        raise Refused(
            f"`{file}` is there, and is not a backup of fleetctl", hint="choose another name"
        ) from None


def _no_backup(file: Path) -> Refused:
    return Refused(f"`{file}` is not a backup of a store", hint="`fleetctl backup FILE` writes one")


def _unwritable(file: Path, error: OSError) -> StoreError:
    return StoreError(
        f"the backup `{file}` cannot be written: {error.strerror or error}",
        hint="name a file in a directory that you can write, on a disk with room",
    )


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# -- putting back ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restored:
    """aside: where the files are that were there before; None where there were none."""

    about: About
    aside: Path | None


def restore(home: Path, file: Path, *, now_s: float, replace: bool = False) -> Restored:
    """Put the store of `file` into `home`. Raises Refused for another store's file unless
    `replace`, StoreError while a controller runs; then nothing was changed.

    Killed half-way it leaves a home whose store is missed, or one of the two; again is right.
    """
    from fleetctl.stores import state_dir

    about = read(file)
    marker = state_dir.read_marker(home)
    if marker is not None and marker.store_id != about.store_id and not replace:
        raise Refused(
            f"`{home}` is the home of store `{marker.store_id}`, and `{file}` is a backup of store "
            f"`{about.store_id}`",
            hint="set FLEETCTL_HOME to a new directory; --replace puts it here all the same",
        )
    store = state_dir.prepare(home)
    lock = state_dir.lock(home)
    fresh = store / "restore.new"
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        about = check(file, fresh)
        aside = _set_aside(home, store, now_s)
        _note_restored(home, about, now_s)
        for name in about.files:
            (fresh / name).replace(store / name)
        _sync(store)
        same = marker is not None and marker.store_id == about.store_id
        known = marker.epoch if marker is not None and same else 0
        state_dir.write_marker(home, state_dir.Marker(about.store_id, max(known, about.epoch)))
        return Restored(about, aside)
    except OSError as error:
        raise StoreError(
            f"the store in `{home}` cannot be put back: {error.strerror or error}",
            hint="mend that, and run the same command again",
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        lock.release()


def _set_aside(home: Path, store: Path, now_s: float) -> Path | None:
    """What is there goes to a directory of its own. The database goes before its log: a log that
    is left alone is nothing, a database without its log is an older one.
    """
    names = [Path(file).name + tail for file in FILES for tail in ("", "-wal", "-shm")]
    there = [name for name in names if os.path.lexists(store / name)]
    if not there:
        return None
    aside = Path(tempfile.mkdtemp(prefix=f"store-before-restore-{now_s:.0f}-", dir=home))
    for name in there:
        (store / name).replace(aside / name)
    _sync(store)
    _sync(aside)
    return aside


def _note_restored(home: Path, about: About, now_s: float) -> None:
    """Tell the next controller that what began after the copy is not in it. See
    adoption/recover.py.
    """
    path = home / places.RESTORED
    fresh = path.with_name(path.name + ".new")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump({"copied_at_s": about.copied_at_s, "restored_at_s": now_s}, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    _sync(home)
