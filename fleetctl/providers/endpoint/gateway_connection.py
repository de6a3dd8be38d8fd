"""The connection to the gateway: one WebSocket that carries the calls of all rows. Never logs.

fleetctl/gateway/data/websocket_line.py defines the frames.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.endpoint_access import EndpointAccess
from fleetctl.providers.endpoint.endpoint_check import EXTRA
from fleetctl.providers.endpoint.model_replies import GatewayReply

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientWebSocketResponse

PATH = "/v1/chat/completions"
BATCH = "/batch"  # before it
CALLS = "/calls"
CONNECT_S = 10.0
HEARTBEAT_S = 30.0  # a gateway that hangs is a broken line
AWAY_S = 1.0  # a gateway that ended is started again within a second or two
ANSWER_BYTES_MAX = 64 << 20  # an answer that may be kept is far smaller


class GatewayConnection:
    """Opened with the first call, and again after it broke: most controllers never ask a prompt."""

    def __init__(self) -> None:
        self._client: ClientSession | None = None
        self._open: _OpenSocket | None = None
        self._opening = asyncio.Lock()

    async def post(
        self,
        access: EndpointAccess,
        endpoint: str,
        number: int,
        body: Mapping[str, Any],
        *,
        batched: bool = False,
    ) -> GatewayReply:
        """Sends the request under the number; a repeated one gets the answer that the gateway has
        kept.
        batched: it may come by a batch, hours later. Raises Unavailable when the line broke,
        whatever became of the call.
        """
        line = await self._opened(access)
        path = f"/endpoints/{endpoint}{BATCH if batched else ''}{PATH}"
        head = {"token": access.token, "path": path, "number": number}
        try:
            return await line.ask(head, json.dumps(body).encode())
        except ConnectionError as error:
            raise _gateway_unreachable(error) from error

    async def drop(self, access: EndpointAccess, number: int) -> None:
        """Drops an answer that no caller wants any more. Without a connection no request is
        sent.
        """
        if self._open is not None and self._open.serves(access.base_url):
            with suppress(ConnectionError):
                await self._open.drop({"token": access.token, "path": "", "number": number})

    async def close(self) -> None:
        if self._open is not None:
            await self._open.close()
        if self._client is not None:
            await self._client.close()

    async def _opened(self, access: EndpointAccess) -> _OpenSocket:
        """Returns the one connection, made again where it broke or the gateway has another address
        by now.
        """
        base_url = access.base_url
        if self._open is not None and self._open.serves(base_url):
            return self._open
        async with self._opening:
            if self._open is not None and self._open.serves(base_url):
                return self._open
            if self._open is not None:
                await self._open.close()
            self._open = _OpenSocket(base_url, await self._connected(access))
            return self._open

    async def _connected(self, access: EndpointAccess) -> ClientWebSocketResponse:
        try:
            from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar
        except ModuleNotFoundError as error:
            message = f"a prompt needs the package `{error.name}`, which is not installed"
            raise Refused(message, hint=install_hint(EXTRA)) from error
        if self._client is None:
            # The endpoint and the template limit the time of an answer.
            timeout = ClientTimeout(total=None, sock_connect=CONNECT_S)
            jar = DummyCookieJar()
            self._client = ClientSession(
                cookie_jar=jar,
                timeout=timeout,
                trust_env=False,
            )
        try:
            return await self._client.ws_connect(
                access.base_url + CALLS,
                headers={"Authorization": f"Bearer {access.token}"},
                max_msg_size=ANSWER_BYTES_MAX,
                heartbeat=HEARTBEAT_S,
            )
        except (ClientError, OSError, TimeoutError) as error:
            raise _gateway_unreachable(error) from error


class _OpenSocket:
    """A connection, and the callers that wait for a reply by it."""

    def __init__(self, base_url: str, socket: ClientWebSocketResponse) -> None:
        self._base_url = base_url
        self._socket = socket
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[GatewayReply]] = {}
        self._reading = asyncio.create_task(self._read())

    def serves(self, base_url: str) -> bool:
        return self._base_url == base_url and not self._socket.closed and not self._reading.done()

    async def ask(self, head: Mapping[str, object], body: bytes) -> GatewayReply:
        """Raises ConnectionError when it broke before the reply."""
        me = next(self._ids)
        reply: asyncio.Future[GatewayReply] = asyncio.get_running_loop().create_future()
        self._waiting[me] = reply
        try:
            await self._socket.send_bytes(json.dumps({**head, "id": me}).encode() + b"\n" + body)
            return await reply
        finally:
            del self._waiting[me]

    async def drop(self, head: Mapping[str, object]) -> None:
        await self._socket.send_bytes(json.dumps({**head, "id": 0, "drop": True}).encode() + b"\n")

    async def close(self) -> None:
        self._reading.cancel()
        await self._socket.close()

    async def _read(self) -> None:
        """Reads until the connection breaks: then the waiting callers get an error."""
        from aiohttp import WSMsgType

        try:
            async for message in self._socket:
                if message.type is not WSMsgType.BINARY:
                    return
                head, _, body = message.data.partition(b"\n")
                reply_head = json.loads(head)
                reply = self._waiting.get(reply_head["id"])  # None: no caller waits for it any more
                if reply is not None and not reply.done():
                    again_at_s = reply_head.get("again_at_s", 0.0)
                    usd = reply_head.get("usd")
                    reply.set_result(GatewayReply(reply_head["status"], body, usd, again_at_s))
        finally:
            for reply in self._waiting.values():
                if not reply.done():
                    reply.set_exception(ConnectionResetError("the line broke"))


def _gateway_unreachable(error: Exception) -> Unavailable:
    message = f"the gateway does not answer: {type(error).__name__}"
    return Unavailable(message, reason="EndpointNotReady", retry_after_s=AWAY_S)
