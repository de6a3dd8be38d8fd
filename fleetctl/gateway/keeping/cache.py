"""Answers kept on disk where an Endpoint asks for it, 0600, per namespace: it holds prompts."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetctl.gateway.rules.usage import EMBEDDING_PATHS

TTL_S = 604800.0


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

    def __init__(self, path: Path) -> None:
        self._path = path
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

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            self._db = sqlite3.connect(self._path, isolation_level=None)
            self._db.execute("pragma journal_mode=wal")
            self._db.execute(
                "create table if not exists answers (key text primary key, type text,"
                " answer blob, until_s real)"
            )
        return self._db
