"""Stores the waits of agents that outlive their request, so that a handle still holds after its
client came back, or its server was started again.

A wait is no work: its row names objects by their uids, and its state follows from theirs. Used by
fleetctl/agents. A file of its own, which many servers of a state directory may write.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from fleetctl.common.state_paths import WAITS_DB
from fleetctl.stores import queries
from fleetctl.stores.side_file import SideFile

VERSION = 1  # user_version of the file
SCHEMA = "waits_schema.sql"
HANDLE_BYTES = 32
WORKING, COMPLETED, CANCELLED = "working", "completed", "cancelled"
TTL_S = 7 * 86_400.0  # longer than the longest jobs that people leave to an agent; a guess
EXPIRED_KEPT_S = 7 * 86_400.0  # a handle that comes late gets the true reason
OWN_WORKING_MAX = 100  # of an owner; more is a loop that has gone wrong
OWN_MAX = 1000  # of an owner; beyond it the oldest that ended go
ALL_MAX = 10_000

_COLUMNS = (
    "owner, request, created_at_s, expires_at_s, until_s, updated_at_s, state, message, reply"
)


class WaitRow(NamedTuple):
    """A wait. digest: of its handle; request: of the API's `wait`; reply: of the same, None until
    it has ended."""

    digest: str
    owner: str
    request: Mapping[str, Any]
    created_at_s: float
    expires_at_s: float
    until_s: float | None
    updated_at_s: float
    state: str
    message: str
    reply: Mapping[str, Any] | None


class WaitStore:
    """The file. Its methods raise StoreError where it cannot be used."""

    def __init__(self, home: Path) -> None:
        self._file = SideFile(
            home, WAITS_DB, lambda: queries.read_statements(SCHEMA), version=VERSION
        )

    def add(
        self,
        owner: str,
        request: Mapping[str, Any],
        message: str,
        *,
        now_s: float,
        until_s: float | None,
    ) -> tuple[WaitRow, str] | None:
        """Returns a new wait, which is stored by then, and its handle, which is stored nowhere;
        None where OWN_WORKING_MAX of the owner wait, or ALL_MAX of all are stored."""
        handle = secrets.token_urlsafe(HANDLE_BYTES)
        digest = _digest_handle(handle)
        row = WaitRow(
            digest, owner, request, now_s, now_s + TTL_S, until_s, now_s, WORKING, message, None
        )
        values = (digest, owner, json.dumps(request), *row[3:])
        with self._file.open_writing() as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("DELETE FROM waits WHERE expires_at_s < ?", (now_s - EXPIRED_KEPT_S,))
            database.execute(
                "DELETE FROM waits WHERE digest IN (SELECT digest FROM waits WHERE owner = ?1"
                " AND (state != ?2 OR expires_at_s <= ?3)"
                " ORDER BY created_at_s DESC LIMIT -1 OFFSET ?4)",
                (owner, WORKING, now_s, OWN_MAX - OWN_WORKING_MAX - 1),
            )
            added = database.execute(
                f"INSERT INTO waits (digest, {_COLUMNS})"  # noqa: S608 - our own columns
                " SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10"
                " WHERE (SELECT count(*) FROM waits WHERE owner = ?2 AND state = ?8"
                " AND expires_at_s > ?4) < ?11 AND (SELECT count(*) FROM waits) < ?12",
                (*values, OWN_WORKING_MAX, ALL_MAX),
            ).rowcount
            database.execute("COMMIT")
        return (row, handle) if added else None

    def find(self, handle: str, owner: str) -> WaitRow | None:
        """Returns a wait of this owner; None for every other handle."""
        return self._read_one(_digest_handle(handle), owner)

    def list_working(self, owner: str, now_s: float) -> list[WaitRow]:
        """Returns the waits of an owner that have not ended, the oldest first."""
        return self._read(
            "owner = ? AND state = ? AND expires_at_s > ? ORDER BY created_at_s",
            (owner, WORKING, now_s),
        )

    def change(
        self,
        row: WaitRow,
        state: str,
        message: str,
        reply: Mapping[str, Any] | None,
        *,
        now_s: float,
    ) -> WaitRow:
        """Stores a new state of a wait, and returns the wait; one that has ended stays as it is,
        whoever ended it."""
        text = None if reply is None else json.dumps(reply)
        with self._file.open_writing() as database:
            database.execute(
                "UPDATE waits SET state = ?, message = ?, reply = ?, updated_at_s = ?"
                " WHERE digest = ? AND state = ?",
                (state, message, text, now_s, row.digest, WORKING),
            )
        return self._read_one(row.digest, row.owner) or row

    def _read_one(self, digest: str, owner: str) -> WaitRow | None:
        return next(iter(self._read("digest = ? AND owner = ?", (digest, owner))), None)

    def _read(self, condition: str, values: tuple[object, ...]) -> list[WaitRow]:
        query = f"SELECT digest, {_COLUMNS} FROM waits WHERE {condition}"  # noqa: S608 - our own
        return [_build_row(found) for found in self._file.read(query, values)]


def _build_row(found: Sequence[Any]) -> WaitRow:
    digest, owner, request, created_s, expires_s, until_s, updated_s, state, message, reply = found
    return WaitRow(
        digest,
        owner,
        json.loads(request),
        created_s,
        expires_s,
        until_s,
        updated_s,
        state,
        message,
        None if reply is None else json.loads(reply),
    )


def _digest_handle(handle: str) -> str:
    return sha256(handle.encode("utf-8", "surrogatepass")).hexdigest()
