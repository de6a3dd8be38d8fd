"""Objects of equal names in two namespaces: neither sees, uses, pays for or deletes the other's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetctl.apply.deletion import PruneLimit
from fleetctl.apply.request import ApplyOptions
from fleetctl.apply.write import commit
from fleetctl.common.errors import NotFound
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.manifest import Document, load_manifests
from fleetctl.manifest.document.envelope import NamespaceChoice
from tests.unit.engine.fake_world import Fleet, tasks

MOUNTS = {"python": "pass", "volumes": [{"name": "data", "mountPath": "/data"}]}
JOB = """apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: %s}
spec: {suspend: true, completions: 1, template: {script: echo}}
---
"""


def keys(fleet: Fleet) -> list[str]:
    return sorted(row.key for row in fleet.store.resources.list())


def apply(fleet: Fleet, names: list[str], within: str, *, prune: bool = False) -> list[str]:
    text = "".join(JOB % name for name in names)
    manifests = load_manifests(
        [Document("jobs.yaml", text, ".")], NamespaceChoice(within, binding=True)
    )
    pruning = PruneLimit(most=9) if prune else None
    order = ApplyOptions(applyset="nightly", pruning=pruning, namespace=within)
    return [it.outcome for it in commit.apply_manifests(fleet.store, manifests, 1.0, order)]


async def test_a_job_and_the_volume_that_it_names_are_the_namespaces_own() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1, template=MOUNTS))
        await fleet.apply("BatchJob", "job", tasks(1, template=MOUNTS), namespace="team")
        assert keys(fleet) == [
            "batchjob/job", "batchjob/job -n team", "volume/data", "volume/data -n team",
        ]  # fmt: skip
        assert fleet.local.volumes == {"data", "team.data"}
        mounted = [
            (order.resource, mount.name)
            for order in fleet.local.orders.values()
            for mount in order.template.volumes
        ]
        assert sorted(mounted) == [
            ("batchjob/job", "data"),
            ("batchjob/job -n team", "team.data"),
        ]


async def test_a_deletion_takes_nothing_of_the_other_namespace() -> None:
    async with Fleet() as fleet:
        for namespace in ("default", "team"):
            doomed = {"deletionPolicy": "Delete"}
            await fleet.apply("Volume", "data", doomed, namespace=namespace)
        await fleet.apply("BatchJob", "job", tasks(1, template=MOUNTS))
        await fleet.delete("Volume", "data", namespace="team")
        assert keys(fleet) == ["batchjob/job", "volume/data"]
        assert fleet.local.volumes == {"data"}


async def test_what_is_not_there_is_named_with_its_namespace() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        with pytest.raises(NotFound, match="batchjob/job -n team is not there") as caught:
            await fleet.delete("BatchJob", "job", namespace="team")
        assert caught.value.hint == "fleetctl get batchjobs -n team"


async def test_a_secret_is_that_of_the_objects_namespace() -> None:
    asked: list[tuple[tuple[str, ...], str]] = []

    def resolve(names: tuple[str, ...], namespace: str) -> ResolvedSecrets:
        asked.append((names, namespace))
        return ResolvedSecrets({"KEY": namespace})

    template = {"python": "pass", "secrets": ["keys"]}
    async with Fleet(secrets=resolve) as fleet:
        await fleet.apply("BatchJob", "job", tasks(1, template=template), namespace="team")
        (order,) = fleet.local.orders.values()
        assert dict(order.secrets) == {"KEY": "team"}
    assert asked == [(("keys",), "team")]


async def test_a_function_is_that_of_the_objects_namespace() -> None:
    async with Fleet() as fleet:
        template = {"python": "pass", "function": "gpu"}
        await fleet.apply("Function", "gpu", {"provider": "local"})
        await fleet.apply("BatchJob", "job", tasks(1, template=template), namespace="team")
        said = fleet.status("job")
        assert (said["reason"], "function/gpu -n team is not declared" in str(said)) == (
            "FunctionMissing",
            True,
        )


async def test_a_success_with_a_secret_is_no_success_of_another_namespace() -> None:
    def resolve(_names: tuple[str, ...], _namespace: str) -> ResolvedSecrets:
        return ResolvedSecrets({"KEY": "value"})

    async def cached(fleet: Fleet, name: str, namespace: str, spec: dict[str, Any]) -> object:
        await fleet.apply("BatchJob", name, spec, namespace=namespace)
        return fleet.status(name).get("cached", 0)

    template = {"python": "pass", "image": {"python": "3.12"}}
    async with Fleet(secrets=resolve) as fleet:
        for secrets, shared in (([], 1), (["keys"], 0)):
            policy = {"policy": "ReuseSucceeded"}
            spec = tasks(1, template={**template, "secrets": secrets}, cache=policy)
            first = f"first-{len(secrets)}"
            await cached(fleet, first, "default", spec)
            fleet.local.finish(0, of=f"batchjob/{first}")
            await fleet.settle()
            assert fleet.status(first)["phase"] == "Succeeded"
            assert await cached(fleet, f"second-{len(secrets)}", "team", spec) == shared


async def test_a_budget_counts_what_its_namespace_spends() -> None:
    cap = {"selector": {"team": "a"}, "maxCost": 1000.0}
    async with Fleet() as fleet:
        fleet.local.price = 0.5
        for namespace in ("default", "team"):
            await fleet.apply("Budget", "cap", cap, namespace=namespace)
        template = {"python": "pass", "timeoutSeconds": 1}
        await fleet.apply(
            "BatchJob", "job", tasks(1, template=template), namespace="team", team="a"
        )
        rows = [row for row in fleet.store.resources.list() if row.name == "cap"]
        reserved = {row.namespace: json.loads(row.status)["reserved"] for row in rows}
        assert (reserved["default"], reserved["team"] > 0) == (0, True)
        fleet.clock.time_s += 1.0
        fleet.local.finish(0)
        await fleet.settle()
        charged = {entry.namespace for entry in fleet.store.ledger.entries()}
        assert charged == {"team"}


async def test_pruning_stays_within_the_namespace_of_the_apply() -> None:
    async with Fleet() as fleet:
        apply(fleet, ["a", "b"], "default")
        apply(fleet, ["a", "b"], "team")
        assert apply(fleet, ["a"], "team", prune=True) == ["unchanged", "pruned"]
        gone = [row.key for row in fleet.store.resources.list() if row.deleted_at_s is not None]
        assert gone == ["batchjob/b -n team"]
