"""Two operators on one disk: one works, and another begins when the first can do nothing more."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.driving.gates import gate
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.operators import HANG_S, Pair, cluster_with_our_kinds


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesEmulator]:
    with cluster_with_our_kinds() as one:
        yield one


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
