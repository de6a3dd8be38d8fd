"""Answers kept on disk where an Endpoint asks for it, 0600, per namespace: it holds prompts."""

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetctl.gateway.rules.usage import EMBEDDING_PATHS

TTL_S = 604800.0
BYTES_MAX = 1 << 30  # of answers; those that end soonest go first
PUTS_PER_CLEAN = 256


def cacheable(policy: str, path: str, body: Mapping[str, Any]) -> bool:
    """Deterministic: embeddings, temperature 0, or a seed given."""
    if policy != "Deterministic":
        return policy == "Always"
    options = body.get("options")
    asked = {**options, **body} if isinstance(options, dict) else body
    return path in EMBEDDING_PATHS or asked.get("temperature") == 0 or asked.get("seed") is not None


def cache_key(namespace: str, endpoint: str, path: str, body: Mapping[str, Any]) -> str:
    canonical = json.dumps([namespace, endpoint, path, body], sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


class Cache:
    """The file is made at the first answer kept, so that none is there unless asked."""

    def __init__(self, path: Path, *, bytes_max: int = BYTES_MAX) -> None:
        self._path, self._bytes_max, self._puts = path, bytes_max, 0
        self._db: sqlite3.Connection | None = None

    def get(self, key: str, now_s: float) -> tuple[str, bytes] | None:
        if self._db is None and not self._path.exists():
            return None
        query = "select type, answer from answers where key=? and until_s > ?"
        found = self._open().execute(query, (key, now_s)).fetchone()
        return (found[0], found[1]) if found else None

    def put(self, key: str, content_type: str, answer: bytes, until_s: float) -> None:
        row = (key, content_type, answer, until_s)
        self._open().execute("insert or replace into answers values (?, ?, ?, ?)", row)
        self._puts += 1
        if self._puts % PUTS_PER_CLEAN == 1:
            self.clean(time.time())

    def clean(self, now_s: float) -> None:
        """Let go of what is past its time, and of the oldest where there is too much: of as many as
        come between two of these.
        """
        database = self._open()
        database.execute("delete from answers where until_s <= ?", (now_s,))
        (size, pages, free) = (
            database.execute(f"pragma {name}").fetchone()[0]
            for name in ("page_size", "page_count", "freelist_count")
        )
        if size * (pages - free) > self._bytes_max:
            oldest = "select key from answers order by until_s limit ?"
            query = f"delete from answers where key in ({oldest})"  # noqa: S608 - ours
            database.execute(query, (2 * PUTS_PER_CLEAN,))

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            self._db = sqlite3.connect(self._path, isolation_level=None)
            self._db.execute("pragma journal_mode=wal")
            self._db.execute(
                "create table if not exists answers (key text primary key, type text,"
                " answer blob, until_s real)"
            )
            self._db.execute("create index if not exists answers_until on answers (until_s)")
        return self._db
