"""Defines a call to W&B's service, and the page where users see its data. The engine receives a
`WandbConnect`, and does not know how calls are made; that is http.py, loaded with the first call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

BASE_URL = "https://api.wandb.ai"
CALLS_MAX = 4  # at once; each has a thread of its own


class GraphqlCall(Protocol):
    """One GraphQL operation; returns `data`.

    Raises Unavailable while the service does not reply or does not take the key, NotFound for its
    404, and Refused for a request that it will never take.
    """

    async def __call__(
        self,
        operation: str,
        query: str,
        variables: Mapping[str, Any],
    ) -> Mapping[str, Any]: ...


class WandbConnect(Protocol):
    """base_url: "" = W&B's own."""

    def __call__(self, base_url: str, key: str) -> GraphqlCall: ...


def make_connector() -> WandbConnect:
    """Returns a connection over HTTP; few calls at once, to all servers together."""
    few = asyncio.Semaphore(CALLS_MAX)

    def connect(base_url: str, key: str) -> GraphqlCall:
        from fleetctl.wandb.http import WandbClient

        return WandbClient(few, base_url or BASE_URL, key)

    return connect


def app_url(base_url: str) -> str:
    """Returns the web address of a server's data: api.wandb.ai is shown at wandb.ai."""
    if base_url in ("", BASE_URL):
        return "https://wandb.ai"
    return base_url.replace("https://api.", "https://app.", 1)
