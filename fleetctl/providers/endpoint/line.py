"""The line to the gateway: one HTTP client for all rows. Never logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.endpoints import EndpointAccess
from fleetctl.providers.endpoint.check import INSTALL
from fleetctl.providers.endpoint.replies import Reply

if TYPE_CHECKING:
    from aiohttp import ClientSession

PATH = "/v1/chat/completions"
CONNECT_S = 10.0
AWAY_S = 1.0  # a gateway that ended is started again within a second or two


class Line:
    """The client is made with the first call: most controllers never ask a prompt."""

    def __init__(self) -> None:
        self._client: ClientSession | None = None

    async def post(
        self, access: EndpointAccess, endpoint: str, number: int, body: Mapping[str, Any]
    ) -> Reply:
        """Ask under the number; asked again, the gateway tells the answer that it has kept. Raises
        Unavailable when the line broke, whatever became of the call.
        """
        client = self._open()
        from aiohttp import ClientError

        try:
            async with client.post(
                f"{access.base_url}/endpoints/{endpoint}{PATH}",
                data=json.dumps(body).encode(),
                headers={
                    "Authorization": f"Bearer {access.token}",
                    "Content-Type": "application/json",
                    "X-Fleetctl-Number": str(number),
                },
                allow_redirects=False,
            ) as reply:
                usd = reply.headers.get("X-Fleetctl-Usd")
                return Reply(reply.status, await reply.read(), _amount(usd))
        except (ClientError, OSError, TimeoutError) as error:
            message = f"the gateway does not answer: {type(error).__name__}"
            raise Unavailable(message, reason="Unreachable", retry_after_s=AWAY_S) from error

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _open(self) -> ClientSession:
        if self._client is None:
            try:
                from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
            except ModuleNotFoundError as error:
                message = f"a prompt needs the package `{error.name}`, which is not installed"
                raise Refused(message, hint=INSTALL) from error
            # How long an answer may take is the endpoint's and the template's to say.
            self._client = ClientSession(
                connector=TCPConnector(limit=0),
                cookie_jar=DummyCookieJar(),
                timeout=ClientTimeout(total=None, sock_connect=CONNECT_S),
                trust_env=False,
            )
        return self._client


def _amount(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
