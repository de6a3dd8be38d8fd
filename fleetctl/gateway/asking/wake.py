"""Wakes a server that is a Function before a call: its container is started once for all waiting
calls, and no try counts before it is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from http import HTTPStatus

from aiohttp import ClientError, ClientSession, ClientTimeout

from fleetctl.gateway.asking.call_attempt import headers_of
from fleetctl.gateway.endpoints import GatewayEndpoint
from fleetctl.gateway.rules.container_sleep import (
    BROKEN,
    FAILED,
    READY_PATH,
    STARTUP_SLACK_S,
    STATE,
    UP,
    ContainerSleep,
)
from fleetctl.gateway.rules.refusal import BUDGET_EXCEEDED, SERVER_UNREACHABLE, GatewayRefusal
from fleetctl.gateway.rules.servers import UpstreamServer

ASK_S = 120.0  # one look; Modal answers 303 after 150 s, which is repeated
LOOK_S, LOOK_MOST_S = 0.1, 2.0  # between two looks that got an immediate reply
WHY_CHARS_MAX = 4_000

_waking: dict[int, asyncio.Task[bool]] = {}  # by id of the server, while it wakes


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
                    sleep.woke(time.monotonic())
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
