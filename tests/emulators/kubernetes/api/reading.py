"""Lists and watches."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from aiohttp import web

from tests.emulators.kubernetes.api.call import Call
from tests.emulators.kubernetes.api.tables import table
from tests.emulators.kubernetes.api.writes.schemas import version_of
from tests.emulators.kubernetes.store.errors import ApiError, expired
from tests.emulators.kubernetes.store.objects import Entry, Event, Shelf, Store, dumps
from tests.emulators.kubernetes.store.resources import Resource
from tests.emulators.kubernetes.store.selectors import field_selector, label_selector

if TYPE_CHECKING:
    from tests.emulators.kubernetes.api.faulty import Cut

BOOKMARK_S = 60.0
WATCH_S = (1800.0, 3600.0)  # how long one lives that says nothing about it
Match = Callable[[Entry], bool]


def selected(call: Call, resource: Resource) -> Match:
    """Which entries a call asks for. Raises ApiError 400."""
    tests: list[Match] = []
    namespace, labels, fields = call.namespace, None, None
    if namespace and resource.namespaced:
        tests.append(lambda one: one.place[0] == namespace)
    if call.query.get("labelSelector"):
        labels = label_selector(call.query["labelSelector"])
        tests.append(lambda one: labels(one.labels))
    if call.query.get("fieldSelector"):
        more: tuple[str, ...] = ()
        if resource.definition is not None:
            told = version_of(resource, call.version).get("selectableFields") or ()
            more = tuple(it["jsonPath"].lstrip(".") for it in told)
        fields = field_selector(call.query["fieldSelector"], resource.key, selectable=more)
        tests.append(lambda one: fields(one.object))
    if len(tests) == 1:
        return tests[0]
    return lambda one: all(test(one) for test in tests)


def raw_in(entry: Entry, resource: Resource, version: str) -> bytes:
    """In the version that was asked for."""
    wanted = resource.api_version(version)
    if entry.object["apiVersion"] == wanted:
        return entry.raw
    return Entry({**entry.object, "apiVersion": wanted}, entry.rv).raw


def listed(call: Call, store: Store, *, stale_rv: int | None = None) -> bytes:
    """The body of a list. stale_rv: serve the state of then, as a watch cache that lags does."""
    resource = call.found()
    shelf, match = store.shelf(resource.key), selected(call, resource)
    rv, start = _position(call, store.rv, stale_rv)
    entries = shelf.at(rv) if rv < store.rv else shelf.ordered()
    if start:
        entries = entries[bisect_right(entries, tuple(start), key=lambda it: it.place) :]
    found = [it for it in entries if match(it)]
    metadata: dict[str, object] = {"resourceVersion": str(rv)}
    limit = call.number("limit") or 0
    if limit and len(found) > limit:
        left = len(found) - limit
        found = found[:limit]
        token = {"v": "meta.k8s.io/v1", "rv": rv, "start": found[-1].place}
        metadata["continue"] = base64.urlsafe_b64encode(dumps(token)).decode().rstrip("=")
        if not (call.query.get("labelSelector") or call.query.get("fieldSelector")):
            metadata["remainingItemCount"] = left
    if table.wanted(call):
        return dumps(table.of_entries(call, found, metadata))
    if table.metadata_only(call):
        return dumps(table.metadata_list(found, metadata))
    if resource.definition is None:
        items = [it.untyped for it in found]
    else:
        items = [raw_in(it, resource, call.version) for it in found]
    head = {"kind": resource.list_kind, "apiVersion": resource.api_version(call.version)}
    whole = dumps({**head, "metadata": metadata})
    return whole[:-1] + b',"items":[' + b",".join(items) + b"]}"


def _position(call: Call, newest: int, stale_rv: int | None) -> tuple[int, list[str]]:
    """(resourceVersion to list at, place after which to go on)."""
    token = call.query.get("continue")
    if token:
        try:
            told = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            return int(told["rv"]), list(told["start"])
        except (ValueError, KeyError, TypeError) as error:
            raise ApiError(400, "continue key is not valid") from error
    asked = call.query.get("resourceVersion", "")
    how = call.query.get("resourceVersionMatch", "")
    if how == "Exact":
        return int(asked), []
    if asked.isdigit() and int(asked) > newest:
        message = f"Too large resource version: {asked}, current: {newest}"
        raise ApiError(504, message, retry_after_s=1)
    # Only who asks for the newest state gets it when the cache lags.
    if stale_rv is not None and asked == "0":
        return stale_rv, []
    return newest, []


class Watch:
    """One client's stream of changes."""

    def __init__(self, call: Call, store: Store) -> None:
        self._call, self._resource = call, call.found()
        self._store, self._match = store, selected(call, call.found())
        self._shelf: Shelf = store.shelf(self._resource.key)
        self._pending: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._columns_told = False
        self._failed = False  # an error has been told, after which nothing comes

    async def serve(self, request: web.BaseRequest, cut: Cut) -> web.StreamResponse:
        """Until its time is over, the client goes, or `cut` says so."""
        timeout = self._call.number("timeoutSeconds")
        life_s = float(timeout) if timeout else random.uniform(*WATCH_S)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + life_s
        # Before anything is awaited, so that no change is between the state and the stream.
        for line in self._begin():
            self._pending.append(line)
        self._shelf.watchers.add(self._on_event)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await response.prepare(request)
            bookmark_at = min(loop.time() + BOOKMARK_S, max(ends_at - 2.0, loop.time()))
            while not cut.now():
                if self._pending:
                    batch, self._pending = self._pending, deque()
                    await response.write(b"".join(batch))
                now = loop.time()
                if self._call.flag("allowWatchBookmarks") and now >= bookmark_at:
                    bookmark_at = now + BOOKMARK_S
                    self._pending.append(self._bookmark())
                    continue
                if now >= ends_at or (self._failed and not self._pending):
                    break
                await self._sleep(min(ends_at, bookmark_at if self._bookmarks() else ends_at) - now)
            if cut.now():
                cut.sever(request)
            else:
                await response.write_eof()
        except ConnectionError:
            return response
        finally:
            self._shelf.watchers.discard(self._on_event)
        return response

    def nudge(self) -> None:
        """Look again whether to go on."""
        self._wake.set()

    def _bookmarks(self) -> bool:
        return self._call.flag("allowWatchBookmarks")

    async def _sleep(self, seconds: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wake.wait()
        except TimeoutError:
            return

    def _begin(self) -> Iterator[bytes]:
        asked = self._call.query.get("resourceVersion", "")
        initial = self._call.flag("sendInitialEvents")
        if initial or asked in ("", "0"):
            for entry in self._shelf.ordered():
                if self._match(entry):
                    yield self._line("ADDED", entry)
            if initial and self._bookmarks():
                yield self._bookmark(initial=True)
            return
        if not asked.isdigit():
            raise ApiError(400, f'strconv.ParseUint: parsing "{asked}": invalid syntax')
        try:
            events = self._shelf.since(int(asked))
        except ApiError as error:
            yield self._error(error)
            return
        for event in events:
            yield from self._lines(event)

    def _error(self, error: ApiError) -> bytes:
        self._failed = True
        return dumps({"type": "ERROR", "object": error.status()}) + b"\n"

    def expire(self) -> None:
        """The server can no longer say what this one has missed."""
        self._pending.append(
            self._error(expired("The resourceVersion for the provided watch is too old."))
        )
        self._wake.set()

    def _on_event(self, event: Event) -> None:
        if self._failed:
            return
        self._pending.extend(self._lines(event))
        self._wake.set()

    def _lines(self, event: Event) -> Iterator[bytes]:
        before = event.old is not None and self._match(event.old)
        if event.kind == "DELETED":
            if before:
                yield self._line("DELETED", event.entry)
            return
        after = self._match(event.entry)
        if after:
            yield self._line("MODIFIED" if before else "ADDED", event.entry)
        elif before:
            assert event.old is not None
            metadata = {**event.old.object["metadata"], "resourceVersion": str(event.rv)}
            yield self._line("DELETED", Entry({**event.old.object, "metadata": metadata}, event.rv))

    def _line(self, kind: str, entry: Entry) -> bytes:
        if table.wanted(self._call):
            shown = table.of_entries(self._call, [entry], {"resourceVersion": str(entry.rv)})
            if self._columns_told:
                shown["columnDefinitions"] = None
            self._columns_told = True
            body = dumps(shown)
        elif table.metadata_only(self._call):
            body = dumps(table.metadata_of(entry))
        else:
            body = raw_in(entry, self._resource, self._call.version)
        return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"

    def _bookmark(self, *, initial: bool = False) -> bytes:
        metadata: dict[str, object] = {
            "resourceVersion": str(self._store.rv),
            "creationTimestamp": None,
        }
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        one = {
            "kind": self._resource.kind,
            "apiVersion": self._resource.api_version(self._call.version),
            "metadata": metadata,
        }
        return dumps({"type": "BOOKMARK", "object": one}) + b"\n"
