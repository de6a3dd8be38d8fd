"""Two operators on one disk: one works, and another begins when the first can do nothing more."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.driving.gates import gate
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.operators import (
    HANG_S,
    NAMESPACE,
    Operator,
    People,
    account_config,
    cluster_with_our_kinds,
    until,
)

LEASE_S = 10  # as short as a busy machine can keep, mostly; who cannot is started again


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesEmulator]:
    with cluster_with_our_kinds() as one:
        yield one


class Pair:
    """Replicas that share a home, as those of deploy/ share a disk."""

    def __init__(self, cluster: KubernetesEmulator, directory: Path) -> None:
        self.cluster, self._directory = cluster, directory
        self.people = People(cluster)
        self.all: list[Operator] = []
        self.gone: list[Operator] = []

    def start(self) -> Operator:
        one = Operator(
            self.cluster,
            self._directory / "home",
            account_config(self.cluster),
            self._directory / f"log-{len(self.all) + len(self.gone)}",
            *("--lease-seconds", str(LEASE_S), "--lease", self._directory.name),
        )
        self.all.append(one)
        return one

    def until(self, true: Callable[[], Any], what: str) -> Any:
        """As the kubelet does it: who ended is started again, meanwhile."""

        def holds() -> Any:
            if found := true():
                return found
            for one in [it for it in self.all if it.process.poll() is not None]:
                self.all.remove(one)
                self.gone.append(one)
                self.start()
            return None

        return until(holds, what)

    def leader(self) -> Operator:
        found: Operator = self.until(
            lambda: next((it for it in self.all if it.leads() and it.process.poll() is None), None),
            "one of them leads",
        )
        return found

    def holder(self) -> str:
        """The pid of who has the lease; empty while it is given back."""
        found = self.cluster.objects("leases", "coordination.k8s.io", NAMESPACE)
        words = found[0]["spec"]["holderIdentity"].split("_") if found else []
        return words[-2] if len(words) > 1 else ""

    def end(self) -> None:
        for one in (*self.all, *self.gone):
            with contextlib.suppress(ProcessLookupError):
                one.process.send_signal(signal.SIGCONT)
            one.stop()


@pytest.fixture
def pair(cluster: KubernetesEmulator, tmp_path: Path) -> Iterator[Pair]:
    # The lease is called as the directory; a role allows the operator's own name alone.
    made = Pair(cluster, tmp_path / "fleetctl-operator")
    (tmp_path / "fleetctl-operator").mkdir()
    yield made
    made.end()
    for name in ("long", "meanwhile", "far"):
        if made.people.get("BatchJob", name):
            made.people.patch("BatchJob", name, {"metadata": {"finalizers": None}})
            made.people.delete("BatchJob", name)


def job(python: str) -> dict[str, Any]:
    return {"template": {"python": python}}


def test_another_goes_on_with_the_work_when_one_ends_in_order_and_when_it_is_killed(
    pair: Pair,
) -> None:
    pair.start()
    pair.start()
    with gate() as door:
        pair.people.create("BatchJob", "long", job(f"{door.python()}\nSUBMIT(x=1)"))
        pair.until(lambda: active(pair, "long"), "its task runs")
        first = pair.leader()
        first.stop()
        second = pair.leader()
        assert second is not first
        second.process.send_signal(signal.SIGKILL)
        second.process.wait(HANG_S)
        pair.leader()
        door.open()
        pair.until(lambda: complete(pair, "long"), "it is over")
    # One attempt, whoever looked after it.
    status = (pair.people.get("BatchJob", "long") or {})["status"]
    assert (status["succeeded"], status["retries"], status["infraFailures"]) == (1, 0, 0)


def test_one_that_stands_still_does_nothing_more_when_it_goes_on(pair: Pair) -> None:
    pair.start()
    first = pair.leader()
    first.process.send_signal(signal.SIGSTOP)
    pair.start()
    # Another has the lease, and waits: the store is held by a process that may go on.
    pair.until(lambda: pair.holder() not in ("", first.pid), "another has the lease")
    pair.people.create("BatchJob", "meanwhile", job("SUBMIT(x=1)"))
    first.process.send_signal(signal.SIGCONT)
    assert first.process.wait(HANG_S) == 1
    assert "meanwhile" not in first.told()
    pair.until(lambda: complete(pair, "meanwhile"), "another works")


def test_one_that_lost_the_network_ends_by_itself_and_its_work_goes_on(pair: Pair) -> None:
    pair.start()
    first = pair.leader()
    with gate() as door:
        pair.people.create("BatchJob", "far", job(f"{door.python()}\nSUBMIT(x=1)"))
        pair.until(lambda: active(pair, "far"), "its task runs")
        pair.cluster.away(on=True)
        assert first.process.wait(HANG_S) == 1
        pair.cluster.away(on=False)
        pair.leader()
        door.open()
        pair.until(lambda: complete(pair, "far"), "it is over")
    status = (pair.people.get("BatchJob", "far") or {})["status"]
    assert (status["succeeded"], status["infraFailures"]) == (1, 0)


def active(pair: Pair, name: str) -> bool:
    found = pair.people.get("BatchJob", name) or {}
    return bool(found.get("status", {}).get("active"))


def complete(pair: Pair, name: str) -> bool:
    return pair.people.condition("BatchJob", name, "Complete").get("status") == "True"
