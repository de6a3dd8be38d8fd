"""What a person allows a Source to lose: that commit alone, once, and all that goes with it."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from fleetctl.apply.policies.judge import digest_policies
from fleetctl.apply.write import commit
from fleetctl.common.errors import Conflict
from fleetctl.gitops.git_keeper import store_proposal
from fleetctl.gitops.proposal import CommitProposal, ProposedObject, SourceClaim
from fleetctl.tracking.by_hand import set_name
from tests.unit.engine.fake_remote import job
from tests.unit.engine.fake_world import Fleet
from tests.unit.engine.test_engine_sources import kept, volume


async def test_consent_that_comes_while_another_commit_does_allows_none_of_that() -> None:
    async with kept({"a.yaml": job("a")}, onDisruption="Wait") as (world, remote):
        seen = remote.push({"a.yaml": job("a").replace("ok=True", "ok=1")})
        await world.later(60.0)
        assert world.status("fleet")["attemptedRevision"] == seen
        remote.push({"a.yaml": job("a").replace("ok=True", "ok=2")})
        world.clock.time_s += 60.0
        await turn(world)  # it asks what the branch names by now
        commit.request_reconcile(world.store, "fleet", "first", approved=True)
        await world.settle()
        assert "ok=2" not in world.row("a").spec
        await world.settle()
        assert world.status("fleet")["reason"] == "NeedsConsent"
        assert world.status("fleet")["request"] == "first"


async def test_consent_that_was_used_up_before_a_crash_allows_nothing_after_it() -> None:
    tree = {"a.yaml": job("a"), "v.yaml": volume("one"), "w.yaml": volume("two")}
    async with kept(tree, maxPrune=2) as (world, remote):
        remote.push({"a.yaml": job("a"), "w.yaml": volume("two")})
        commit.request_reconcile(world.store, "fleet", "first", approved=True)
        while world.status("fleet")["changed"]["pruned"] != 1:
            await turn(world)
        remote.push({"a.yaml": job("a")})
        await world.crash()
        await world.later(60.0)
        assert "two" in world.names()
        assert world.status("fleet")["reason"] == "NeedsConsent"


async def test_a_request_is_not_answered_by_what_the_store_did_not_take() -> None:
    async with kept({"a.yaml": job("a")}) as (world, remote):
        wanted = remote.push({"a.yaml": job("a", completions=2)})
        commit.request_reconcile(world.store, "fleet", "now", approved=False)
        while world.status("fleet")["attemptedRevision"] != wanted:
            await turn(world)
        world.fail_commits = 1
        while world.status("fleet")["request"] != "now":
            world.clock.time_s += 0.1
            await turn(world)
        assert world.status("fleet")["appliedRevision"] == wanted


async def turn(world: Fleet) -> None:
    world.engine.ticks.make()
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(12))
async def test_a_request_is_answered_by_what_is_newest_at_its_call(seed: int) -> None:
    """Whatever the commits before it were: applied, refused or held."""
    rng = random.Random(seed)
    async with kept({"a.yaml": job("a")}, onDisruption="Wait") as (world, remote):
        for number in range(1, 8):
            sort = rng.choice(("good", "refused", "held"))
            text = job("a").replace("ok=True", f"ok={number}") if sort == "held" else job("a")
            wrong = -number if sort == "refused" else number
            newest = remote.push({"a.yaml": text, "b.yaml": job("b", parallelism=wrong)})
            if rng.random() < 0.5:  # it is at something of its own
                world.clock.time_s += 60.0
                await turn(world)
            request = f"request-{number}"
            commit.request_reconcile(world.store, "fleet", request, approved=False)
            while world.status("fleet")["request"] != request:
                world.clock.time_s += 0.1
                await turn(world)
            status = world.status("fleet")
            assert status["attemptedRevision"] == newest
            wanted = {"good": "Ready", "refused": "RevisionRefused", "held": "NeedsConsent"}
            assert status["reason"] == wanted[sort], (number, sort, status)
            assert (f"`-{number}`" in status["lastError"]) is (sort == "refused")


async def test_data_that_goes_with_another_source_needs_consent_as_well() -> None:
    inner = (
        "apiVersion: fleetctl.dev/v1alpha1\nkind: Source\nmetadata: {name: inner}\n"
        "spec: {prune: true, git: {url: 'https://example.org/fleet.git', ref: other}}\n"
    )
    async with kept({"a.yaml": job("a")}) as (world, remote):
        remote.push({"v.yaml": volume("data")}, branch="other")
        remote.push({"a.yaml": job("a"), "s.yaml": inner})
        await world.later(60.0)
        await world.settle()
        assert "data" in world.names()
        remote.push({"a.yaml": job("a")})
        await world.later(60.0)
        assert world.status("fleet")["reason"] == "NeedsConsent"
        assert "volume/data: pruning it deletes its data" in world.status("fleet")["message"]
        assert world.row("data").deleted_at_s is None


async def test_a_commit_that_the_store_takes_half_of_is_not_there_at_all() -> None:
    """One row twice in what is to be written: the second write finds the first."""
    async with kept({"a.yaml": job("a"), "b.yaml": job("b")}) as (world, _):
        claim = SourceClaim("source/fleet", set_name("fleet", "default"), "c" * 40)
        now = [world.row(name) for name in ("a", "b", "a")]
        items = tuple(
            ProposedObject("configured", row, replace(row, labels={**row.labels, "seen": "yes"}))
            for row in now
        )
        proposal = CommitProposal(
            claim, items, 2, policies=digest_policies(world.store, world.clock.now_s())
        )
        with world.store.transaction(), pytest.raises(Conflict):
            store_proposal(world.store, proposal, (), approved=True, now_s=world.clock.now_s())
        assert [world.row(name).version for name in ("a", "b")] == [it.version for it in now[:2]]
        assert "seen" not in world.row("a").labels
