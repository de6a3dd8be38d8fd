"""Provider `kubernetes` against the suite of all providers, in whatever cluster the context names.

Collected only when it is named: it needs a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

from fleetctl.kubernetes.answers import ApiError
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import Backend, RunRef
from fleetctl.providers.kubernetes.kubernetes_provider import KubernetesProvider
from fleetctl.providers.kubernetes.runs.job_handles import split_handle
from fleetctl.specs.blocks.template import Template
from tests.contracts.provider_worlds import World, command
from tests.live.kubernetes import NAMESPACE_VARIABLE
from tests.live.live_world import LiveSuite, LiveWorld


class KubernetesWorld(LiveWorld):
    def __init__(self, directory: Path) -> None:
        self.corner = token_hex(4)
        self.volume = f"volume-{self.corner}"
        super().__init__(directory)

    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        settings = {"namespace": os.environ[NAMESPACE_VARIABLE]}
        return KubernetesProvider(
            self.directory / "home",
            store_id=f"{self.corner}-{store_id}",
            notify=notify,
            account=lambda: Account("kubernetes", "kubernetes", settings=settings),
        )

    async def lose(self, ref: RunRef) -> None:
        """Somebody deletes its pod."""
        provider = self.provider
        assert isinstance(provider, KubernetesProvider)
        link = await provider._connection.link()
        try:
            await link.delete("pods", split_handle(ref.handle)[1], {})
        except ApiError as error:
            if not error.not_found:
                raise


class TestLive(LiveSuite):
    def world(self, tmp_path: Path) -> World:
        return KubernetesWorld(tmp_path)

    def refused(self) -> Template:
        return command("true", image={"apt": ["git"]})
