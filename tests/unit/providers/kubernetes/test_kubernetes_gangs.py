"""What several nodes are made of, and what their ends come to."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.engine.capacity.price_book import price_attempt
from fleetctl.providers.kubernetes.kubernetes_provider import KubernetesProvider
from fleetctl.providers.kubernetes.manifests import gang_manifests
from fleetctl.providers.kubernetes.runs.pod_statuses import JobHandle, parse_handle
from fleetctl.providers.remote.gangs import node_gang
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, Fate
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.nodes import NO_RAY, NodeRange, Ray, with_nodes
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.provider import ProviderSpec

DONE = {"ok": True, "infra": False, "reason": "Completed", "message": "", "exit": 0}


def done(at_s: float) -> dict[str, Any]:
    return {**DONE, "at": at_s}


def failed(at_s: float, reason: str = "ExitCode:3", *, infra: bool = False) -> dict[str, Any]:
    words = {"reason": reason, "message": "why", "exit": None, "infra": infra}
    return {**DONE, **words, "ok": False, "at": at_s}


def taken(at_s: float) -> dict[str, Any]:
    return failed(at_s, node_gang.TERMINATED, infra=True)


EVICTED = Fate(Cause.PREEMPTED, "Evicted")
Ends = list[dict[str, Any]]


@pytest.mark.parametrize(
    ("ends", "stopped_at_s", "outside", "told", "states"),
    [
        pytest.param(
            [failed(11, "Stopped"), failed(10)],
            10.5,
            False,
            ("ExitCode:3", False, 1),
            ["Stopped", "Failed"],
            id="one fails",
        ),
        pytest.param(
            [failed(10.2), failed(10)],
            10.5,
            False,
            ("ExitCode:3", False, 1),
            ["Failed", "Failed"],
            id="two fail",
        ),
        pytest.param(
            [done(10), failed(11)],
            None,
            False,
            ("Completed", False, None),
            ["Succeeded", "Stopped"],
            id="node 0 was done",
        ),
        pytest.param(
            [failed(10), node_gang.make_lost_end(EVICTED, 12)],
            11,
            False,
            ("NodeLost", True, None),
            ["Failed", "Lost"],
            id="a lost one is heard of last",
        ),
        pytest.param(
            [taken(10.3), taken(10), taken(10.2)],
            None,
            False,
            ("NodeLost", True, None),
            ["Stopped", "Lost", "Stopped"],
            id="one was deleted, and the Job took the others",
        ),
        pytest.param(
            [taken(131), failed(10)],
            None,
            False,
            ("ExitCode:3", False, 1),
            ["Stopped", "Failed"],
            id="one failed while nobody was there",
        ),
        pytest.param(
            [node_gang.make_lost_end(Fate(Cause.LOST), 300), failed(10)],
            None,
            False,
            ("ExitCode:3", False, 1),
            ["Stopped", "Failed"],
            id="and of the other nothing is left",
        ),
        pytest.param(
            [failed(10, "Stopped"), failed(10.1)],
            9,
            True,
            ("Stopped", False, None),
            ["Stopped", "Stopped"],
            id="somebody stopped all",
        ),
        pytest.param(
            [
                failed(10, "Stopped"),
                node_gang.make_lost_end(Fate(Cause.OUT_OF_MEMORY, own=True), 9),
            ],
            9.5,
            False,
            ("OOMKilled", False, 1),
            ["Stopped", "Failed"],
            id="one used up its memory",
        ),
    ],
)
def test_the_ends_of_all_come_to_one(
    ends: Ends, stopped_at_s: float | None, outside: bool, told: tuple[Any, ...], states: list[str]
) -> None:
    judged = node_gang.judge_ends(ends, stopped_at_s=stopped_at_s, outside=outside)
    frames = node_gang.end_frames(judged, [str(it) for it in range(len(ends))], b"result\n")
    lines = frames.splitlines()
    assert (lines[0] == b"result") == ends[0]["ok"]
    table, last = (json.loads(line) for line in lines[-3:-1])
    assert (last["reason"], last["infra"], last.get("node")) == told
    assert [it["state"] for it in table["nodes"]] == states
    assert node_gang.end_in(frames) is not None and not last["open"]


@pytest.mark.parametrize("text", ["job/", "job/pod", "job/pod/nodes=3", "job/pod/node=2"])
def test_a_handle_says_what_it_is_of(text: str) -> None:
    found = parse_handle(text)
    assert str(found) == text and found.job == "job"
    assert JobHandle("job", "pod", nodes=3) == parse_handle("job/pod/nodes=3")


@pytest.mark.parametrize(
    ("template", "ray", "settings", "limit"),
    [
        ({}, NO_RAY, {}, 16 * 1024**3),
        ({"resources": {"memory": "4Gi"}}, NO_RAY, {}, 4 * 1024**3),
        ({"resources": {"memory": "4Gi"}}, NO_RAY, {"sharedMemory": "1Gi"}, 1024**3),
        ({"resources": {"memory": "4Gi"}}, NO_RAY, {"sharedMemory": "8Gi"}, 4 * 1024**3),
    ],
)
def test_shared_memory_has_a_limit_and_is_no_more_than_the_task_may_have(
    template: dict[str, Any], ray: Ray, settings: dict[str, Any], limit: int
) -> None:
    made = Template.model_validate({"script": "true", **template})
    assert not gang_manifests.shares_memory(made)
    for nodes, asked in ((2, ray), (1, Ray())):
        many = with_nodes(made, NodeRange(min=nodes, max=nodes), None, asked)
        assert gang_manifests.shares_memory(many)
        shared = gang_manifests.shared_memory(many, ClusterSettings.model_validate(settings))
        assert shared == {"medium": "Memory", "sizeLimit": str(limit)}


def test_nodes_cost_as_many_by_the_prices_of_their_provider_object() -> None:
    provider = KubernetesProvider(Path("unused"), store_id="s", notify=lambda _: None)
    prices = ProviderSpec.model_validate({"type": "kubernetes", "prices": {"cpu": 3600}})
    made = Template.model_validate({"script": "true", "resources": {"cpu": 2}})
    four = with_nodes(made, NodeRange(min=4, max=4), None, NO_RAY)
    assert price_attempt(provider, prices, four) == pytest.approx(4 * 2.0)
    assert not provider.lacks(four)
    assert provider.contract.cannot_join("kubernetes", four) == ""


def test_several_pods_are_as_old_as_the_first_that_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pod(node: int, age_s: float) -> dict[str, Any]:
        began = datetime.fromtimestamp(time.time() - age_s, UTC).isoformat()
        return {"metadata": {"name": f"gang-{node}"}, "status": {"startTime": began}}

    async def age_s() -> float:
        provider = KubernetesProvider(tmp_path, store_id="s", notify=lambda _: None)
        sandboxes, pods = provider._sandboxes, [pod(0, 5.0), pod(1, 500.0), pod(2, 50.0)]

        async def known(_handle: str) -> Any:
            return SimpleNamespace(pods_of=lambda _: pods, pod=lambda *_: pods[0])

        monkeypatch.setattr(sandboxes, "cluster_of", known)
        return await sandboxes.age_s("gang/gang-0/nodes=3")

    assert 500.0 <= asyncio.run(age_s()) < 5_000.0
