"""Provider `kubernetes` against the suite of all providers, in whatever cluster the context names.

Collected only when it is named: it needs a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

from fleetctl.kubernetes.answers import ApiError
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import Backend, RunRef
from fleetctl.providers.kubernetes.connection.kubernetes_connection import ClusterLink
from fleetctl.providers.kubernetes.kubernetes_provider import KubernetesProvider
from fleetctl.providers.kubernetes.runs.pod_statuses import split_handle
from tests.contracts.kubernetes_suite import KubernetesSuite, machine_of
from tests.contracts.provider_worlds import World
from tests.live.kubernetes import NAMESPACE_VARIABLE
from tests.live.live_world import LiveWorld


class KubernetesWorld(LiveWorld):
    def __init__(self, directory: Path) -> None:
        self.corner = token_hex(4)
        self.volume = f"volume-{self.corner}"
        self.settings = {"namespace": os.environ[NAMESPACE_VARIABLE]}
        self.declared = {"kubernetes": self.settings}
        super().__init__(directory)

    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        return KubernetesProvider(
            self.directory / "home",
            store_id=f"{self.corner}-{store_id}",
            notify=notify,
            account=lambda: Account("kubernetes", "kubernetes", settings=self.settings),
        )

    async def machine(self, ref: RunRef, printed: Mapping[str, Any]) -> Mapping[str, object]:
        link = await self.link()
        return machine_of(await link.get("pods", split_handle(ref.handle)[1]))

    async def link(self) -> ClusterLink:
        provider = self.provider
        assert isinstance(provider, KubernetesProvider)
        return await provider._connection.link()

    async def lose(self, ref: RunRef) -> None:
        """Somebody deletes its pod."""
        link = await self.link()
        try:
            await link.delete("pods", split_handle(ref.handle)[1], {})
        except ApiError as error:
            if not error.not_found:
                raise


class TestLive(KubernetesSuite):
    def world(self, tmp_path: Path) -> World:
        return KubernetesWorld(tmp_path)
