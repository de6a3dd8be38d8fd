"""What goes wrong in a cluster, and what a store makes of it: nodes, replies and watches are lost,
and no work begins twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fleetctl.controllers.model import RunState
from fleetctl.providers.contract.base import ref_of
from tests.contracts.provider_worlds import eventually
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.fleets import Play, Tally, begins
from tests.servers.kubernetes_fleet import Fleet, playing

NODES = [
    {"name": "plain", "cpu": "4", "memory": "16Gi"},
    {"name": "lent", "cpu": "4", "memory": "16Gi", "labels": {"sort": "lent"}},
]
SPARE = count()


@pytest.fixture(scope="module")
def emulator() -> Iterator[KubernetesEmulator]:
    names = [f"tale-{number}" for number in range(50)]
    with KubernetesEmulator(namespaces=names, nodes=NODES, eviction_s=0.2) as one:
        yield one


@pytest.fixture
def play(tmp_path: Path, emulator: KubernetesEmulator) -> Iterator[Play]:
    yield playing(tmp_path / "home", emulator)(f"tale-{next(SPARE)}")
    emulator.remove_faults()


@pytest.fixture
def tally() -> Iterator[Tally]:
    with Tally() as one:
        yield one


def test_a_task_takes_one_create_one_command_and_one_delete(
    play: Play, emulator: KubernetesEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        emulator.forget_requests()
        work = {"python": "SUBMIT(n=index)"}
        items = [{"index": number} for number in range(6)]
        fleet.apply(work, tasks={"items": items}, parallelism=3)
        await fleet.phase("Succeeded")
        assert fleet.results() == {number: {"n": number} for number in range(6)}
        await fleet.nothing_lives()
        asked = {
            what: times for what, times in emulator.requests().items() if "namespace" not in what
        }
        per_store = {"create configmaps", "list jobs", "list pods", "watch jobs", "watch pods"}
        per_store |= {"list events", "watch events"}  # where a Job controller takes its time
        assert {what: times for what, times in asked.items() if what not in per_store} == {
            "create jobs": 6,
            "get pods/exec": 6,
            "delete jobs": 6,
        }

    play(tale)


def test_tasks_take_turns_in_one_pod(play: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply(
            {"python": "SUBMIT(n=1)"}, tasks={"completions": 8}, parallelism=1, sandbox={"reuse": 8}
        )
        await fleet.phase("Succeeded")
        assert len(fleet.results()) == 8
        assert len(fleet.made()) == 1

    play(tale)


async def says(fleet: Fleet, words: str) -> bool:
    [run] = fleet.runs()
    seen = await fleet.provider.observe([ref_of(run)])
    return any(words in str(getattr(one, "held", "")) for one in seen)


@pytest.mark.parametrize("how", ["evicted", "node lost", "deleted"])
def test_a_pod_that_is_taken_away_is_no_failure_of_its_task(
    play: Play, tally: Tally, emulator: KubernetesEmulator, how: str
) -> None:
    waits = "\nimport time\nif os.environ['FLEETCTL_ATTEMPT'] == '1': time.sleep(600)\nSUBMIT(a=1)"

    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(waits), "terminationGracePeriodSeconds": 1})
        await begins(tally)
        [pod] = fleet.pods()
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        if how == "evicted":
            emulator.evict(fleet.namespace, name)
        elif how == "node lost":
            emulator.lose_node(node)
        else:
            link = await fleet.provider._connection.link()  # type: ignore[attr-defined]
            await link.delete("pods", name, {})
        if how == "node lost":
            # Whether the work goes on there nobody can say, so nothing else begins.
            await eventually(partial(says, fleet, "does not report"), "it said why it waits")
            assert len(fleet.runs()) == 1
            emulator.find_node(node)
        await fleet.phase("Succeeded")
        first, second = fleet.runs()
        assert (first.attempt, second.attempt) == (1, 2)
        assert first.state is RunState.LOST, first
        assert tally.begun == {"0/1": 1, "0/2": 1}
        await fleet.nothing_lives()

    play(tale)


def test_the_scheduler_says_why_a_pod_waits_and_it_begins_once_there_is_room(
    play: Play, emulator: KubernetesEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": "SUBMIT(a=1)", "resources": {"cpu": 24}})
        status = await fleet.waits("Unschedulable")
        assert "Insufficient cpu" in str(status), status
        emulator.add_node("large", cpu="64", memory="64Gi")
        await fleet.phase("Succeeded")

    play(tale)


FAULTS: dict[str, dict[str, Any]] = {
    "a reply that was lost": {"verb": "create", "resource": "jobs", "lost": True},
    "a delete's reply that was lost": {"verb": "delete", "resource": "jobs", "lost": True},
    "too many requests": {"verb": "create", "resource": "jobs", "code": 429, "retry_after_s": 1},
    "a server that fails": {"verb": "*", "resource": "jobs", "code": 500, "count": 2, "after": 1},
    "a command that cannot begin": {"resource": "pods/exec", "code": 500, "count": 2},
    "watches that are cut": {"verb": "watch", "cut_s": 0.05, "count": 6},
    "watches that are too old": {"verb": "watch", "code": 410, "count": 2, "after": 2},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_work_begins_once_whatever_the_server_does(
    play: Play, tally: Tally, emulator: KubernetesEmulator, fault: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        emulator.fault(**FAULTS[fault])
        fleet.apply({"python": tally.python("\nSUBMIT(a=1)")}, tasks={"completions": 3})
        if "watches" in fault:
            emulator.cut_watches()
            emulator.compact()
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1, "1/1": 1, "2/1": 1}
        await fleet.nothing_lives()

    play(tale)


def test_work_goes_on_while_the_server_is_away(
    play: Play, tally: Tally, emulator: KubernetesEmulator, tmp_path: Path
) -> None:
    go = "\nimport time\ntime.sleep(1.5)\nSUBMIT(a=1)"

    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(go)})
        await begins(tally)
        emulator.away(True)
        await asyncio.sleep(2.5)
        emulator.away(False)
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}

    play(tale)


def test_a_deleted_job_leaves_nothing_in_the_cluster(play: Play, tally: Tally) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python("\nimport time\ntime.sleep(600)")})
        await begins(tally)
        fleet.delete()
        await fleet.gone()
        assert fleet.live() == []

        async def no_pod() -> bool:
            return fleet.pods() == []

        await eventually(no_pod, "no pod was left")

    play(tale)
