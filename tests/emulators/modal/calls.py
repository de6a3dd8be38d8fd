"""Between grpclib and our handlers: who may call, faults, latency, idempotency, the log of calls.

A handler is a method named as its RPC that takes the request and returns the reply; an async
generator where the reply is a stream; and one that takes the grpclib stream where the request is.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from grpclib import GRPCError, Status
from grpclib.const import Cardinality, Handler

from .faults import AFTER, Disconnected, Faults, Paged

REPLIES_KEPT_MAX = 20_000  # for idempotency; a client's retries come within seconds
LOG_ENTRIES_MAX = 200_000

metadata: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar("metadata")


@dataclass(slots=True)
class CallLog:
    """Every call that arrived, in order, and how it ended."""

    entries: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=LOG_ENTRIES_MAX))
    counts: Counter[str] = field(default_factory=Counter)
    watched: str = ""  # a text of which tests want to know what carries it
    carriers: Counter[str] = field(default_factory=Counter)  # `Rpc.field`

    def look(self, rpc: str, request: Any) -> None:
        """Note which fields of a request carry the text that is watched for."""
        if self.watched:
            for about, value in request.ListFields():
                if self.watched in str(value):
                    self.carriers[f"{rpc}.{about.name}"] += 1

    def open(self, rpc: str, headers: Mapping[str, str]) -> dict[str, Any]:
        self.counts[rpc] += 1
        entry = {"rpc": rpc, "at_s": time.time(), "key": headers.get("x-idempotency-key", "")}
        self.entries.append(entry)
        return entry

    def clear(self) -> None:
        self.entries.clear()
        self.counts.clear()


@dataclass(slots=True)
class Service:
    """What grpclib serves: one of the SDK's generated bases, answered by `target`.

    `admit` looks at the metadata and raises what keeps the caller out.
    """

    base: type
    target: object
    admit: Callable[[str, Mapping[str, str]], None]
    faults: Faults
    log: CallLog
    replies: OrderedDict[str, asyncio.Future[Any]] = field(default_factory=OrderedDict)

    def __mapping__(self) -> dict[str, Handler]:
        return {path: self._wrapped(path, found) for path, found in _methods(self.base).items()}

    def _wrapped(self, path: str, found: Handler) -> Handler:
        name = path.rpartition("/")[2]
        handle = getattr(self.target, name, None)

        async def serve(stream: Any) -> None:
            entry = self.log.open(name, stream.metadata)
            started = time.monotonic()
            try:
                await self._serve(name, handle, stream, found.cardinality)
                entry["status"] = "OK"
            except GRPCError as error:
                entry["status"] = error.status.name
                raise
            except Disconnected:
                entry["status"] = "DISCONNECT"
                cut(stream)
            except Paged as page:
                entry["status"] = "PAGE"
                await show_page(stream, str(page))
            finally:
                entry["took_s"] = round(time.monotonic() - started, 6)

        return Handler(serve, found.cardinality, found.request_type, found.reply_type)

    async def _serve(self, name: str, handle: Any, stream: Any, cardinality: Cardinality) -> None:
        metadata.set(stream.metadata)
        latency = self.faults.latency(name)
        if latency:
            await asyncio.sleep(latency)
        fault = self.faults.find(name)
        if fault and fault.when != AFTER:
            await self.faults.strike(fault)
        self.admit(name, stream.metadata)
        if handle is None:
            raise GRPCError(Status.UNIMPLEMENTED, f"the emulator does not know {name}")
        if cardinality.client_streaming:
            reply = await handle(stream)
        else:
            request = await stream.recv_message()
            self.log.look(name, request)
            if cardinality.server_streaming:
                async for part in handle(request):
                    await stream.send_message(part)
                    if fault:
                        break  # a stream is struck after its first message
                reply = None
            else:
                reply = await self._once(name, handle, request, stream.metadata)
        if fault and fault.when == AFTER:
            await self.faults.strike(fault)
        if reply is not None:
            await stream.send_message(reply)

    async def _once(self, name: str, handle: Any, request: Any, headers: Mapping[str, str]) -> Any:
        """The same key gets the same reply, also while the first call is under way. Only the reply
        of success is kept: what failed before its effect may be tried again.
        """
        key = headers.get("x-idempotency-key")
        if not key:
            return await handle(request)
        key = name + "/" + key
        if key in self.replies:
            return await asyncio.shield(self.replies[key])
        # Not cancelled with the caller: what the server has begun, it ends.
        future = asyncio.ensure_future(handle(request))
        self.replies[key] = future
        if len(self.replies) > REPLIES_KEPT_MAX:
            self.replies.popitem(last=False)
        try:
            return await asyncio.shield(future)
        except GRPCError:
            self.replies.pop(key, None)
            raise


def cut(stream: Any) -> None:
    """Close the connection under a call, without an answer."""
    stream._stream.connection._transport.abort()


async def show_page(stream: Any, status: str) -> None:
    """Answer as a proxy does that knows nothing of gRPC."""
    headers = [(":status", status), ("content-type", "text/html")]
    await stream._stream.send_headers(headers)
    page = f"<html><body>{status}: no such page</body></html>"
    await stream._stream.send_data(page.encode(), end_stream=True)
    stream._send_initial_metadata_done = stream._send_message_done = True
    stream._send_trailing_metadata_done = True


def _methods(base: type) -> dict[str, Handler]:
    """The generated table of paths. Its class is abstract, so an instance of it needs a filler."""

    async def unset(_self: object, _stream: object) -> None:
        raise AssertionError("a generated handler is never called")

    members: dict[str, Callable[..., Awaitable[None]]] = {}
    for name in getattr(base, "__abstractmethods__", ()):
        members[name] = unset
    filled = type("Filled", (base,), members)
    table: dict[str, Handler] = filled().__mapping__()
    return table
