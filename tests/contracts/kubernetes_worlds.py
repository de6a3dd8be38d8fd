"""Worlds of provider `kubernetes`: the official client's own connection to the emulated cluster of
tests/emulators/kubernetes, in a process of its own for all worlds of a module. Each world is a
store of its own, in a namespace of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import Backend, RunRef
from fleetctl.providers.kubernetes.kubernetes_provider import KubernetesProvider
from fleetctl.providers.kubernetes.runs.pod_statuses import split_handle
from fleetctl.providers.remote.runs.follower import FollowPace
from tests.contracts.kubernetes_suite import machine_of
from tests.contracts.provider_answers import WORDS, SpoiltWorld
from tests.emulators.kubernetes.running import KubernetesEmulator

QUICK = FollowPace(retry_initial_s=0.05, retry_max_s=0.5)
NAMESPACES = 400  # that are there: a world takes one, and none is used twice
QUESTIONS = {
    "create": [{"verb": "create", "resource": "jobs"}],
    "look": [{"verb": "get", "resource": "pods"}, {"verb": "get", "resource": "jobs"}],
    "end": [{"verb": "delete"}],
    "any": [{}],
}
ANSWERS: dict[str, dict[str, Any]] = {
    "key": {"code": 401, "message": "Unauthorized"},
    "page": {"code": 404, "page": True},
    "unknown": {"code": 400, "message": WORDS},
    "broken": {"code": 500},
    "gone": {"code": 404, "message": "what was asked for is not found"},
}


@contextmanager
def emulated(**settings: Any) -> Iterator[KubernetesEmulator]:
    """A cluster; no setting of this process names it."""
    names = [f"world-{number}" for number in range(NAMESPACES)]
    with KubernetesEmulator(namespaces=names, **settings) as emulator:
        emulator.free = iter(names)  # type: ignore[attr-defined]
        yield emulator


class KubernetesWorld(SpoiltWorld):
    """settings: the `kubernetes` block of its Provider object, beside the namespace."""

    def __init__(self, directory: Path, emulator: KubernetesEmulator, **settings: Any) -> None:
        self.emulator = emulator
        self.namespace: str = next(emulator.free)  # type: ignore[attr-defined]
        self.salt = token_hex(4)
        self.kubeconfig = emulator.kubeconfig  # who it is to the cluster
        self.settings = {"namespace": self.namespace, **settings}
        super().__init__(directory)

    async def machine(self, ref: RunRef, printed: Mapping[str, Any]) -> Mapping[str, object]:
        _, name = split_handle(ref.handle)
        return machine_of(next(it for it in self.pods() if it["metadata"]["name"] == name))

    @property
    def declared(self) -> Mapping[str, Any]:
        account = {"kubeconfig": str(self.kubeconfig)}
        return {"type": "kubernetes", "account": account, "kubernetes": self.settings}

    @property
    def account(self) -> Account:
        declared = {"kubeconfig": str(self.kubeconfig)}
        return Account("kubernetes", "kubernetes", declared, settings=self.settings)

    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        return KubernetesProvider(
            self.directory / "home",
            store_id=f"{store_id}-{self.salt}",
            notify=notify,
            account=lambda: self.account,
            pace=QUICK,
        )

    async def lose(self, ref: RunRef) -> None:
        """Its node takes the pod away, if it is there at all."""
        _, pod = split_handle(ref.handle)
        if any(it["pod"] == pod for it in self.emulator.processes()):
            self.emulator.evict(self.namespace, pod)

    def spoil(self, question: str, answer: str) -> None:
        for asked in QUESTIONS[question]:
            self.emulator.fault(**asked, **ANSWERS[answer], count=1_000_000)

    def mend(self) -> None:
        self.emulator.remove_faults()

    def asked(self) -> int:
        return sum(int(it["met"]) for it in self.emulator.faults())

    def cut(self, ref: RunRef) -> None:
        self.emulator.cut_streams(split_handle(ref.handle)[1])

    def living(self) -> int:
        return len(self.jobs())

    def jobs(self) -> list[dict[str, Any]]:
        return self.emulator.objects("jobs", "batch", self.namespace)

    def pods(self) -> list[dict[str, Any]]:
        return self.emulator.objects("pods", "", self.namespace)

    async def close(self) -> None:
        self.mend()
        await super().close()


Play = Callable[..., None]


def playing_in(
    world_of: Callable[..., KubernetesWorld], directory: Path, emulator: KubernetesEmulator
) -> Play:
    """Plays a tale in a world of its own; settings: of that world."""

    def told(tale: Callable[[Any], Awaitable[None]], **settings: Any) -> None:
        async def scene() -> None:
            world = world_of(directory, emulator, **settings)
            try:
                await tale(world)
            finally:
                await world.close()

        asyncio.run(scene())

    return told
