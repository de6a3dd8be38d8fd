"""Asking: the cache first, then limits and the worst case, a slot, tries, the answer."""

import asyncio
import itertools
import time

from fleetctl.gateway.asking.attempt import Attempt, Begin, Failed, Piece
from fleetctl.gateway.asking.call import Call
from fleetctl.gateway.asking.charge import Charge
from fleetctl.gateway.asking.wake import asked, awake
from fleetctl.gateway.endpoints import Endpoint
from fleetctl.gateway.keeping.cache import TTL_S, cache_key, cacheable
from fleetctl.gateway.keeping.kept import TOKENS, USD
from fleetctl.gateway.numbered import Answer
from fleetctl.gateway.rules.refusal import (
    ENDPOINT_UNKNOWN,
    NO_ANSWER,
    NOT_SERVED,
    SERVER_UNREACHABLE,
    Refusal,
)
from fleetctl.gateway.rules.retry import UNHEARD, wait_s
from fleetctl.gateway.rules.servers import Server
from fleetctl.gateway.rules.usage import price_usd, worst_case

_requests = itertools.count()


async def ask(call: Call, begin: Begin | None, piece: Piece | None) -> Answer:
    """The whole answer, or, with `begin` and `piece`, a stream that was passed on as it came.

    Raises Refusal: over a limit, or no server answered, or a stream broke in the middle."""
    spec = call.endpoint.spec
    if not call.endpoint.serves(call.api):
        hint = "ask by its path of /v1, or declare a server with `api: ollama`"
        message = (
            f"endpoint {call.endpoint.name}: {call.path} is Ollama's, and it has no such server"
        )
        raise Refusal(404, NOT_SERVED, f"{message}; {hint}")
    kept_as, found = cached(call)
    if found is not None:
        return found
    worst = worst_case(call.path, call.body, call.length_bytes)
    charge = Charge(call, worst, price_usd(spec, call.model, worst))
    await charge.begin()
    try:
        answer = await _tries(call, charge, begin, piece)
    finally:
        charge.end()
    cache(call, kept_as, answer)
    answer.headers[TOKENS] = f"{charge.tokens.inward} {charge.tokens.outward}"
    if charge.usd is not None:
        answer.headers[USD] = f"{charge.usd:.9f}"
    return answer


def cached(call: Call) -> tuple[str, Answer | None]:
    """What its answer is to be kept as, or "", and the answer that is."""
    policy = (call.endpoint.spec.get("cache") or {}).get("policy") or "Never"
    if call.streams or not cacheable(policy, call.path, call.body):
        return "", None
    kept_as = cache_key(call.grant.namespace, call.endpoint.name, call.path, call.body)
    found = call.state.cache.get(kept_as, time.time())
    if found is None:
        return kept_as, None
    call.state.ledger.add(call.key, hits=1)
    return kept_as, Answer(200, {"Content-Type": found[0], USD: "0", TOKENS: "0 0"}, found[1])


def cache(call: Call, kept_as: str, answer: Answer) -> None:
    """kept_as: "" for one that is not to be kept."""
    if kept_as and answer.status == 200:
        ttl_s = float((call.endpoint.spec.get("cache") or {}).get("ttlSeconds") or TTL_S)
        kind = answer.headers["Content-Type"]
        call.state.cache.put(kept_as, kind, answer.body, time.time() + ttl_s)


async def _minute(endpoint: Endpoint) -> None:
    """Each try is a request of this minute, and its tokens are when they are known: what is in
    flight may be more than is left."""
    while (left_s := endpoint.minute.wait_s(endpoint.limits, time.monotonic())) > 0:
        await asyncio.sleep(left_s)
    endpoint.minute.add(time.monotonic(), requests=1, tokens=0)


async def _tries(call: Call, charge: Charge, begin: Begin | None, piece: Piece | None) -> Answer:
    endpoint, tried, unheard = call.endpoint, 0, False
    failed_at: list[Server] = []
    while True:
        asked_s = time.monotonic()
        if endpoint.limits.per_minute:
            await _minute(endpoint)
        server = await endpoint.acquire(call.grant, call.api, call.prefix, failed_at)
        if server is None:
            raise _nobody(call, unheard)
        if server.sleep is not None and not await _woken(call, server):
            continue
        tried += 1
        attempt = Attempt(call, server, charge.worst)
        request = next(_requests)
        server.burst.begin(request, attempt.begun_s)
        answered = False
        try:
            await charge.send()
            with asked(server):
                answer = await attempt.run(begin, piece)
            answered = True
            for other in set(failed_at) - {server}:
                other.outdone(time.monotonic(), call.grant.run, last=endpoint.alone(other))
            _time(call, server, attempt, asked_s)
            return answer
        except Failed as failed:
            failure = failed
            _slow_down(server, attempt, failed)
            if failed.status is None or failed.status >= 500 or failed.status in UNHEARD:
                failed_at = [*failed_at, server]
        finally:
            spent = attempt.used()
            charge.settle(spent)
            if endpoint.limits.per_minute:
                tokens = spent.inward + spent.outward
                endpoint.minute.add(time.monotonic(), requests=0, tokens=tokens)
            endpoint.release(call.grant.run, server)
            idle = server.in_flight == 0
            server.burst.end(request, time.monotonic(), answered=answered, idle=idle)
        unheard = unheard or (failure.answer is None and attempt.sent)
        pause_s = _pause_s(call, attempt, failure, tried)
        if pause_s is None:
            if failure.answer is not None:
                return failure.answer
            raise _nobody(call, unheard, failure.status, tried)
        await asyncio.sleep(pause_s)
        await charge.again()


async def _woken(call: Call, server: Server) -> bool:
    """False, and it is let go, where it is another server that is to be asked."""
    there = False
    try:
        there = await awake(call.state.client, call.endpoint, server)
        return there
    finally:
        if not there:
            call.endpoint.release(call.grant.run, server)


def _slow_down(server: Server, attempt: Attempt, failed: Failed) -> None:
    """A prompt that gets no answer in time is no sign of a busy server, unless others get none."""
    status = failed.status if failed.status != 408 or server.at_fault else None
    server.pace.failed(status, time.monotonic(), begun_s=attempt.begun_s)


def _pause_s(call: Call, attempt: Attempt, failure: Failed, tried: int) -> float | None:
    if attempt.learnt:
        return 0.0  # it is asked as it wants to be
    return wait_s(
        call.endpoint.retry, tried=tried, status=failure.status, retry_after_s=failure.pause_s
    )


def _nobody(call: Call, unheard: bool, status: int | None = None, tried: int = 0) -> Refusal:
    endpoint = call.endpoint
    name = f"endpoint {endpoint.name}"
    if not endpoint.servers:
        return Refusal(503, ENDPOINT_UNKNOWN, f"{name} is not declared any more")
    if unheard:
        how = f"after {endpoint.timeout_s:g} s" if status == 408 else "by a broken connection"
        last = f"; the last ended {how}" if tried else ", and now none of its servers is there"
        message = f"{name}: asked, but no answer{last}"
        return Refusal(504 if status == 408 else 502, NO_ANSWER, message)
    urls = ", ".join(server.url for server in endpoint.servers[:3])
    message = f"{name}: no server could be reached, tried {tried or 'none'} times: {urls}"
    if not tried:
        message = f"{name}: no server could be reached for {endpoint.timeout_s:g} s: {urls}"
    return Refusal(503, SERVER_UNREACHABLE, message)


def _time(call: Call, server: Server, attempt: Attempt, asked_s: float) -> None:
    now_s = time.monotonic()
    took_s = now_s - attempt.begun_s
    server.pace.answered(now_s, took_s, full=server.in_flight >= server.pace.limit)
    for times in (call.endpoint.times, call.state.times_of(call.key)):
        times.waiting_ms.append((attempt.begun_s - asked_s) * 1000)
        times.answer_ms.append(took_s * 1000)
