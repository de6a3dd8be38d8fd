"""Answers a call: the cache first, then limits and the worst case, a slot, tries, the answer."""

import asyncio
import itertools
import time

from fleetctl.gateway.asking.call import EndpointCall
from fleetctl.gateway.asking.call_attempt import AttemptFailed, Begin, CallAttempt, Piece
from fleetctl.gateway.asking.charge import CallCharge
from fleetctl.gateway.asking.wake import ensure_awake, track_call
from fleetctl.gateway.endpoints import GatewayEndpoint
from fleetctl.gateway.keeping.answer_cache import TTL_S, cache_key, is_cacheable
from fleetctl.gateway.keeping.answer_log import TOKENS, USD
from fleetctl.gateway.numbered_calls import CallAnswer
from fleetctl.gateway.rules.refusal import (
    ENDPOINT_UNKNOWN,
    NO_ANSWER,
    NOT_SERVED,
    SERVER_UNREACHABLE,
    GatewayRefusal,
)
from fleetctl.gateway.rules.retry_rule import UNHEARD, wait_s
from fleetctl.gateway.rules.servers import UpstreamServer
from fleetctl.gateway.rules.usage import price_usd, worst_case

_requests = itertools.count()


async def answer_call(
    call: EndpointCall,
    begin: Begin | None,
    piece: Piece | None,
) -> CallAnswer:
    """Returns the whole answer, or, with `begin` and `piece`, a stream that was passed on as it
    came.

    Raises GatewayRefusal: over a limit, or no server answered, or a stream broke in the middle.
    """
    spec = call.endpoint.spec
    if not call.endpoint.serves(call.api):
        hint = "ask by its path of /v1, or declare a server with `api: ollama`"
        message = (
            f"endpoint {call.endpoint.name}: {call.path} is Ollama's, and it has no such server"
        )
        raise GatewayRefusal(404, NOT_SERVED, f"{message}; {hint}")
    kept_as, found = find_cached(call)
    if found is not None:
        return found
    worst = worst_case(call.path, call.body, call.length_bytes)
    charge = CallCharge(call, worst, price_usd(spec, call.model, worst))
    await charge.begin()
    try:
        answer = await _try_servers(call, charge, begin, piece)
    finally:
        charge.end()
    cache_answer(call, kept_as, answer)
    answer.headers[TOKENS] = f"{charge.tokens.inward} {charge.tokens.outward}"
    if charge.usd is not None:
        answer.headers[USD] = f"{charge.usd:.9f}"
    return answer


def find_cached(call: EndpointCall) -> tuple[str, CallAnswer | None]:
    """Returns the cache key of the answer, or "", and the cached answer if there is one."""
    policy = (call.endpoint.spec.get("cache") or {}).get("policy") or "Never"
    if call.streams or not is_cacheable(policy, call.path, call.body):
        return "", None
    name = call.endpoint.name
    kept_as = cache_key(call.grant.namespace, name, call.path, call.body, call.headers)
    found = call.state.cache.get(kept_as, time.time())
    if found is None:
        return kept_as, None

    call.state.ledger.add(call.key, hits=1)
    content_type, body = found
    headers = {"Content-Type": content_type, USD: "0", TOKENS: "0 0"}
    return kept_as, CallAnswer(200, headers, body)


def cache_answer(
    call: EndpointCall,
    kept_as: str,
    answer: CallAnswer,
) -> None:
    """Stores an answer in the cache. kept_as: cache key; "" for an answer that is not
    to be kept.
    """
    if kept_as and answer.status == 200:
        ttl_s = float((call.endpoint.spec.get("cache") or {}).get("ttlSeconds") or TTL_S)
        kind = answer.headers["Content-Type"]
        call.state.cache.put(kept_as, kind, answer.body, time.time() + ttl_s)


async def _wait_minute(endpoint: GatewayEndpoint) -> None:
    """Waits for room in the minute's limits. Each try is a request of this minute, and its tokens
    count once they are known: the requests in flight may use more than is left.
    """
    while (left_s := endpoint.minute.wait_s(endpoint.limits, time.monotonic())) > 0:
        await asyncio.sleep(left_s)
    endpoint.minute.add(time.monotonic(), requests=1, tokens=0)


async def _try_servers(
    call: EndpointCall,
    charge: CallCharge,
    begin: Begin | None,
    piece: Piece | None,
) -> CallAnswer:
    endpoint = call.endpoint
    tried = 0
    unheard = False
    failed_at: list[UpstreamServer] = []
    while True:
        asked_s = time.monotonic()
        if endpoint.limits.per_minute:
            await _wait_minute(endpoint)
        server = await endpoint.acquire(call.grant, call.api, call.prefix, failed_at)
        if server is None:
            raise _unreachable_refusal(call, unheard)
        if server.sleep is not None and not await _wake_server(call, server):
            continue
        tried += 1
        attempt = CallAttempt(call, server, charge.worst)
        request = next(_requests)
        server.burst.begin(request, attempt.begun_s)
        answered = False
        try:
            await charge.send()
            with track_call(server):
                answer = await attempt.run(begin, piece)
            answered = True
            for other in set(failed_at) - {server}:
                other.outdone(time.monotonic(), call.grant.run, last=endpoint.alone(other))
            _record_times(call, server, attempt, asked_s)
            return answer
        except AttemptFailed as failed:
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
            raise _unreachable_refusal(call, unheard, failure.status, tried)
        await asyncio.sleep(pause_s)
        await charge.again()


async def _wake_server(call: EndpointCall, server: UpstreamServer) -> bool:
    """Wakes a server. Returns False, and releases it, if another server must be used."""
    there = False
    try:
        there = await ensure_awake(call.state.client, call.endpoint, server)
        return there
    finally:
        if not there:
            call.endpoint.release(call.grant.run, server)


def _slow_down(
    server: UpstreamServer,
    attempt: CallAttempt,
    failed: AttemptFailed,
) -> None:
    """Lowers the limit of a busy server. A prompt without an answer in time is not a sign of a busy
    server, unless the server's capacity is undeclared and other prompts get no answer either.
    """
    late = failed.status == 408 and failed.answer is None
    tells = not late or (server.pace.trying and server.at_fault)
    status = failed.status if tells else None
    server.pace.failed(status, time.monotonic(), begun_s=attempt.begun_s)


def _pause_s(
    call: EndpointCall,
    attempt: CallAttempt,
    failure: AttemptFailed,
    tried: int,
) -> float | None:
    if attempt.learnt:
        return 0.0  # it is asked as it wants to be
    return wait_s(
        call.endpoint.retry,
        tried=tried,
        status=failure.status,
        retry_after_s=failure.pause_s,
    )


def _unreachable_refusal(
    call: EndpointCall,
    unheard: bool,
    status: int | None = None,
    tried: int = 0,
) -> GatewayRefusal:
    endpoint = call.endpoint
    name = f"endpoint {endpoint.name}"
    if not endpoint.servers:
        return GatewayRefusal(503, ENDPOINT_UNKNOWN, f"{name} is not declared any more")
    if unheard:
        how = f"after {endpoint.timeout_s:g} s" if status == 408 else "by a broken connection"
        last = f"; the last ended {how}" if tried else ", and now none of its servers is there"
        message = f"{name}: asked, but no answer{last}"
        return GatewayRefusal(504 if status == 408 else 502, NO_ANSWER, message)
    urls = ", ".join(server.url for server in endpoint.servers[:3])
    message = f"{name}: no server could be reached, tried {tried or 'none'} times: {urls}"
    if not tried:
        message = f"{name}: no server could be reached for {endpoint.timeout_s:g} s: {urls}"
    return GatewayRefusal(503, SERVER_UNREACHABLE, message)


def _record_times(
    call: EndpointCall,
    server: UpstreamServer,
    attempt: CallAttempt,
    asked_s: float,
) -> None:
    now_s = time.monotonic()
    took_s = now_s - attempt.begun_s
    server.pace.record_answer(now_s, took_s, full=server.in_flight >= server.pace.limit)
    for times in (call.endpoint.times, call.state.times_of(call.key)):
        times.waiting_ms.append((attempt.begun_s - asked_s) * 1000)
        times.answer_ms.append(took_s * 1000)
