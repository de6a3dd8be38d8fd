"""Which server of an endpoint takes batches: found out by a question that costs nothing, before
anything is uploaded.
"""

import time

from aiohttp import ClientSession

from fleetctl.gateway.batching.remote import Denied, Remote, Unanswered
from fleetctl.gateway.endpoints import Endpoint
from fleetctl.gateway.rules.refusal import NO_BATCHES, SERVER_UNREACHABLE, Refusal

NO_FOR_S = 60.0  # one that had none may have been another version
OLLAMA = "ollama"


class Servers:
    def __init__(self, client: ClientSession) -> None:
        self._client = client
        self._takes: set[str] = set()  # urls
        self._none_until_s: dict[str, float] = {}

    async def with_batches(self, endpoint: Endpoint) -> str:
        """The url of the first. Raises Refusal: none has a batch API, or none answers."""
        away = ""
        for server in endpoint.servers:
            if server.api == OLLAMA:
                continue
            if server.url in self._takes:
                return server.url
            if self._none_until_s.get(server.url, 0.0) > time.monotonic():
                continue
            remote = Remote(self._client, server.url, endpoint.key)
            try:
                if await remote.supports():
                    self._takes.add(server.url)
                    return server.url
            except (Unanswered, Denied) as error:
                away = f"{server.url} cannot be asked for its batches: {error}"
                continue
            self._none_until_s[server.url] = time.monotonic() + NO_FOR_S
        if away:
            raise Refusal(503, SERVER_UNREACHABLE, f"endpoint {endpoint.name}: {away}")
        urls = ", ".join(server.url for server in endpoint.servers[:3])
        message = f"endpoint {endpoint.name}: no server has a batch API: {urls}"
        raise Refusal(404, NO_BATCHES, message)
