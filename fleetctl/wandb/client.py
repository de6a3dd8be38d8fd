"""What a call to W&B's service is, and where people see its answers. The engine is handed a
`Connect`, and does not know how calls are made; that is http.py, loaded with the first of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

BASE_URL = "https://api.wandb.ai"
CALLS_MAX = 4  # at once; each has a thread of its own


class Ask(Protocol):
    """One GraphQL operation; returns `data`.

    Raises Unavailable while the service cannot answer or does not take the key, NotFound for its
    404, and Refused for what it will never take.
    """

    async def __call__(
        self, operation: str, query: str, variables: Mapping[str, Any]
    ) -> Mapping[str, Any]: ...


class Connect(Protocol):
    """base_url: "" = W&B's own."""

    def __call__(self, base_url: str, key: str) -> Ask: ...


def connector() -> Connect:
    """Calls over HTTP; few of them at once, to all servers together."""
    few = asyncio.Semaphore(CALLS_MAX)

    def connect(base_url: str, key: str) -> Ask:
        from fleetctl.wandb.http import Client

        return Client(few, base_url or BASE_URL, key)

    return connect


def app_url(base_url: str) -> str:
    """Where people look at what a server has: api.wandb.ai is shown at wandb.ai."""
    if base_url in ("", BASE_URL):
        return "https://wandb.ai"
    return base_url.replace("https://api.", "https://app.", 1)
