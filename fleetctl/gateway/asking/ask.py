"""Answers a call: the cache first, then limits and the worst case, a slot, a server that is woken
where it is a Function, tries, the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus

from aiohttp import ClientError, ClientSession, ClientTimeout

from fleetctl.gateway.answer_log import TOKENS, TTL_S, USD, cache_key, is_cacheable
from fleetctl.gateway.asking.call import CallCharge, EndpointCall
from fleetctl.gateway.asking.call_attempt import (
    AttemptFailed,
    Begin,
    CallAttempt,
    Piece,
    headers_of,
)
from fleetctl.gateway.endpoints import GatewayEndpoint
from fleetctl.gateway.numbered_calls import CallAnswer
from fleetctl.gateway.rules.failures import (
    BUDGET_EXCEEDED,
    ENDPOINT_UNKNOWN,
    NO_ANSWER,
    NOT_SERVED,
    SERVER_UNREACHABLE,
    UNHEARD,
    GatewayRefusal,
    wait_s,
)
from fleetctl.gateway.rules.servers import (
    BROKEN,
    FAILED,
    READY_PATH,
    STARTUP_SLACK_S,
    STATE,
    UP,
    ContainerSleep,
    UpstreamServer,
)
from fleetctl.gateway.rules.usage import price_usd, worst_case

_requests = itertools.count()

ASK_S = 120.0  # one look; Modal answers 303 after 150 s, which is repeated
LOOK_S, LOOK_MOST_S = 0.1, 2.0  # between two looks that got an immediate reply
WHY_CHARS_MAX = 4_000

_waking: dict[int, asyncio.Task[bool]] = {}  # by id of the server, while it wakes


async def answer_call(
    call: EndpointCall,
    begin: Begin | None,
    piece: Piece | None,
) -> CallAnswer:
    """Answers as below, with a span of the call where spans are exported."""
    spans = call.state.spans
    if spans is None:
        return await _answer_call(call, begin, piece)
    span = spans.begin(
        call.path,
        call.body,
        call.headers,
        owner=call.grant.traceparent,
        endpoint=call.endpoint.name,
        run=call.grant.run,
    )
    headers = {**call.headers, "traceparent": span.traceparent}
    with spans.trace(span) as answers:
        answer = await _answer_call(replace(call, headers=headers, span=span), begin, piece)
        answers.append(answer)
        return answer


async def _answer_call(
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
    if call.span is not None:
        call.span.attributes["fleetctl.cache_hit"] = True
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
                other.note_outdone(time.monotonic(), call.grant.run, last=endpoint.alone(other))
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


async def ensure_awake(
    client: ClientSession,
    endpoint: GatewayEndpoint,
    server: UpstreamServer,
) -> bool:
    """Returns True if the server can take a request now; False if it is no longer declared, so that
    the caller must find another. Raises GatewayRefusal: no container became ready, or no container
    may be started.
    """
    sleep = server.sleep
    if sleep is None:
        return True
    now_s = time.monotonic()
    if sleep.blocked:
        raise GatewayRefusal(429, BUDGET_EXCEEDED, f"endpoint {endpoint.name}: {sleep.blocked}")
    if sleep.awake(now_s):
        return True
    if sleep.state(now_s) == BROKEN:
        raise _unready_refusal(endpoint, sleep)
    task = _waking.get(id(server))
    if task is None:
        sleep.starting_since_s = now_s
        task = asyncio.ensure_future(_wake_container(client, endpoint, server, sleep))
        _waking[id(server)] = task
        task.add_done_callback(lambda _: _finish_waking(server, sleep))
    there = await asyncio.shield(task)
    if there and not sleep.awake(time.monotonic()):
        raise _unready_refusal(endpoint, sleep)
    return there


@contextlib.contextmanager
def track_call(server: UpstreamServer) -> Iterator[None]:
    """A call is under way there."""
    sleep = server.sleep
    if sleep is None:
        yield
        return
    sleep.asking += 1
    try:
        yield
    finally:
        sleep.asking -= 1
        sleep.active(time.monotonic())


def _finish_waking(server: UpstreamServer, sleep: ContainerSleep) -> None:
    _waking.pop(id(server), None)
    sleep.starting_since_s = None


def _unready_refusal(endpoint: GatewayEndpoint, sleep: ContainerSleep) -> GatewayRefusal:
    message = f"endpoint {endpoint.name}: a container of {sleep.name} did not become ready"
    return GatewayRefusal(503, SERVER_UNREACHABLE, f"{message}: {sleep.why}")


async def _wake_container(
    client: ClientSession,
    endpoint: GatewayEndpoint,
    server: UpstreamServer,
    sleep: ContainerSleep,
) -> bool:
    """Calls until a container is ready, cannot be, or its time has passed. A proxy's 5xx, its
    redirect to come again and a broken connection mean that no container is there yet.
    """
    until_s = time.monotonic() + sleep.startup_s + STARTUP_SLACK_S
    pause_s = LOOK_S
    last = "no answer"
    while server in endpoint.servers:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            within = f"within {sleep.startup_s + STARTUP_SLACK_S:g} s"
            sleep.broke(f"no container was ready {within}; last: {last}", time.monotonic())
            return True
        try:
            async with client.get(
                endpoint.url_of(server, READY_PATH),
                headers=headers_of(endpoint, server),
                timeout=ClientTimeout(min(ASK_S, left_s)),
                allow_redirects=False,
                proxy=server.proxy,
            ) as reply:
                state = reply.headers.get(STATE, "")
                if state == UP:
                    sleep.note_awake(time.monotonic())
                    return True
                text = (await reply.text(errors="replace"))[-WHY_CHARS_MAX:]
                if state == FAILED:
                    sleep.broke(text, time.monotonic())
                    return True
                last = f"{reply.status} {_status_phrase(reply.status)} {text[:200]}".strip()
        except (ClientError, TimeoutError, OSError) as error:
            last = type(error).__name__
        await asyncio.sleep(pause_s)
        pause_s = min(LOOK_MOST_S, pause_s * 1.5)
    return False


def _status_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
