"""Two operators on one disk: one works, and another begins when the first can do nothing more."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.gates import gate
from tests.servers.operators import (
    NAMESPACE,
    Operator,
    People,
    account_config,
    cluster_with_our_kinds,
    until,
)

LEASE_S = 8  # as short as a busy machine can keep


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

    def start(self) -> Operator:
        one = Operator(
            self.cluster,
            self._directory / "home",
            account_config(self.cluster),
            self._directory / f"log-{len(self.all)}",
            *("--lease-seconds", str(LEASE_S), "--lease", self._directory.name),
        )
        self.all.append(one)
        return one

    def lease(self) -> dict[str, Any]:
        found = self.cluster.objects("leases", "coordination.k8s.io", NAMESPACE)
        specs = [it["spec"] for it in found if it["metadata"]["name"] == self._directory.name]
        return dict(specs[0]) if specs else {}

    def end(self) -> None:
        for one in self.all:
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


def job(python: str) -> dict[str, Any]:
    return {"template": {"python": python}}


def test_the_other_begins_at_once_when_one_ends_in_order_and_soon_when_it_is_killed(
    pair: Pair,
) -> None:
    first = pair.start()
    until(first.leads, "the first leads")
    second = pair.start()
    with gate() as door:
        pair.people.create("BatchJob", "long", job(f"{door.python()}\nSUBMIT(x=1)"))
        until(lambda: active(pair, "long"), "its task runs")
        assert not second.leads()
        assert first.stop() == 0
        until(second.leads, "the second leads")
        third = pair.start()
        second.process.send_signal(signal.SIGKILL)
        until(third.leads, "the third leads")
        door.open()
        pair.people.wait_for("BatchJob", "long", "Complete")
    # One attempt, whoever looked after it.
    status = (pair.people.get("BatchJob", "long") or {})["status"]
    assert (status["succeeded"], status["retries"], status["infraFailures"]) == (1, 0, 0)
    pair.people.delete("BatchJob", "long")
    pair.people.gone("BatchJob", "long")


def test_one_that_stands_still_does_nothing_more_when_it_goes_on(pair: Pair) -> None:
    first = pair.start()
    until(first.leads, "the first leads")
    second = pair.start()
    first.process.send_signal(signal.SIGSTOP)
    until(second.leads, "the second takes the lease")
    pair.people.create("BatchJob", "meanwhile", job("SUBMIT(x=1)"))
    # The store is still held by a process that may go on: nobody works.
    until(lambda: "the store is held" in second.log.read_text(), "the second waits for the store")
    assert pair.people.condition("BatchJob", "meanwhile", "Complete") == {}
    first.process.send_signal(signal.SIGCONT)
    assert first.process.wait(60) == 1
    pair.people.wait_for("BatchJob", "meanwhile", "Complete")
    pair.people.delete("BatchJob", "meanwhile")
    pair.people.gone("BatchJob", "meanwhile")


def test_one_that_lost_the_network_ends_before_another_could_begin(pair: Pair) -> None:
    first = pair.start()
    until(first.leads, "the first leads")
    with gate() as door:
        pair.people.create("BatchJob", "far", job(f"{door.python()}\nSUBMIT(x=1)"))
        until(lambda: active(pair, "far"), "its task runs")
        renewed = pair.lease()["renewTime"]
        pair.cluster.away(on=True)
        assert first.process.wait(60) == 1
        assert pair.lease()["renewTime"] >= renewed
        pair.cluster.away(on=False)
        second = pair.start()
        until(second.leads, "the second leads")
        door.open()
        pair.people.wait_for("BatchJob", "far", "Complete")
    pair.people.delete("BatchJob", "far")
    pair.people.gone("BatchJob", "far")


def active(pair: Pair, name: str) -> bool:
    found = pair.people.get("BatchJob", name) or {}
    return bool(found.get("status", {}).get("active"))
