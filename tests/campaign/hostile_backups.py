"""Malformed backups: each is refused with a message and without a change, or becomes a store."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from fleetctl.common.errors import FleetctlError
from fleetctl.controllers.model import Resource
from fleetctl.stores import backup
from fleetctl.stores.sqlite.store import open_store

Files = dict[str, bytes]
Spoil = Callable[[Files, Random], None]
NOW_S = 1_000.0
ODD: tuple[Any, ...] = (None, True, -1, 2**70, 1.5, "", "x", "../evil", [], {}, [[]], {"a": 1})


class FixedClock:
    def now_s(self) -> float:
        return NOW_S


def attack_by_backup(place: Path, dice: Random) -> str:
    file = place / "backup"
    file.write_bytes(_spoilt(place, dice))
    home = place / "new"
    try:
        backup.restore_backup(home, file, now_s=NOW_S)
    except FleetctlError as error:
        left = [it.name for it in home.rglob("*.db")] if home.exists() else []
        if left:
            return f"it was refused and left {left}"
        return "" if str(error).isprintable() else f"the message drives a terminal: {error!a}"
    except Exception as error:
        return f"restore: {type(error).__name__} came out: {error!a}"
    try:
        store = open_store(home, FixedClock())
        store.resources.list()
        store.close()
    except Exception as error:
        return f"it was put back and does not open: {type(error).__name__}: {error!a}"
    return ""


def _spoilt(place: Path, dice: Random) -> bytes:
    """A good backup with a fault or two."""
    store = open_store(place / "home", FixedClock())
    with store.transaction():
        row = Resource("u1", "BatchJob", "a", 1, 0, "{}", "{}", {}, {}, 5.0)
        store.resources.put(row, expected_version=None)
    store.close()
    backup.write_backup(place / "home", place / "good", now_s=NOW_S)
    files: Files = {}
    with tarfile.open(place / "good") as packed:
        for entry in packed:
            content = packed.extractfile(entry)
            assert content is not None
            files[entry.name] = content.read()
    for _ in range(dice.randint(1, 2)):
        dice.choice(_SPOILS)(files, dice)
    data = _packed(files, dice)
    if dice.random() < 0.15:
        data = data[: dice.randrange(len(data))]
    return gzip.compress(data, 1) if dice.random() < 0.15 else data


def _packed(files: Files, dice: Random) -> bytes:
    file = io.BytesIO()
    names = list(files)
    if dice.random() < 0.2:
        dice.shuffle(names)
    with tarfile.open(fileobj=file, mode="w") as made:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            if dice.random() < 0.08:
                entry.type, entry.size = dice.choice((tarfile.SYMTYPE, tarfile.LNKTYPE)), 0
                entry.linkname = dice.choice(("state.db", "/etc/passwd", name, "none"))
            if dice.random() < 0.05:
                entry.type, entry.size = dice.choice((tarfile.DIRTYPE, tarfile.FIFOTYPE)), 0
            made.addfile(entry, io.BytesIO(files[name]))
    return file.getvalue()


def _about(files: Files) -> dict[str, Any]:
    try:
        about = json.loads(files.get(backup.MANIFEST, b"{}"))
    except (ValueError, RecursionError):  # an earlier change spoilt it
        return {}
    return about if isinstance(about, dict) else {}


def _odd_field(files: Files, dice: Random) -> None:
    about = _about(files)
    about[dice.choice([*about, "other"])] = dice.choice(ODD)
    files[backup.MANIFEST] = json.dumps(about).encode()


def _odd_file_field(files: Files, dice: Random) -> None:
    about = _about(files)
    rows = about.get("files")
    if isinstance(rows, dict) and rows:
        name = dice.choice(list(rows))
        if dice.random() < 0.5 or not isinstance(rows[name], dict):
            rows[name] = dice.choice(ODD)
        else:
            rows[name][dice.choice(("bytes", "sha256"))] = dice.choice(ODD)
    files[backup.MANIFEST] = json.dumps(about).encode()


def _missing_field(files: Files, dice: Random) -> None:
    about = _about(files)
    if about:
        del about[dice.choice(list(about))]
    files[backup.MANIFEST] = json.dumps(about).encode()


def _odd_manifest(files: Files, dice: Random) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    odd = (b"", b"[]", b"null", b"\xff\xfe", b"{", deep, b'{"format": 1e999}', b" " * 1_000_000)
    files[backup.MANIFEST] = dice.choice(odd)


def _missing_file(files: Files, dice: Random) -> None:
    files.pop(dice.choice(list(files)), None)
    if not files:
        files["other"] = b""


def _other_name(files: Files, dice: Random) -> None:
    name = dice.choice(list(files))
    files[dice.choice(("../evil", "/tmp/evil", "x", "state.db-wal", "a/state.db"))] = files.pop(
        name
    )


def _spoilt_database(files: Files, dice: Random) -> None:
    """Changes bytes of a database; for half of the databases the hash is corrected."""
    names = [it for it in files if it.endswith(".db") and files[it]]
    if not names:
        return
    name = dice.choice(names)
    data = bytearray(files[name])
    for _ in range(dice.choice((1, 5, 200))):
        data[dice.randrange(len(data))] = dice.randrange(256)
    _replace(files, name, bytes(data[: dice.choice((len(data), len(data) // 2, 100, 0))]), dice)


def _other_database(files: Files, dice: Random) -> None:
    """A database that SQLite can read and that is not what it should be."""
    names = [it for it in files if it.endswith(".db")]
    if not names:
        return
    name = dice.choice(names)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        try:
            database.deserialize(files[name])
            tables = database.execute(
                "SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
            ).fetchall()
            database.execute("PRAGMA writable_schema = ON")
            for sql in dice.sample(_statements(tables, dice), 1):
                database.execute(sql)
            data = database.serialize()
        except (sqlite3.Error, MemoryError):  # the latter for a file of no bytes
            return  # it was spoilt before
    _replace(files, name, data, dice)


def _statements(tables: list[tuple[str, str]], dice: Random) -> list[str]:
    sort, name = dice.choice(tables) if tables else ("table", "none")
    return [
        f"DROP {sort} IF EXISTS {name}",
        f"DELETE FROM {name}" if sort == "table" else "PRAGMA user_version = 0",
        "PRAGMA user_version = 99",
        "PRAGMA user_version = -1",
        "PRAGMA application_id = 7",
        "CREATE TABLE birds (name TEXT)",
        "CREATE TRIGGER evil AFTER INSERT ON ledger BEGIN DELETE FROM ledger; END",
        f"ALTER TABLE {name} RENAME TO other" if sort == "table" else "PRAGMA user_version = 1",
        "UPDATE sqlite_master SET sql = 'CREATE TABLE x (y)' WHERE type = 'table'",
    ]


def _replace(files: Files, name: str, data: bytes, dice: Random) -> None:
    from hashlib import sha256

    files[name] = data
    about = _about(files)
    rows = about.get("files")
    if dice.random() < 0.8 and isinstance(rows, dict) and isinstance(rows.get(name), dict):
        rows[name] = {"bytes": len(data), "sha256": sha256(data).hexdigest()}
        files[backup.MANIFEST] = json.dumps(about).encode()


_SPOILS: tuple[Spoil, ...] = (
    _odd_field,
    _odd_file_field,
    _missing_field,
    _odd_manifest,
    _missing_file,
    _other_name,
    _spoilt_database,
    _spoilt_database,
    _other_database,
    _other_database,
)
