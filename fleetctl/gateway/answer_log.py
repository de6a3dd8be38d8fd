"""Answers on disk (0600): of numbered calls before they are delivered, and of all calls where an
Endpoint requests a cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleetctl.gateway.call_ledger import WriteBatch
from fleetctl.gateway.numbered_calls import CallAnswer
from fleetctl.gateway.rules.usage import EMBEDDING_PATHS

USD = "X-Fleetctl-Usd"  # cost of an answer; absent if no price is known
TOKENS = "X-Fleetctl-Tokens"  # `in out`, over all tries; not there with an answer that was kept
KEPT_S = 600.0
# Answers of a batch come hours after the request, and the task may be gone as long.
KEPT_BATCH_S = 7 * 86400.0
BATCH_BYTES_MAX = 8 * 2**30
# Beyond this limit the oldest are dropped.
BYTES_MAX = 256 * 2**20
RUN_BYTES_MAX = 64 * 2**20
_SCHEMA = """
create table if not exists answers (id integer primary key, run text, number text, until_s real,
  length integer, status integer, type text, usd text, body blob, unique (run, number));
create index if not exists answers_until on answers (until_s);
"""

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
CACHE_BYTES_MAX = 1 << 30  # of answers; those that end soonest go first
PUTS_PER_CLEAN = 256


class AnswerLog:
    """A log of answers. Its file is made at the first answer that is kept; answers older than
    kept_s are not read, and the oldest are dropped beyond bytes_max.
    """

    def __init__(
        self,
        path: Path,
        *,
        kept_s: float = KEPT_S,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._path = path
        self._kept_s = kept_s
        self._bytes_max = bytes_max
        self._db: sqlite3.Connection | None = None
        self._bytes: dict[str, int] = {}  # by run
        self._total_bytes = 0
        self._turn = WriteBatch(self._commit)
        if path.exists():
            self._open()
            self.clean()

    def find(self, run: str, number: str) -> CallAnswer | None:
        if run not in self._bytes or self._db is None:
            return None
        query = "select status, type, usd, body from answers where run=? and number=? and until_s>?"
        row = self._db.execute(query, (run, number, time.time())).fetchone()
        if row is None:
            return None
        status, kind, usd, body = row
        return CallAnswer(status, {"Content-Type": kind, **({USD: usd} if usd else {})}, body)

    async def put(
        self,
        run: str,
        number: str,
        answer: CallAnswer,
    ) -> None:
        """Stores an answer. Durable against a kill of the process when it returns. Raises
        sqlite3.Error.
        """
        self.add(run, number, answer)
        await self._turn.durable()

    async def put_all(self, answers: Iterable[tuple[str, str, CallAnswer]]) -> None:
        """The same of many, each with its run and number."""
        for run, number, answer in answers:
            self.add(run, number, answer)
        await self._turn.durable()

    def add(
        self,
        run: str,
        number: str,
        answer: CallAnswer,
    ) -> None:
        """Adds an answer, durable at the end of this turn of the loop."""
        db = self._open()
        length = len(answer.body)
        if self._turn.begin():
            db.execute("begin")
        now_s = time.time()
        self.forget(run, number)
        while self._bytes.get(run, 0) and self._bytes[run] + length > RUN_BYTES_MAX:
            self._drop("id = (select min(id) from answers where run=?)", (run,))
        while self._total_bytes and self._total_bytes + length > self._bytes_max:
            self._drop("id = (select min(id) from answers)", ())
        kind = answer.headers["Content-Type"]
        usd = answer.headers.get(USD, "")
        row = (run, number, now_s + self._kept_s, length, answer.status, kind, usd, answer.body)
        db.execute(
            "insert or replace into answers (run, number, until_s, length, status, type, usd, body)"
            " values (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        self._count(run, length)

    def forget(self, run: str, number: str) -> None:
        if run in self._bytes:
            self._drop("run=? and number=?", (run, number))

    def runs(self) -> Set[str]:
        """Returns the runs whose answers are kept."""
        return self._bytes.keys()

    def forget_runs(self, runs: Iterable[str]) -> None:
        """Drops the answers of finished runs: no task requests them again."""
        known = [run for run in runs if run in self._bytes]
        if known and self._turn.begin():
            self._open().execute("begin")
        for run in known:
            self._drop("run=?", (run,))

    def clean(self) -> None:
        """Drops expired answers."""
        if self._db is not None:
            self._drop("until_s <= ?", (time.time(),))

    def close(self) -> None:
        if self._db is not None:
            self._commit()
            self._db.close()

    def _commit(self) -> None:
        if self._db is None or not self._db.in_transaction:
            return
        try:
            self._db.commit()
        except sqlite3.Error:
            self._db.rollback()
            self._sum()
            raise

    def _drop(self, which: str, values: tuple[object, ...]) -> None:
        assert self._db is not None
        query = f"delete from answers where {which} returning run, length"  # noqa: S608
        for run, length in self._db.execute(query, values).fetchall():
            self._count(run, -length)

    def _count(self, run: str, length: int) -> None:
        # One byte each, so that a run with an empty answer is known to have one.
        step = length + 1 if length >= 0 else length - 1
        self._total_bytes += step
        self._bytes[run] = self._bytes.get(run, 0) + step
        if self._bytes[run] <= 0:
            del self._bytes[run]

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            self._db = sqlite3.connect(self._path, isolation_level=None)
            self._db.execute("pragma journal_mode=wal")
            self._db.execute("pragma synchronous=normal")
            self._db.executescript(_SCHEMA)
            self._sum()
        return self._db

    def _sum(self) -> None:
        assert self._db is not None
        query = "select run, sum(length + 1) from answers group by run"
        self._bytes = dict(self._db.execute(query))
        self._total_bytes = sum(self._bytes.values())


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

    def __init__(self, path: Path, *, bytes_max: int = CACHE_BYTES_MAX) -> None:
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
        """Returns the open database, which the first call creates. Raises OSError or sqlite3.Error;
        the next call tries again.
        """
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
