"""One request of a sandbox, asked of the gateway over loopback. Called by relay.py.

The number goes along: the gateway asks a model once, however often it hears it, and tells the
answer again from where it was.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

from fleetctl.providers.contract.endpoints import EndpointAccess
from fleetctl.providers.remote.relay.messages import Request
from fleetctl.providers.remote.relay.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp

log = logging.getLogger("fleetctl.providers")

CONNECT_S = 5.0
CANCEL_S = 5.0
AGAIN_S, AGAIN_MAX_S = 0.1, 2.0  # while the gateway is begun anew
AWAY_S = 120.0  # for it to be there; then the task is told
BACK_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-should-retry")
BACK_PREFIX = "x-fleetctl-"


class _Away(Exception):
    """Nothing of an answer came."""


async def ask(
    client: aiohttp.ClientSession,
    access: Callable[[], EndpointAccess],
    request: Request,
    outbox: Outbox,
) -> None:
    """Put the answer into the outbox. access: as it is now; the gateway may come to listen
    elsewhere.
    """
    loop, again_s = asyncio.get_running_loop(), AGAIN_S
    until_s = loop.time() + AWAY_S
    while True:
        try:
            await _ask(client, access(), request, outbox)
            return
        except _Away:
            if loop.time() > until_s:
                _refuse(request, outbox)
                return
        await asyncio.sleep(again_s)
        again_s = min(2 * again_s, AGAIN_MAX_S)


async def cancel(client: aiohttp.ClientSession, access: EndpointAccess, number: str) -> None:
    """Let the gateway ask no more under that number, as far as it can be told."""
    import aiohttp

    url, headers = f"{access.base_url.rstrip('/')}/asked/{number}", _headers(access)
    try:
        timeout = aiohttp.ClientTimeout(CANCEL_S)
        async with client.delete(url, headers=headers, timeout=timeout) as reply:
            await reply.read()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        log.info("call not cancelled", extra={"error": type(error).__name__})


async def _ask(
    client: aiohttp.ClientSession, access: EndpointAccess, request: Request, outbox: Outbox
) -> None:
    """Raises _Away."""
    import aiohttp
    from yarl import URL

    url = URL(access.base_url.rstrip("/") + request.path, encoded=True)
    own = {"X-Fleetctl-Number": request.number, "X-Fleetctl-Have": str(request.have)}
    headers = {**request.headers, **_headers(access), **own}
    timeout = aiohttp.ClientTimeout(None, sock_connect=CONNECT_S)
    begun = False
    try:
        async with client.request(
            request.method,
            url,
            data=request.body or None,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        ) as reply:
            if request.have and reply.status >= 400:
                outbox.break_off(request.number)  # its beginning is there, and its rest nowhere
                return
            whole = await reply.read() if reply.content_length is not None else b""
            begun = True
            outbox.begin(request.number, reply.status, _back(reply.headers.items()))
            if whole:
                outbox.piece(request.number, whole)
            async for data in reply.content.iter_any():
                outbox.piece(request.number, data)
            outbox.end(request.number)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        if not begun:
            raise _Away from error
        outbox.break_off(request.number)


def _headers(access: EndpointAccess) -> dict[str, str]:
    return {"Authorization": f"Bearer {access.token}"}


def _back(headers: object) -> dict[str, str]:
    """Those of an answer that clients go by."""
    kept = {}
    for name, value in headers:  # type: ignore[attr-defined]
        if name.lower() in BACK_HEADERS or name.lower().startswith(BACK_PREFIX):
            kept[name] = value
    return kept


def _refuse(request: Request, outbox: Outbox) -> None:
    if request.have:
        outbox.break_off(request.number)
        return
    message = f"the gateway of the controller has not answered for {AWAY_S:.0f} s"
    error = {"message": message, "type": "fleetctl", "code": 503}
    outbox.begin(request.number, 503, {"Content-Type": "application/json"})
    outbox.piece(request.number, json.dumps({"error": error}).encode())
    outbox.end(request.number)
