"""Objects that are kept equal to a repository: what is pushed is there, what is wrong changes
nothing, and what is said of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fleetctl.tracking.ownership import kept_by
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
        note = kept_by(world.row("a").annotations)
        assert note is not None
        assert (note.source, note.file, note.revision) == ("source/fleet", "a.yaml:1", first)
        second = remote.push({"a.yaml": job("a", completions=3), "c.yaml": job("c")})
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
