"""Calls the API in this process, as a user with one role in one namespace.

The checks are those of `fleetctl serve`: of the role in the server, of what would really change in
the controller, which knows the request as this user's. No port is opened.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from fleetctl.agents.tools import ApiRequest
from fleetctl.server.app import make_app
from fleetctl.server.callers import Caller, CallerCheck, ListenAddress, PeerUser
from fleetctl.stores.access import AccessStore

HOST = "127.0.0.1"
CALL_S = 600.0  # of a call; an apply may look at repositories and images first


class ApiReply(NamedTuple):
    """A reply of the API. code: the exit code of the same verb."""

    code: int
    body: Mapping[str, Any]

    @property
    def losses(self) -> list[str]:
        """Returns the sentences on what would be lost, where the refusal waits for consent."""
        found = self.body.get("losses")
        return [str(it) for it in found] if self.code and isinstance(found, list) else []


class BoundCallers(CallerCheck):
    """A check that knows a single caller."""

    def __init__(self, access: AccessStore, listens: ListenAddress, caller: Caller) -> None:
        super().__init__(access, listens)
        self._caller = caller

    async def find(
        self,
        headers: Mapping[str, str],
        cookies: Mapping[str, str],
        *,
        peer: PeerUser | None,
        address: str,
        now_s: float,
    ) -> Caller:
        """Returns the caller, whatever the request says."""
        del headers, cookies, peer, address, now_s
        return self._caller


class BoundApi:
    """The API as one user has it. `open_api` makes it."""

    def __init__(self, client: httpx2.AsyncClient, document: Mapping[str, Any]) -> None:
        self._client = client
        self.document = document

    async def send(self, request: ApiRequest) -> ApiReply:
        """Returns the reply to a request; texts have the form {text, nextOffset, ended}."""
        response = await self._client.request(
            request.method,
            request.path,
            params=dict(request.query),
            json=None if request.body is None else dict(request.body),
        )
        if response.headers.get("content-type", "").startswith("application/json"):
            return _read_document(response)
        following = response.headers.get("x-next-offset", "")
        text = {
            "text": response.content.decode("utf-8", "replace"),
            "nextOffset": int(following) if following.isdigit() else None,
            "ended": response.headers.get("x-ended") == "true",
        }
        return ApiReply(0 if response.status_code == 200 else 1, text)


@contextlib.asynccontextmanager
async def open_api(home: Path, caller: Caller) -> AsyncIterator[BoundApi]:
    """Yields the API over a state directory, as the caller has it."""
    listens = ListenAddress(HOST, 0)
    app = make_app(home, listens)
    app.state.callers = BoundCallers(app.state.parts.access, listens, caller)
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(
            transport=transport, base_url=f"http://{HOST}", timeout=CALL_S
        ) as client,
    ):
        yield BoundApi(client, app.state.openapi())


def _read_document(response: httpx2.Response) -> ApiReply:
    body = json.loads(response.content)
    assert isinstance(body, dict)
    code = body.get("code")
    if not isinstance(code, int):
        code = 0 if response.status_code == 200 else 1
    return ApiReply(code, body)
