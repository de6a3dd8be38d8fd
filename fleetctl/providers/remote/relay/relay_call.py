"""Sends one request of a sandbox to the gateway over loopback. Called by relay.py.

The number goes along: the gateway asks a model once, even for repeated requests, and sends the
answer again from where it was.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

from fleetctl.guest.remote.relay.http import to_task
from fleetctl.providers.contract.endpoint_access import EndpointAccess
from fleetctl.providers.remote.relay.outbox import Outbox
from fleetctl.providers.remote.relay.relay_messages import RelayRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import aiohttp

log = logging.getLogger("fleetctl.providers")

CONNECT_S = 5.0
CANCEL_S = 5.0
AGAIN_S, AGAIN_MAX_S = 0.1, 2.0  # while the gateway starts again
AWAY_S = 120.0  # for it to be there; then the task gets an error
BACK_PREFIX = "x-fleetctl-"


class _GatewayUnreachable(Exception):
    """Raised when no part of an answer came."""


async def ask_gateway(
    client: aiohttp.ClientSession,
    access: Callable[[], EndpointAccess],
    request: RelayRequest,
    outbox: Outbox,
) -> None:
    """Puts the answer into the outbox. access: as it is now; the gateway may come to listen
    elsewhere.
    """
    loop = asyncio.get_running_loop()
    again_s = AGAIN_S
    until_s = loop.time() + AWAY_S
    while True:
        try:
            await _try_ask(client, access(), request, outbox)
            return
        except _GatewayUnreachable:
            if loop.time() > until_s:
                _refuse_request(request, outbox)
                return
        await asyncio.sleep(again_s)
        again_s = min(2 * again_s, AGAIN_MAX_S)


async def cancel_request(
    client: aiohttp.ClientSession,
    access: EndpointAccess,
    number: str,
) -> None:
    """Asks the gateway to send no more requests under that number, as far as it can be reached."""
    import aiohttp

    url = f"{access.base_url.rstrip('/')}/asked/{number}"
    headers = _auth_headers(access)
    try:
        timeout = aiohttp.ClientTimeout(CANCEL_S)
        async with client.delete(url, headers=headers, timeout=timeout) as reply:
            await reply.read()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        log.info("call not cancelled", extra={"error": type(error).__name__})


async def _try_ask(
    client: aiohttp.ClientSession,
    access: EndpointAccess,
    request: RelayRequest,
    outbox: Outbox,
) -> None:
    """Raises _GatewayUnreachable."""
    import aiohttp
    from yarl import URL

    url = URL(access.base_url.rstrip("/") + request.path, encoded=True)
    own = {"X-Fleetctl-Number": request.number, "X-Fleetctl-Have": str(request.have)}
    headers = {**request.headers, **_auth_headers(access), **own}
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
            outbox.begin(request.number, reply.status, _reply_headers(reply.headers))
            if whole:
                outbox.piece(request.number, whole)
            async for data in reply.content.iter_any():
                outbox.piece(request.number, data)
            outbox.end(request.number)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        if not begun:
            raise _GatewayUnreachable from error
        outbox.break_off(request.number)


def _auth_headers(access: EndpointAccess) -> dict[str, str]:
    return {"Authorization": f"Bearer {access.token}"}


def _reply_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers of an answer that clients go by."""
    own = {name: it for name, it in headers.items() if name.lower().startswith(BACK_PREFIX)}
    return {"content-type": headers.get("content-type", ""), **to_task(headers), **own}


def _refuse_request(request: RelayRequest, outbox: Outbox) -> None:
    if request.have:
        outbox.break_off(request.number)
        return
    message = f"the gateway of the controller has not answered for {AWAY_S:.0f} s"
    error = {"message": message, "type": "fleetctl", "code": 503}
    outbox.begin(request.number, 503, {"Content-Type": "application/json"})
    outbox.piece(request.number, json.dumps({"error": error}).encode())
    outbox.end(request.number)
