"""Finds the server of an endpoint that takes batches by a free request, before anything is
uploaded.
"""

import asyncio
import time
from contextlib import suppress

from aiohttp import ClientSession

from fleetctl.gateway.batching.batch_api import BatchApi, BatchDenied, BatchUnanswered
from fleetctl.gateway.endpoints import GatewayEndpoint
from fleetctl.gateway.rules.refusal import NO_BATCHES, SERVER_UNREACHABLE, GatewayRefusal

NO_FOR_S = 60.0  # a server without it may have been another version
OLLAMA = "ollama"
LOOKS, AGAIN_S = 2, 2.0  # one odd reply is checked again


class BatchServers:
    def __init__(self, client: ClientSession) -> None:
        self._client = client
        self._takes: set[str] = set()  # urls
        self._none_until_s: dict[str, float] = {}

    async def with_batches(self, endpoint: GatewayEndpoint) -> str:
        """Returns the URL of the first server with a batch API. Raises GatewayRefusal: no server
        has a batch API, or no server answers.
        """
        away = ""
        for server in endpoint.servers:
            if server.api == OLLAMA or server.sleep is not None:
                continue  # a request would start a Function's container, which has no batch API
            if server.url in self._takes:
                return server.url
            if self._none_until_s.get(server.url, 0.0) > time.monotonic():
                continue
            remote = BatchApi(self._client, server.url, endpoint.access)
            try:
                if await _takes_batches(remote):
                    self._takes.add(server.url)
                    return server.url
            except (BatchUnanswered, BatchDenied) as error:
                away = f"{server.url} cannot be asked for its batches: {error}"
                continue
            self._none_until_s[server.url] = time.monotonic() + NO_FOR_S
        if away:
            raise GatewayRefusal(503, SERVER_UNREACHABLE, f"endpoint {endpoint.name}: {away}")
        urls = ", ".join(server.url for server in endpoint.servers[:3])
        message = f"endpoint {endpoint.name}: no server has a batch API: {urls}"
        raise GatewayRefusal(404, NO_BATCHES, message)


async def _takes_batches(remote: BatchApi) -> bool:
    for _ in range(LOOKS - 1):
        with suppress(BatchDenied):
            if await remote.supports():
                return True
        await asyncio.sleep(AGAIN_S)
    return await remote.supports()
