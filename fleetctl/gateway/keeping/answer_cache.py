"""Answers kept on disk if an Endpoint requests it, 0600, per namespace: the file holds prompts."""

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleetctl.gateway.rules.usage import EMBEDDING_PATHS

TTL_S = 604800.0
# Headers that differ from call to call, or name a caller: of W3C, OpenAI, Azure, AWS and Google.
_OF_A_CALL = frozenset(
    (
        *("x-request-id", "traceparent", "tracestate", "baggage", "idempotency-key"),
        *("http-referer", "x-title", "x-correlation-id", "x-client-request-id"),
        *("x-ms-client-request-id", "x-amzn-trace-id", "x-cloud-trace-context"),
    )
)
_OF_A_CALL_PREFIXES = ("x-b3-", "x-datadog-")  # what tracers put into each request of a program
BYTES_MAX = 1 << 30  # of answers; those that end soonest go first
PUTS_PER_CLEAN = 256


def is_cacheable(
    policy: str,
    path: str,
    body: Mapping[str, Any],
) -> bool:
    """Returns True for deterministic requests: embeddings, temperature 0, or a seed given."""
    if policy != "Deterministic":
        return policy == "Always"
    options = body.get("options")
    asked = {**options, **body} if isinstance(options, dict) else body
    return path in EMBEDDING_PATHS or asked.get("temperature") == 0 or asked.get("seed") is not None


def cache_key(
    namespace: str,
    endpoint: str,
    path: str,
    body: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
) -> str:
    """Returns the cache key of a request.

    headers: the task's headers; those that describe more than the caller may change the answer.
    """
    asked: list[object] = [namespace, endpoint, path, body]
    telling = {
        name: it
        for name, it in (headers or {}).items()
        if name not in _OF_A_CALL and not name.startswith(_OF_A_CALL_PREFIXES)
    }
    canonical = json.dumps([*asked, telling] if telling else asked, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


class AnswerCache:
    """A cache of answers. Its file is made at the first answer kept, so no file exists without
    caching. Where the disk refuses, no answer is kept and none found: a call that is paid for must
    not fail for its cache.
    """

    def __init__(self, path: Path, *, bytes_max: int = BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._puts = 0
        self._db: sqlite3.Connection | None = None

    def get(self, key: str, now_s: float) -> tuple[str, bytes] | None:
        if self._db is None and not self._path.exists():
            return None
        query = "select type, answer from answers where key=? and until_s > ?"
        found = None
        with suppress(OSError, sqlite3.Error):
            found = self._open().execute(query, (key, now_s)).fetchone()
        if found:
            return (found[0], found[1])
        return None

    def put(self, key: str, content_type: str, answer: bytes, until_s: float) -> None:
        row = (key, content_type, answer, until_s)
        self._puts += 1
        with suppress(OSError, sqlite3.Error):
            if self._puts % PUTS_PER_CLEAN == 1:
                self.clean(time.time())
            self._open().execute("insert or replace into answers values (?, ?, ?, ?)", row)

    def clean(self, now_s: float) -> None:
        """Deletes expired answers, and the oldest beyond the limit: up to as many as are added
        between two cleanups.
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
        """Raises OSError, or sqlite3.Error; a later call opens the file then."""
        if self._db is None:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            database = sqlite3.connect(self._path, isolation_level=None)
            database.execute("pragma journal_mode=wal")
            database.execute(
                "create table if not exists answers (key text primary key, type text,"
                " answer blob, until_s real)"
            )
            database.execute("create index if not exists answers_until on answers (until_s)")
            self._db = database
        return self._db
