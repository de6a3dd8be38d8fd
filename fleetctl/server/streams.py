"""Sends what goes on: changes of objects, and logs, as server-sent events. Called by the routes.

Each event has an id; a client that comes back with it (`Last-Event-ID`) misses nothing and sees
nothing twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from fleetctl.common.errors import NotFound, UsageError
from fleetctl.server.callers import CLUSTER_WIDE, HttpError
from fleetctl.server.change_feed import RESET, ObjectChange
from fleetctl.server.reads import find_working, list_all, list_objects
from fleetctl.server.response_types import ObjectList
from fleetctl.server.route_table import ApiCall
from fleetctl.views.run_files import read_bytes
from fleetctl.views.store_reading import StoreReading
from fleetctl.views.tasks import Task

if TYPE_CHECKING:
    from fleetctl.specs.kinds.registry import Kind

EVENT_STREAM = "text/event-stream"
FOLLOWERS_MAX = 1000  # streams of a server; each costs a task and no thread
LOG_LOOK_S = 0.2
LOG_PIECE_BYTES = 256 * 1024
LOG_BYTES_MAX = 4 * 1024 * 1024  # of one answer
FOUND_LINES_MAX = 1000
LIVE = ("Starting", "Running", "Stopping")


class StreamCount:
    """The number of open streams of this server."""

    def __init__(self) -> None:
        self.open = 0

    def check(self) -> None:
        if self.open >= FOLLOWERS_MAX:
            raise HttpError(503, f"{FOLLOWERS_MAX} streams are open; try again later", code=1)


STREAMS = StreamCount()


def stream_events(events: AsyncIterator[str]) -> StreamingResponse:
    """Returns a response of server-sent events."""
    STREAMS.check()

    async def counted() -> AsyncIterator[str]:
        STREAMS.open += 1
        try:
            yield ": here\n\n"  # the client has its head at once
            async for text in events:
                yield text
        finally:
            STREAMS.open -= 1

    return StreamingResponse(
        counted(),
        media_type=EVENT_STREAM,
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


def format_event(data: str, *, event: str = "", number: str = "") -> str:
    """Returns one event. data: JSON, which has no line breaks."""
    parts = [f"id: {number}\n" if number else "", f"event: {event}\n" if event else ""]
    return "".join((*parts, f"data: {data}\n\n"))


async def list_or_watch(call: ApiCall) -> Response | ObjectList:
    """Lists the objects of a kind, or sends their changes."""
    if call.flag("watch"):
        return watch_objects(call, call.kind)
    return await list_objects(call)


async def list_or_watch_all(call: ApiCall) -> Response | ObjectList:
    """Lists the objects of all kinds, or sends their changes."""
    if call.flag("watch"):
        return watch_objects(call, None)
    return await list_all(call)


def watch_objects(call: ApiCall, kind: Kind | None) -> Response:
    """Sends each change of the objects of a kind, or of all."""
    wanted = call.text("namespace")
    name = call.text("name")
    within = call.caller.namespaces(wanted)

    def takes(change: ObjectChange) -> bool:
        if kind is not None and change.kind != kind.name:
            return False
        if name and change.name != name:
            return False
        return not within or change.namespace in within or change.kind in CLUSTER_WIDE

    async def events() -> AsyncIterator[str]:
        feed = call.parts.feed
        yield format_event("{}", event="begin", number=call.last_event or feed.cursor)
        async for number, change in feed.follow(call.last_event, takes):
            if change is not None:
                data = f'{{"type":"{change.type}","object":{change.document}}}'
                yield format_event(data, event="change", number=number)
            elif number:
                yield format_event(f'{{"type":"{RESET}"}}', event="reset", number=number)
            else:
                yield ": beat\n\n"

    return stream_events(events())


class LogSource:
    """The log of one attempt."""

    def __init__(self, call: ApiCall) -> None:
        self._call = call
        self._node = call.number("node", 0, most=10_000)
        self._service = call.text("service")
        self.index = call.number("index", 0, most=10**9)
        self._attempt = call.number("attempt", 0, most=10**6)

    def _find(self, reading: StoreReading) -> tuple[str, Task]:
        seen = find_working(self._call, reading)
        attempts = list(reading.attempts(seen, index=self.index))
        if self._attempt:
            attempts = [it for it in attempts if it.run.attempt == self._attempt]
        if not attempts:
            raise NotFound(f"{seen.key} has started no such {seen.kind.unit} yet")
        task = attempts[-1]
        if task.state == "Cached" and (found := reading.source_of(task.run)) is not None:
            uid, _, run = found
            return uid, task._replace(run=run)
        return seen.resource.uid, task

    async def read(self, offset: int, limit: int) -> tuple[bytes, int, bool]:
        """Returns (output from `offset` on, where to go on, whether the attempt has ended)."""

        def work(reading: StoreReading) -> tuple[bytes, int, bool]:
            uid, task = self._find(reading)
            over = task.run.state not in LIVE
            data = b""
            at = offset
            pieces = read_bytes(
                self._call.parts.home,
                uid,
                task.run,
                offset,
                node=self._node,
                service=self._service,
            )
            for piece, following in pieces:
                data += piece
                at = following
                if len(data) >= limit:
                    break
            if len(data) > limit and at - offset == len(data):
                return data[:limit], offset + limit, False
            return data, at, over

        return await self._call.parts.readers.read(work)


async def read_logs(call: ApiCall) -> Response | dict[str, object]:
    """Sends the output of an attempt: its bytes, the lines that match, or, with `follow`,
    events."""
    source = LogSource(call)
    offset = call.number("offset", 0, most=1 << 53)
    await _note_reading(call)
    if call.flag("follow"):
        last = call.last_event
        begin = int(last) if last.isascii() and last.isdigit() else offset
        await source.read(begin, 1)  # a missing object is an error, and no stream
        return stream_events(_follow_log(source, begin))
    if search := call.text("search"):
        return await _search_log(source, offset, search)
    limit = call.number("limit", LOG_PIECE_BYTES, most=LOG_BYTES_MAX)
    data, following, over = await source.read(offset, max(1, limit))
    return Response(
        data,
        media_type="text/plain; charset=utf-8",
        headers={"x-next-offset": str(following), "x-ended": str(over).lower()},
    )


async def _note_reading(call: ApiCall) -> None:
    if call.text("offset") not in ("", "0") or call.last_event:
        return  # the same reading goes on
    await asyncio.to_thread(
        call.parts.access.add_audit,
        call.caller.author,
        "logs",
        keys=f"{call.kind.name.lower()}/{call.name}",
        namespace=call.namespace,
        token=call.caller.token,
        address=call.caller.address,
    )


async def _follow_log(source: LogSource, offset: int) -> AsyncIterator[str]:
    """Yields the output as it comes, in pieces of whole letters, until the attempt has ended."""
    silent_s = 0.0
    while True:
        data, following, over = await source.read(offset, LOG_PIECE_BYTES)
        if data:
            if following - offset == len(data):
                data = data[: _count_whole_letters(data)] or data
                following = offset + len(data)
            offset = following
            text = json.dumps({"offset": offset, "text": data.decode("utf-8", "replace")})
            yield format_event(text, event="output", number=str(offset))
            silent_s = 0.0
            continue
        if over:
            yield format_event(json.dumps({"offset": offset}), event="end", number=str(offset))
            return
        await asyncio.sleep(LOG_LOOK_S)
        silent_s += LOG_LOOK_S
        if silent_s >= 15.0:
            yield ": beat\n\n"
            silent_s = 0.0


def _count_whole_letters(data: bytes) -> int:
    """Returns the length without a last letter that is not complete."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return len(data)
        if byte >= 0xC0:
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) if size == back else len(data) - back
    return len(data)


async def _search_log(source: LogSource, offset: int, search: str) -> dict[str, object]:
    """Returns the lines that hold a text, in any case, each with its offset. A text, not an
    expression: nobody may keep the server busy with one."""
    if len(search) > 1000:
        raise UsageError("`search` is longer than 1000 letters")
    needle = search.lower().encode()
    data, following, over = await source.read(offset, LOG_BYTES_MAX)
    if not over and b"\n" in data and following - offset == len(data):
        data = data[: data.rindex(b"\n") + 1]
        following = offset + len(data)
    found: list[dict[str, object]] = []
    at = offset
    for line in data.splitlines(keepends=True):
        if needle in line.lower():
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            found.append({"offset": at, "text": text})
            if len(found) >= FOUND_LINES_MAX:
                following, over = at + len(line), False
                break
        at += len(line)
    return {"lines": found, "next": following, "ended": over}
