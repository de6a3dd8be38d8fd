"""Stores the tokens of a team's server, and the audit of its use: who changed, and who read logs.

Used by `fleetctl token` and `fleetctl audit`, and by the server (fleetctl/server). A file of its
own beside the store, so that no token is in a backup of work, and the server never writes the
store.
"""

from __future__ import annotations

import hmac
import secrets
import time
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.author import VIA
from fleetctl.common.errors import NotFound
from fleetctl.common.state_paths import ACCESS_DB
from fleetctl.stores import queries
from fleetctl.stores.side_file import SideFile

VERSION = 1  # user_version of the file
SCHEMA = "access_schema.sql"
PREFIX = "flt"  # so that scanners of repositories find a token that leaked
ID_CHARS = 8
SECRET_BYTES = 32
USE_EVERY_S = 60.0  # a busy token is not written down at every request
EVERYWHERE = "*"
ROLES = ("viewer", "editor", "admin")  # each may do all that the one before may
AUDIT_ROWS_MAX = 10_000  # in one reading

_COLUMNS = (
    "id, user, role, namespace, created_at_s, expires_at_s, revoked_at_s, used_at_s"  # as TokenRow
)


class TokenRow(NamedTuple):
    """A token as people may see it: its secret is stored nowhere."""

    id: str
    user: str
    role: str
    namespace: str  # EVERYWHERE: all
    created_at_s: float
    expires_at_s: float | None = None
    revoked_at_s: float | None = None
    used_at_s: float | None = None

    def holds(self, now_s: float) -> bool:
        expired = self.expires_at_s is not None and self.expires_at_s <= now_s
        return self.revoked_at_s is None and not expired


class AuditRow(NamedTuple):
    """An act of a user."""

    seq: int
    at_s: float
    user: str
    token: str  # id; empty without one
    address: str
    action: str
    object: str
    namespace: str
    code: int


class AccessStore:
    """The file. Its methods raise StoreError where it cannot be used."""

    def __init__(self, home: Path) -> None:
        self._file = SideFile(home, ACCESS_DB, read_table_statements, version=VERSION)

    def create_token(
        self,
        user: str,
        role: str,
        namespace: str,
        *,
        expires_at_s: float | None,
    ) -> tuple[TokenRow, str]:
        """Returns the token's row, and its text, which is shown once."""
        assert role in ROLES
        row = TokenRow(
            secrets.token_hex(ID_CHARS // 2), user, role, namespace, time.time(), expires_at_s
        )
        secret = secrets.token_urlsafe(SECRET_BYTES)
        with self._file.open_writing() as database:
            database.execute(
                f"INSERT INTO tokens ({_COLUMNS}, digest)"  # noqa: S608 - our own columns
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, _digest_secret(secret)),
            )
        return row, f"{PREFIX}_{row.id}_{secret}"

    def tokens(self) -> list[TokenRow]:
        """Returns all tokens, the oldest first."""
        query = f"SELECT {_COLUMNS} FROM tokens ORDER BY created_at_s, id"  # noqa: S608
        return [TokenRow._make(row) for row in self._file.read(query)]

    def revoke_token(self, token_id: str) -> TokenRow:
        """Ends a token for good. Raises NotFound."""
        with self._file.open_writing() as database:
            database.execute(
                "UPDATE tokens SET revoked_at_s = coalesce(revoked_at_s, ?) WHERE id = ?",
                (time.time(), token_id),
            )
        for row in self.tokens():
            if row.id == token_id:
                return row
        raise NotFound(f"there is no token `{token_id}`", hint="`fleetctl token list` shows all")

    def check_token(self, text: str, now_s: float) -> TokenRow | None:
        """Returns the token that this text is, where it holds now; None for every other text."""
        prefix, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        if prefix != PREFIX or len(token_id) != ID_CHARS or not secret:
            return None
        query = f"SELECT {_COLUMNS}, digest FROM tokens WHERE id = ?"  # noqa: S608
        for *columns, digest in self._file.read(query, (token_id,)):
            row = TokenRow._make(columns)
            if hmac.compare_digest(digest, _digest_secret(secret)) and row.holds(now_s):
                self._note_use(row, now_s)
                return row
        return None

    def _note_use(self, row: TokenRow, now_s: float) -> None:
        if row.used_at_s is not None and now_s - row.used_at_s < USE_EVERY_S:
            return
        with self._file.open_writing() as database:
            database.execute("UPDATE tokens SET used_at_s = ? WHERE id = ?", (now_s, row.id))

    def add_audit(
        self,
        user: str,
        action: str,
        *,
        keys: str = "",
        namespace: str = "",
        token: str = "",
        address: str = "",
        code: int = 0,
    ) -> None:
        """Records an act. keys: of objects, with commas."""
        with self._file.open_writing() as database:
            database.execute(
                "INSERT INTO audit (at_s, user, token, address, action, object, namespace, code)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (time.time(), user, token, address, action, keys, namespace, code),
            )

    def audit(
        self,
        *,
        since_s: float = 0.0,
        user: str = "",
        namespace: str = "",
        limit: int = AUDIT_ROWS_MAX,
    ) -> list[AuditRow]:
        """Returns the newest acts, the oldest of them first. user, namespace: empty: of all; a
        user's acts are also those of agents that acted for the user."""
        rows = self._file.read(
            "SELECT seq, at_s, user, token, address, action, object, namespace, code FROM audit"
            " WHERE at_s >= ?1 AND (?2 IN ('', user) OR substr(user, 1, length(?5)) = ?5)"
            " AND (?3 = '' OR namespace = ?3)"
            " ORDER BY seq DESC LIMIT ?4",
            (since_s, user, namespace, limit, f"{user}{VIA}"),
        )
        return [AuditRow._make(row) for row in reversed(rows)]


def read_table_statements() -> list[str]:
    """Returns the statements of the schema; a trigger's own statement stays in it."""
    return [
        part.replace("') END", "'); END") if part.startswith("CREATE TRIGGER") else part
        for part in queries.read_statements(SCHEMA)
    ]


def _digest_secret(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
