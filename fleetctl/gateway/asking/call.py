"""One call: limits and the worst case first, then a slot, tries, the answer, what it used."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientError, ClientPayloadError, ClientTimeout

from fleetctl.gateway.endpoints import Endpoint, Grant
from fleetctl.gateway.keeping.cache import TTL_S, cache_key, cacheable
from fleetctl.gateway.keeping.ledger import Key
from fleetctl.gateway.numbered import Answer
from fleetctl.gateway.rules.limits import over_task_limit
from fleetctl.gateway.rules.retry import wait_s
from fleetctl.gateway.rules.servers import Server
from fleetctl.gateway.rules.usage import Tokens, calls_of, price_usd, used, worst_case
from fleetctl.gateway.state import State

TIMEOUT_S = 60.0
TAIL_BYTES = 64 * 1024  # of a stream: where its usage stands
CONNECT_S = 5.0
Begin = Callable[[int, str], Awaitable[None]]
Piece = Callable[[bytes], Awaitable[None]]


class Refusal(Exception):
    """What the task hears instead of an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Failed(Exception):
    """A try without an answer; `status` None is a failed connection."""

    def __init__(self, status: int | None, answer: Answer | None, retry_after_s: float) -> None:
        super().__init__(status)
        self.status, self.answer, self.retry_after_s = status, answer, retry_after_s


@dataclass(frozen=True, slots=True)
class Call:
    state: State
    grant: Grant
    endpoint: Endpoint
    path: str
    body: dict[str, Any] = field(repr=False)
    length_bytes: int

    @property
    def key(self) -> Key:
        return (self.grant.run, self.grant.namespace, self.endpoint.name)

    @property
    def model(self) -> str:
        return str(self.body.get("model") or "")

    @property
    def streams(self) -> bool:
        """Ollama's chat and generate stream unless told otherwise."""
        return bool(self.body.get("stream", self.path in ("/api/chat", "/api/generate")))


async def ask(call: Call, begin: Begin | None, piece: Piece | None) -> Answer:
    """The whole answer, or, with `begin` and `piece`, a stream that was passed on as it came.

    Raises Refusal: over a limit, or no server answered, or a stream broke in the middle."""
    state, spec = call.state, call.endpoint.spec
    worst = worst_case(call.path, call.body, call.length_bytes)
    calls = calls_of(call.body)
    cache = spec.get("cache") or {}
    kept_as = ""
    if not call.streams and cacheable(cache.get("policy") or "Never", call.path, call.body):
        kept_as = cache_key(call.grant.namespace, call.endpoint.name, call.path, call.body)
        found = state.cache.get(kept_as, time.time())
        if found is not None:
            state.ledger.add(call.key, hits=1)
            return Answer(200, {"Content-Type": found[0]}, found[1])
    worst_usd = price_usd(spec, call.model, worst)
    _check(call, calls, worst_usd)
    state.ledger.reserve(call.key, calls, worst, worst_usd)
    spent: Tokens | None = Tokens()
    unpriced_usd: float | None = 0.0
    try:
        await state.ledger.durable()
        while (left_s := call.endpoint.minute.wait_s(call.endpoint.limits, time.monotonic())) > 0:
            await asyncio.sleep(left_s)
        now_s = time.monotonic()
        call.endpoint.minute.add(now_s, requests=1, tokens=worst.inward)
        spent = None  # from here a server may have counted what we did not hear of
        answer = await _tries(call, begin, piece)
        spent = used(answer.body) if answer.status < 400 else Tokens()
    finally:
        tokens = worst if spent is None else spent
        unpriced_usd = price_usd(spec, call.model, tokens) if tokens != Tokens() else 0.0
        state.ledger.settle(call.key, worst, worst_usd, tokens, unpriced_usd)
    if kept_as and answer.status == 200:
        until_s = time.time() + float(cache.get("ttlSeconds") or TTL_S)
        state.cache.put(kept_as, answer.headers["Content-Type"], answer.body, until_s)
    return answer


def _check(call: Call, calls: int, worst_usd: float | None) -> None:
    row = call.state.ledger.row(call.key)
    tokens = sum(int(row[n]) for n in ("tokens_in", "tokens_out", "reserved_in", "reserved_out"))
    message = over_task_limit(
        call.endpoint.limits, calls=int(row["calls"]), tokens=tokens, asked=calls
    )
    left_usd = call.grant.usd_left
    if not message and left_usd is not None and worst_usd is not None:
        spent_usd = call.state.ledger.usd_of(call.grant.run)
        if spent_usd + worst_usd > left_usd:
            asked = f"${worst_usd:.4f} asked at worst"
            message = f"budget: ${spent_usd:.4f} used, {asked}, ${left_usd:.4f} allowed"
    if message:
        call.state.ledger.add(call.key, refused=calls)
        raise Refusal(429, f"endpoint {call.endpoint.name}: {message}")


async def _tries(call: Call, begin: Begin | None, piece: Piece | None) -> Answer:
    endpoint, tried = call.endpoint, 0
    prefer = _prefix(call.body)
    times = call.state.times[call.key]
    while True:
        asked_s = time.monotonic()
        server = await endpoint.acquire(call.grant, prefer)
        begun_s = time.monotonic()
        tried += 1
        try:
            call.state.ledger.add(call.key, tries=1)
            answer = await _try(call, server, begin, piece)
            endpoint.adaptive.answered()
            times.waiting_ms.append((begun_s - asked_s) * 1000)
            times.answer_ms.append((time.monotonic() - begun_s) * 1000)
            return answer
        except _Failed as failed:
            failure = failed
            endpoint.adaptive.failed(failure.status)
        finally:
            endpoint.release(call.grant.run, server)
        pause_s = wait_s(
            endpoint.retry,
            tried=tried,
            status=failure.status,
            retry_after_s=failure.retry_after_s,
        )
        if pause_s is None:
            if failure.answer is not None:
                return failure.answer
            raise Refusal(502, f"endpoint {endpoint.name}: no server answered in {tried} tries")
        await asyncio.sleep(pause_s)


async def _try(call: Call, server: Server, begin: Begin | None, piece: Piece | None) -> Answer:
    endpoint = call.endpoint
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    body = call.body
    if call.model:
        body = {**body, "model": endpoint.served_name(call.model)}
    timeout = ClientTimeout(endpoint.spec.get("timeoutSeconds") or TIMEOUT_S, connect=CONNECT_S)
    begun = False
    try:
        async with call.state.client.post(
            server.url + call.path,
            json=body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        ) as reply:
            kind = {"Content-Type": reply.headers.get("Content-Type", "application/json")}
            if reply.status >= 400:
                answer = Answer(reply.status, kind, await reply.read())
                if reply.status >= 500:
                    server.failed(time.monotonic(), refused=False)
                raise _Failed(reply.status, answer, _seconds(reply.headers.get("Retry-After")))
            if reply.status >= 300:
                raise Refusal(502, f"endpoint {endpoint.name}: the server redirects elsewhere")
            if not call.streams or begin is None or piece is None:
                answer = Answer(reply.status, kind, await reply.read())
                server.succeeded()
                return answer
            begun, tail = True, b""
            await begin(reply.status, kind["Content-Type"])
            async for data in reply.content.iter_any():
                tail = (tail + data)[-TAIL_BYTES:]
                await piece(data)
            server.succeeded()
            return Answer(reply.status, kind, tail)
    except (ClientError, TimeoutError, OSError) as error:
        if begun or isinstance(error, ClientPayloadError):
            raise Refusal(502, f"endpoint {endpoint.name}: the answer broke off") from None
        server.failed(time.monotonic(), refused=not isinstance(error, TimeoutError))
        raise _Failed(408 if isinstance(error, TimeoutError) else None, None, 0.0) from None


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdecimal() else 0.0


def _prefix(body: dict[str, Any]) -> int | None:
    """A number for the first message: requests that share it share a server's prefix cache."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    return hash(json.dumps(messages[0], sort_keys=True))
