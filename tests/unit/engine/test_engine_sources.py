"""Objects that are kept equal to a repository: what is pushed is there, what is wrong changes
nothing, and what is said of it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fleetctl.apply.write import commit
from fleetctl.common.errors import Refused
from fleetctl.daemon.verbs import RequestVerbs
from fleetctl.tracking.kept_by import read_owner
from tests.unit.engine.fake_remote import Remote, RemoteKeeper, job
from tests.unit.engine.fake_world import Fleet


def source(**fields: Any) -> dict[str, Any]:
    return {
        "git": {"url": "https://example.org/fleet.git"},
        "prune": True,
        "onDisruption": "Replace",
        **fields,
    }


@asynccontextmanager
async def kept(tree: dict[str, str], **fields: Any) -> AsyncIterator[tuple[Fleet, Remote]]:
    """A fleet with a Source `fleet` over this tree."""
    remote = Remote()
    remote.push(tree)
    async with Fleet(keeper=partial(RemoteKeeper, remote=remote)) as world:
        await world.apply("Source", "fleet", source(**fields))
        await world.settle()
        yield world, remote


def jobs(world: Fleet) -> dict[str, int]:
    """Name -> completions of those that live."""
    rows = world.store.resources.list()
    found = [it for it in rows if it.kind == "BatchJob" and it.deleted_at_s is None]
    return {it.name: it.generation for it in found}


async def test_what_is_pushed_is_applied_and_said() -> None:
    async with kept({"a.yaml": job("a"), "b.yaml": job("b")}) as (world, remote):
        assert jobs(world) == {"a": 1, "b": 1}
        status, first = world.status("fleet"), remote.branches["main"]
        assert (status["phase"], status["appliedRevision"]) == ("Ready", first)
        assert status["changed"] == {"created": 2, "configured": 0, "pruned": 0}
        note = read_owner(world.row("a").annotations)
        assert note is not None
        assert (note.source, note.file, note.revision) == ("source/fleet", "a.yaml:1", first)
        second = remote.push(
            {"a.yaml": job("a", completions=3), "c.yaml": job("c").replace("True", "1")}
        )
        await world.later(60.0)
        assert jobs(world) == {"a": 2, "c": 1}
        status = world.status("fleet")
        assert status["appliedRevision"] == status["attemptedRevision"] == second
        assert status["changed"] == {"created": 1, "configured": 1, "pruned": 1}
        assert (status["objects"], status["lastError"], status["drift"]) == (2, "", [])


async def test_one_error_refuses_the_whole_revision_with_file_and_line() -> None:
    async with kept({"a.yaml": job("a")}) as (world, remote):
        good = remote.branches["main"]
        bad = remote.push({"b.yaml": job("b"), "jobs/c.yaml": job("c", parallelism=-1)})
        await world.later(60.0)
        assert jobs(world) == {"a": 1}
        status = world.status("fleet")
        assert (status["phase"], status["reason"]) == ("Pending", "RevisionRefused")
        assert (status["appliedRevision"], status["attemptedRevision"]) == (good, bad)
        assert status["lastError"].startswith("jobs/c.yaml:6:16: spec.parallelism is `-1`")
        assert status["message"].endswith(f"the objects stay as at {good[:7]}")
        assert status["conditions"][0]["status"] == "False"
        remote.push({"b.yaml": job("b")})
        await world.later(60.0)
        assert jobs(world) == {"b": 1}
        assert world.status("fleet")["lastError"] == ""


async def test_a_policy_refuses_the_whole_revision() -> None:
    rule = {"expression": "object.spec.completions <= 2", "message": "at most 2"}
    policy = {"match": {"kinds": ["BatchJob"]}, "rules": [rule]}
    async with kept({"a.yaml": job("a")}) as (world, remote):
        good = remote.branches["main"]
        await world.apply("Policy", "small", policy)
        bad = remote.push({"a.yaml": job("a"), "jobs/c.yaml": job("c", completions=3)})
        await world.later(60.0)
        assert jobs(world) == {"a": 1}
        status = world.status("fleet")
        assert (status["appliedRevision"], status["attemptedRevision"]) == (good, bad)
        said = "jobs/c.yaml:1: batchjob/c is denied by policy/small: at most 2"
        assert status["lastError"].startswith(said)
        remote.push({"a.yaml": job("a"), "jobs/c.yaml": job("c", completions=2)})
        await world.later(60.0)
        assert jobs(world) == {"a": 1, "c": 1}


async def test_nothing_is_loaded_while_the_commit_is_the_same() -> None:
    async with kept({"a.yaml": job("a")}) as (world, remote):
        for _ in range(5):
            await world.later(60.0)
        assert (remote.asked, remote.fetched) == (6, 1)


async def test_a_restart_looks_and_changes_nothing() -> None:
    async with kept({"a.yaml": job("a")}) as (world, remote):
        before = world.row("a")
        await world.crash()
        await world.settle()
        assert remote.fetched == 1
        assert world.row("a").generation == before.generation
        assert world.status("fleet")["phase"] == "Ready"


async def edited(world: Fleet, name: str, **fields: Any) -> None:
    """As a person's `set --override`."""
    row = world.row(name)
    spec = {**json.loads(row.spec), **fields}
    with world.store.transaction():
        changed = replace(row, spec=json.dumps(spec), generation=row.generation + 1)
        world.store.resources.put(changed, expected_version=row.version)
    await world.settle()


async def test_what_somebody_changed_is_told_at_once_and_repaired_at_the_next_look() -> None:
    async with kept({"a.yaml": job("a"), "b.yaml": job("b")}) as (world, remote):
        await edited(world, "a", completions=7)
        assert world.status("fleet")["drift"] == ["batchjob/a was changed by hand"]
        assert json.loads(world.row("a").spec)["completions"] == 7
        await world.delete("BatchJob", "b")
        await world.later(60.0)
        assert json.loads(world.row("a").spec).get("completions", 1) == 1
        assert set(jobs(world)) == {"a", "b"}
        assert world.status("fleet")["drift"] == []
        assert remote.fetched == 2


async def test_drift_is_only_told_where_the_source_says_so() -> None:
    async with kept({"a.yaml": job("a"), "b.yaml": job("b")}, drift="Report") as (world, remote):
        await edited(world, "a", completions=7)
        await world.delete("BatchJob", "b")
        await world.crash()
        await world.later(60.0)
        assert json.loads(world.row("a").spec)["completions"] == 7
        status = world.status("fleet")
        assert status["drift"] == ["batchjob/a was changed by hand", "1 more are gone"]
        assert (status["phase"], remote.fetched) == ("Ready", 1)


async def test_running_work_waits_for_consent_and_needs_none_when_it_is_over() -> None:
    async with kept({"a.yaml": job("a")}, onDisruption="Wait") as (world, remote):
        assert world.local.working() == [0]
        wanted = remote.push({"a.yaml": job("a").replace("ok=True", "ok=False")})
        await world.later(60.0)
        status = world.status("fleet")
        assert (status["reason"], status["attemptedRevision"]) == ("NeedsConsent", wanted)
        assert "1 running task would be replaced" in status["message"]
        assert status["hint"] == "fleetctl reconcile source/fleet --yes"
        assert "ok=True" in world.row("a").spec
        world.local.finish(0)
        await world.settle()
        await world.settle()
        assert "ok=False" in world.row("a").spec
        assert world.status("fleet")["appliedRevision"] == wanted
        assert remote.fetched == 2


async def test_a_person_consents_to_one_commit_and_not_to_the_next() -> None:
    async with kept({"a.yaml": job("a")}, onDisruption="Wait") as (world, remote):
        remote.push({"a.yaml": job("a").replace("ok=True", "ok=1")})
        await world.later(60.0)
        assert world.status("fleet")["reason"] == "NeedsConsent"
        commit.request_reconcile(world.store, "fleet", "first", approved=True)
        await world.settle()
        await world.settle()
        assert "ok=1" in world.row("a").spec
        assert world.status("fleet")["request"] == "first"
        await world.settle()
        assert world.local.working() == [0]
        remote.push({"a.yaml": job("a").replace("ok=True", "ok=2")})
        await world.later(60.0)
        assert world.status("fleet")["reason"] == "NeedsConsent"
        assert "ok=1" in world.row("a").spec


async def test_running_work_may_end_under_the_old_spec() -> None:
    async with kept({"a.yaml": job("a")}, onDisruption="FinishRunning") as (world, remote):
        wanted = remote.push({"a.yaml": job("a").replace("ok=True", "ok=1")})
        await world.later(60.0)
        assert world.status("fleet")["appliedRevision"] == wanted
        assert world.local.working() == [0] and world.local.stops == []


def volume(name: str) -> str:
    return (
        f"apiVersion: fleetctl.dev/v1alpha1\nkind: Volume\nmetadata: {{name: {name}}}\n"
        "spec: {deletionPolicy: Delete}\n"
    )


async def test_data_goes_with_consent_alone() -> None:
    async with kept({"a.yaml": job("a"), "v.yaml": volume("data")}) as (world, remote):
        remote.push({"a.yaml": job("a")})
        await world.later(60.0)
        assert world.status("fleet")["reason"] == "NeedsConsent"
        assert "data" in world.names()


async def test_what_a_source_keeps_is_changed_by_hand_only_where_that_is_said() -> None:
    async with kept({"a.yaml": job("a")}) as (world, _):
        request = {"keys": ["batchjob/a"]}
        with pytest.raises(Refused, match=r"batchjob/a is kept by source/fleet: `a\.yaml:1`"):
            await RequestVerbs(world.engine.state).delete(request)
        await world.settle()
        assert jobs(world) == {"a": 1}
        await RequestVerbs(world.engine.state).delete({**request, "override": True})
        await world.settle()
        assert jobs(world) == {}


async def test_two_sources_that_claim_one_object_are_both_named() -> None:
    async with kept({"a.yaml": job("a")}) as (world, remote):
        await world.apply("Source", "other", source())
        await world.settle()
        status = world.status("other")
        assert status["reason"] == "RevisionRefused"
        assert status["lastError"].startswith(
            "a.yaml:1:1: batchjob/a is kept by source/fleet, and source/other claims it as well"
        )
        assert world.status("fleet")["phase"] == "Ready"
        remote.push({"b.yaml": job("b")}, "next")
        await world.apply("Source", "other", source(git={**source()["git"], "ref": "next"}))
        await world.settle()
        assert world.status("other")["phase"] == "Ready"
        assert set(jobs(world)) == {"a", "b"}


async def test_a_manifest_that_moves_to_another_source_takes_its_results_along() -> None:
    async with kept({"a.yaml": job("a"), "b.yaml": job("b")}) as (world, remote):
        remote.push({"c.yaml": job("c")}, "other")
        await world.apply("Source", "other", source(git={**source()["git"], "ref": "other"}))
        await world.settle()
        for name in "abc":
            for run in world.runs(name):
                world.local.finish(run.index, of=f"batchjob/{name}", result=f'{{"of": "{name}"}}')
        await world.settle()
        before, began = world.row("a").uid, len(world.local.orders)
        remote.push({"b.yaml": job("b")})
        await world.later(60.0)
        remote.push({"a.yaml": job("a"), "c.yaml": job("c")}, "other")
        await world.later(60.0)
        row, status = world.row("a"), world.status("a")
        note = read_owner(row.annotations)
        assert note is not None and note.source == "source/other"
        assert row.uid != before
        assert (status["phase"], status["cached"]) == ("Succeeded", status["total"])
        assert {text for _, text in world.store.runs.of(row.uid)} == {'{"of": "a"}'}
        assert len(world.local.orders) == began


@pytest.mark.parametrize("first", ["fleet", "other"])
async def test_a_manifest_that_moves_to_the_path_of_another_source_takes_its_object_along(
    first: str,
) -> None:
    within = {**source()["git"], "path": "one"}
    tree = {"one/a.yaml": job("a"), "one/b.yaml": job("b"), "two/c.yaml": job("c")}
    async with kept(tree, git=within, onDisruption="Wait") as (world, remote):
        await world.apply("Source", "other", source(git={**within, "path": "two"}))
        await world.settle()
        before, began = world.row("a"), len(world.local.orders)
        assert [run.state.value for run in world.runs("a")] == ["Running"]
        remote.push({"two/a.yaml": job("a"), "one/b.yaml": job("b"), "two/c.yaml": job("c")})
        for name in (first, "other" if first == "fleet" else "fleet"):
            commit.request_reconcile(world.store, name, "now", approved=False)
            await world.settle()
        row = world.row("a")
        note = read_owner(row.annotations)
        assert note is not None and note.source == "source/other"
        assert (row.uid, row.generation) == (before.uid, before.generation)
        assert [run.state.value for run in world.runs("a")] == ["Running"]
        assert len(world.local.orders) == began
        assert {world.status(it)["phase"] for it in ("fleet", "other")} == {"Ready"}
        remote.push({"one/b.yaml": job("b"), "two/c.yaml": job("c")})
        await world.later(120.0)
        assert set(jobs(world)) == {"b", "c"}


async def test_too_much_is_not_pruned_at_once() -> None:
    tree = {f"{name}.yaml": job(name) for name in "abcd"}
    async with kept(tree) as (world, remote):
        remote.push({"a.yaml": job("a")})
        await world.later(60.0)
        status = world.status("fleet")
        assert "3 of the 4 objects" in status["lastError"]
        assert status["hint"] == "`maxPrune: 3` deletes them; nothing was changed"
        assert set(jobs(world)) == set("abcd")
        await world.apply("Source", "fleet", source(maxPrune=3))
        await world.settle()
        assert set(jobs(world)) == {"a"}


async def test_a_remote_that_is_away_changes_nothing_and_is_asked_ever_more_rarely() -> None:
    async with kept({"a.yaml": job("a")}) as (world, remote):
        remote.away = True
        await world.later(60.0)
        status = world.status("fleet")
        assert (status["phase"], status["reason"]) == ("Pending", "SourceUnreachable")
        assert status["message"].startswith("the remote is away; the objects stay as at ")
        before, _ = remote.asked, [await world.later(1.0) for _ in range(600)]
        assert remote.asked - before < 10
        assert set(jobs(world)) == {"a"}
        commit.request_reconcile(world.store, "fleet", "now", approved=False)
        before = remote.asked
        await world.settle()
        assert (remote.asked, world.status("fleet")["request"]) == (before + 1, "now")
        remote.away = False
        await world.later(400.0)
        assert world.status("fleet")["phase"] == "Ready"


async def test_a_branch_that_is_gone_and_a_commit_that_breaks_off_prune_nothing() -> None:
    async with kept({"a.yaml": job("a")}) as (world, remote):
        branch = remote.branches.pop("main")
        await world.later(60.0)
        assert world.status("fleet")["reason"] == "RevisionRefused"
        assert set(jobs(world)) == {"a"}
        remote.branches["main"] = branch
        remote.lost.add(remote.push({"b.yaml": job("b")}))
        await world.later(60.0)
        assert set(jobs(world)) == {"a"}
        remote.lost.clear()
        await world.later(300.0)
        assert set(jobs(world)) == {"b"}


async def test_objects_move_between_namespaces_and_files() -> None:
    async with kept({"a.yaml": job("a")}) as (world, remote):
        remote.push({"x/moved.yaml": job("a", namespace="team")})
        await world.later(60.0)
        rows = [it for it in world.store.resources.list() if it.kind == "BatchJob"]
        assert [it.namespace for it in rows if it.deleted_at_s is None] == ["team"]
        generation = world.row("a").generation
        remote.push({"y.yaml": job("a", namespace="team")})
        await world.later(60.0)
        note = read_owner(world.row("a").annotations)
        assert note is not None and note.file == "y.yaml:1"
        assert world.row("a").generation == generation


async def test_its_objects_go_with_it_or_stay() -> None:
    async with kept({"a.yaml": job("a")}) as (world, _):
        await world.delete("Source", "fleet")
        for _ in range(3):
            await world.settle()
        assert world.names() == []
    async with kept({"a.yaml": job("a")}, prune=False) as (world, _):
        await world.delete("Source", "fleet")
        await world.settle()
        assert world.names() == ["a"]
        row = world.row("a")
        assert (row.labels, read_owner(row.annotations)) == ({}, None)


async def test_without_prune_what_lost_its_manifest_stays_and_is_counted() -> None:
    async with kept({"a.yaml": job("a"), "b.yaml": job("b")}, prune=False) as (world, remote):
        remote.push({"a.yaml": job("a")})
        await world.later(60.0)
        status = world.status("fleet")
        assert (status["phase"], status["objects"], status["unpruned"]) == ("Ready", 2, 1)
        assert (set(jobs(world)), status["drift"]) == ({"a", "b"}, [])


async def test_suspended_it_looks_at_nothing() -> None:
    async with kept({"a.yaml": job("a")}) as (world, remote):
        commit.suspend_object(world.store, "Source", "fleet", world.clock.now_s())
        remote.push({"b.yaml": job("b")})
        await world.later(300.0)
        assert (set(jobs(world)), world.status("fleet")["phase"]) == ({"a"}, "Suspended")
        commit.suspend_object(world.store, "Source", "fleet", world.clock.now_s(), wanted=False)
        await world.later(1.0)
        assert set(jobs(world)) == {"b"}


async def test_values_of_variables_come_from_the_source() -> None:
    declared = (
        "apiVersion: fleetctl.dev/v1alpha1\nkind: Variables\n"
        "variables:\n  many: {type: integer, default: 1}\n"
    )
    tree = {"a.yaml": f"{declared}---\n" + job("a", completions="${{ many }}")}
    async with kept(tree, variables={"many": 3}) as (world, _):
        assert json.loads(world.row("a").spec)["completions"] == 3


async def test_a_policy_about_the_plan_holds_of_a_commit_and_reads_it_once() -> None:
    rule = {"expression": "plan.units <= 3 && size(plan.changes) <= 1"}
    policy = {"match": {"kinds": ["BatchJob"]}, "rules": [rule]}
    async with kept({"a.yaml": job("a")}) as (world, remote):
        await world.apply("Policy", "small", policy)
        remote.push({"a.yaml": job("a", completions=3)})
        await world.later(60.0)
        assert (jobs(world), remote.fetched) == ({"a": 2}, 2)
