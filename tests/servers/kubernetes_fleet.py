"""A store whose runs are in an emulated cluster, for the tests of what goes wrong there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import Backend
from fleetctl.providers.kubernetes.kubernetes_provider import KubernetesProvider
from fleetctl.providers.remote.runs.follower import FollowPace
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers import fleets
from tests.servers.fleets import Play, telling


class Fleet(fleets.Fleet):
    """namespace: of this store alone."""

    name = "kubernetes"

    def __init__(
        self, home: Path, emulator: KubernetesEmulator, namespace: str, **options: Any
    ) -> None:
        self.emulator, self.namespace = emulator, namespace
        super().__init__(home, **options)

    def build(self, home: Path, pace: FollowPace) -> Backend:
        declared = {"kubeconfig": str(self.emulator.kubeconfig)}
        account = Account(self.name, self.name, declared, settings={"namespace": self.namespace})
        return KubernetesProvider(
            home, store_id=self.store.store_id, notify=self.told, account=lambda: account, pace=pace
        )

    def made(self) -> list[dict[str, Any]]:
        """Each container that was ever started for this store."""
        return [it for it in self.emulator.runs() if it["namespace"] == self.namespace]

    def live(self) -> list[dict[str, Any]]:
        return self.emulator.objects("jobs", "batch", self.namespace)

    def pods(self) -> list[dict[str, Any]]:
        return self.emulator.objects("pods", "", self.namespace)


def playing(home: Path, emulator: KubernetesEmulator) -> Callable[[str], Play]:
    """Plays of one store in a namespace."""
    return lambda namespace: telling(partial(Fleet, home, emulator, namespace))
