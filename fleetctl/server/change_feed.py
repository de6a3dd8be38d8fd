"""Reads the store for all callers: in threads of their own, each with an open store, and once for
all who watch for changed objects.

An event has a number that rises, and the feed keeps the newest ones: a client that comes back
with the number of its last event gets those that it missed. Where they are gone (a long absence,
another server process), it is sent `RESET`, and begins with a new list.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError, StoreError
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.read.rows import ResourceRow
from fleetctl.views.objects import build_document, build_view
from fleetctl.views.store_reading import StoreReading, open_reading

log = logging.getLogger("fleetctl.feed")

LOOK_S = 0.05  # a commit is on a page well within 300 ms
IDLE_LOOK_S = 0.5  # while nobody watches
CHANGES_KEPT = 10_000
ROWS_PER_READ = 500
BEAT_S = 15.0  # proxies close a connection that is silent for a minute

ADDED, MODIFIED, DELETED, RESET = "ADDED", "MODIFIED", "DELETED", "RESET"

T = TypeVar("T")

READERS = 4  # more would wait for each other: Python runs one at a time


class ObjectChange(NamedTuple):
    """A change of an object. document: JSON, of metadata and status."""

    number: int
    type: str
    kind: str
    namespace: str
    name: str
    document: str


class ChangeFeed:
    """The changes of one store, since this process began."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._epoch = secrets.token_hex(4)
        self._number = 0
        self._kept: deque[ObjectChange] = deque(maxlen=CHANGES_KEPT)
        self._news = asyncio.Event()
        self._watchers = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._store = _StoreMarks(home)

    @property
    def cursor(self) -> str:
        """Returns the number of the newest event, for a client that has just read a list."""
        return f"{self._epoch}.{self._number}"

    @property
    def revision(self) -> str:
        """Returns a text that differs from the one before when anything in the store changed."""
        return f"{self._epoch}.{self._store.changes}"

    @property
    def watchers(self) -> int:
        return self._watchers

    async def run(self) -> None:
        """Looks until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                found = await loop.run_in_executor(self._thread, self._store.look)
            except FleetctlError as error:
                log.warning("the store cannot be read", extra={"error": str(error)})
                found = []
                self._store = _StoreMarks(self._home)
            self._publish(found)
            await asyncio.sleep(LOOK_S if self._watchers else IDLE_LOOK_S)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _publish(self, found: list[tuple[str, ResourceRow]]) -> None:
        if not found:
            return
        now_s = SystemClock().now_s()
        for sort, row in found:
            self._number += 1
            seen = build_view(row, lambda: "{}")
            document = build_document(seen, now_s, parts=("metadata", "status"))
            text = json.dumps(document, separators=(",", ":"))
            self._kept.append(
                ObjectChange(self._number, sort, row.kind, row.namespace, row.name, text)
            )
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def follow(
        self,
        since: str,
        takes: Callable[[ObjectChange], bool],
    ) -> AsyncGenerator[tuple[str, ObjectChange | None], None]:
        """Yields (id, change) after `since`; None for a RESET, and ("", None) where nothing
        happened for BEAT_S."""
        self._watchers += 1
        try:
            at = self._position(since)
            if at is None:
                at = self._number
                yield self.cursor, None
            while True:
                news = self._news
                if self._kept and self._kept[0].number > at + 1:
                    at = self._number
                    yield self.cursor, None
                fresh = _changes_after(self._kept, at)
                at = self._number
                for change in fresh:
                    if takes(change):
                        yield f"{self._epoch}.{change.number}", change
                if at != self._number:
                    continue
                try:
                    async with asyncio.timeout(BEAT_S):
                        await news.wait()
                except TimeoutError:
                    yield "", None
        finally:
            self._watchers -= 1

    def _position(self, since: str) -> int | None:
        """Returns the number after which to go on; None where what followed is not known."""
        if not since:
            return self._number
        epoch, _, number = since.partition(".")
        if epoch != self._epoch or not number.isdigit() or int(number) > self._number:
            return None
        return int(number)


def _changes_after(kept: deque[ObjectChange], at: int) -> list[ObjectChange]:
    """Returns the changes with a higher number; looks at these alone."""
    found = []
    for change in reversed(kept):
        if change.number <= at:
            break
        found.append(change)
    found.reverse()
    return found


class _StoreMarks:
    """The versions that were seen last. Only for one thread: its store is opened there."""

    def __init__(self, home: Path) -> None:
        self._reader = Reader(home)
        self._version: tuple[int, int] | None = None
        self._seen: dict[int, int] = {}  # row number -> version, of what may be written by itself
        self._uids: set[str] = set()  # reported before
        self.changes = 0  # that were seen, of any part of the store
        self._change = 0
        self._gone_at_s = 0.0
        self._gone: set[str] = set()  # uids, of that time

    def look(self) -> list[tuple[str, ResourceRow]]:
        """Returns (type, row) of what changed since the look before; nothing at the first one."""
        version = self._reader.data_version()
        if version == self._version:
            return []
        first = self._version is None
        self._version = version
        self.changes += 1
        if first:
            self._uids = {uid for uid, *_ in self._reader.object_keys()}
        marks = list(self._reader.marks(self._change))
        rids = [rid for rid, at, _, awake in marks if not awake or self._seen.get(rid) != at]
        now = {rid: at for rid, at, _, awake in marks if awake}
        ended = self._seen.keys() - now.keys()
        rids += ended.difference(rids)
        self._seen = now
        self._change = max([self._change, *(change for _, _, change, _ in marks)])
        gone = self._look_for_gone(first=first)
        if first:
            return []
        found = []
        for start in range(0, len(rids), ROWS_PER_READ):
            for _, row in self._reader.resources_at(rids[start : start + ROWS_PER_READ]):
                found.append((MODIFIED if row.uid in self._uids else ADDED, row))
                self._uids.add(row.uid)
        self._uids.difference_update(row.uid for _, row in gone)
        return [*found, *gone]

    def _look_for_gone(self, *, first: bool) -> list[tuple[str, ResourceRow]]:
        found = []
        since_s = SystemClock().now_s() if first else self._gone_at_s
        for uid, kind, name, namespace, at_s in self._reader.gone_since(since_s):
            if at_s > self._gone_at_s:
                self._gone_at_s = at_s
                self._gone = set()
            if uid not in self._gone:
                self._gone.add(uid)
                row = ResourceRow(uid, kind, name, 0, 0, at_s, at_s, {}, {}, "", "{}", namespace)
                found.append((DELETED, row))
        if first:
            self._gone_at_s = max(since_s - 1.0, 0.0)
        return found


class ReaderPool:
    """The threads of a server that read."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="read")
        self._queries = ThreadPoolExecutor(1, thread_name_prefix="query")
        self._own = threading.local()

    async def read(self, work: Callable[[StoreReading], T]) -> T:
        """Returns the result of the work. The open store is of its thread: the work must be over
        with it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, work)

    async def query(self, work: Callable[[], T]) -> T:
        """Returns the result of a user's SQL: one at a time, and never in the way of a list."""
        return await asyncio.get_running_loop().run_in_executor(self._queries, work)

    def _run(self, work: Callable[[StoreReading], T]) -> T:
        reading: StoreReading | None = getattr(self._own, "reading", None)
        if reading is None:
            reading = self._own.reading = open_reading(self._home)
        try:
            return work(reading)
        except StoreError:
            # The file may be another one by now (a restored store): the next read opens it again.
            self._own.reading = None
            reading.__exit__()
            raise

    def close(self) -> None:
        for pool in (self._threads, self._queries):
            pool.shutdown(wait=False, cancel_futures=True)
