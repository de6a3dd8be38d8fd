"""Files that are no backups, or that mean ill: each is refused in words, and nothing is changed."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.stores import backup
from fleetctl.stores.sqlite.store import open_store
from tests.unit.stores.test_stores_backup import NOW_S, FixedClock, names, put

Members = dict[str, bytes | tarfile.TarInfo]


def parts(file: Path) -> tuple[dict[str, Any], Members]:
    with tarfile.open(file) as packed:
        members: Members = {}
        for entry in packed:
            content = packed.extractfile(entry)
            assert content is not None
            members[entry.name] = content.read()
    return json.loads(bytes(members["backup.json"])), members  # type: ignore[arg-type]


def packed(about: object, members: Members) -> bytes:
    text = about if isinstance(about, bytes) else json.dumps(about).encode()
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for name, content in {**members, "backup.json": text}.items():
            if isinstance(content, tarfile.TarInfo):
                made.addfile(content)
                continue
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def field(name: str, value: object) -> Callable[[dict[str, Any], Members], bytes]:
    return lambda about, members: packed({**about, name: value}, members)


def without(name: str) -> Callable[[dict[str, Any], Members], bytes]:
    def made(about: dict[str, Any], members: Members) -> bytes:
        return packed(about, {key: it for key, it in members.items() if key != name})

    return made


def linked(about: dict[str, Any], members: Members) -> bytes:
    entry = tarfile.TarInfo("state.db")
    entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return packed(about, {**members, "state.db": entry})


def holed(about: dict[str, Any], members: Members) -> bytes:
    """A database of terabytes that takes no room in the archive."""
    entry = tarfile.TarInfo("state.db")
    entry.type, entry.size = tarfile.GNUTYPE_SPARSE, 0
    return packed(about, {**members, "state.db": entry})


def altered(*statements: str, file: str = "state.db") -> Callable[[dict[str, Any], Members], bytes]:
    """A sound database, and a manifest that fits it, after these statements."""

    def made(about: dict[str, Any], members: Members) -> bytes:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            database.deserialize(bytes(members[file]))  # type: ignore[arg-type]
            for statement in statements:
                database.execute(statement)
            data = database.serialize()
        about["files"][file] = {
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        return packed(about, {**members, file: data})

    return made


CASES: dict[str, Callable[[dict[str, Any], Members], bytes]] = {
    "an empty file": lambda about, members: b"",
    "no archive": lambda about, members: b"not a tar" * 1000,
    "half of one": lambda about, members: packed(about, members)[:3000],
    "compressed": lambda about, members: gzip.compress(packed(about, members)),
    "a bomb": lambda about, members: gzip.compress(bytes(64 << 20)),
    "no manifest": lambda about, members: packed(b"", {}),
    "a manifest that is a list": lambda about, members: packed([], members),
    "a manifest that is deep": lambda about, members: packed(b"[" * 20_000, members),
    "a manifest that is large": lambda about, members: packed(b" " * (1 << 20) + b"{}", members),
    "format": field("format", "1"),
    "schema": field("schema", [10]),
    "epoch of another type": field("epoch", "7"),
    "epoch beyond all": field("epoch", 1 << 70),
    "copied_at_s": field("copied_at_s", "yesterday"),
    "copied_at_s that is none": field("copied_at_s", float("nan")),
    "store_id": field("store_id", None),
    "another store": field("store_id", "0" * 32),
    "files that are a list": field("files", ["state.db"]),
    "no files": field("files", {}),
    "a file outside": field("files", {"state.db": {"sha256": ""}, "../evil": {"sha256": ""}}),
    "a file without a digest": field("files", {"state.db": {}}),
    "an unknown field": field("more", 1),
    "a database that is missing": without("state.db"),
    "a database that is a link": linked,
    "a database with holes": holed,
    "a database without a table": altered("DROP TABLE runs"),
    "a database without a column": altered("ALTER TABLE resources DROP COLUMN labels"),
    "a database without its row": altered("DELETE FROM store"),
    "a database of a newer version": altered("PRAGMA user_version = 99"),
    "a database of another program": altered("PRAGMA application_id = 1"),
    "events without a table": altered("DROP TABLE events", file="events.db"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_no_backup_is_refused_in_words_and_changes_nothing(
    tmp_path: Path, case: str
) -> None:
    home, file = tmp_path / "home", tmp_path / "b"
    put(home, "a")
    backup.write_backup(home, file, now_s=NOW_S)
    file.write_bytes(CASES[case](*parts(file)))
    before = sorted(it.name for it in tmp_path.rglob("*"))
    with pytest.raises(FleetctlError) as caught:
        backup.restore_backup(home, file, now_s=NOW_S, replace=True)
    assert isinstance(caught.value, Refused), caught.value
    assert names(home) == ["a"]
    assert sorted(it.name for it in tmp_path.rglob("*")) == before


def test_a_backup_that_was_packed_anew_is_taken(tmp_path: Path) -> None:
    put(tmp_path / "home", "a")
    backup.write_backup(tmp_path / "home", tmp_path / "b", now_s=NOW_S)
    (tmp_path / "b").write_bytes(packed(*parts(tmp_path / "b")))
    backup.restore_backup(tmp_path / "other", tmp_path / "b", now_s=NOW_S)
    open_store(tmp_path / "other", FixedClock()).close()
    assert names(tmp_path / "other") == ["a"]
