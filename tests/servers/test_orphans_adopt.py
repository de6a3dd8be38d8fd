"""`fleetctl orphans --adopt` at every provider: what a lost store left running becomes a run of
this store, its work goes on untouched, and its result is collected.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.providers.contract.base import RunRequest
from fleetctl.specs.kinds.registry import KINDS
from tests.contracts.provider_worlds import eventually
from tests.servers.verb_worlds import ON_TWO, PROVIDERS, VerbWorld, play, service

pytestmark = ON_TWO

# Says how often it began, and waits to be told that it may end.
WAITS = {
    "script": "echo begun; while [ ! -e go ]; do sleep 0.05; done; "
    'echo \'{"n": 7}\' > "$FLEETCTL_RESULT"'
}


@pytest.fixture(scope="module", params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Iterator[str]:
    with service(request.param):
        yield request.param


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def manifest(world: VerbWorld, **spec: Any) -> dict[str, Any]:
    desired = {"completions": 2, "placement": {"provider": world.name}, "template": WAITS, **spec}
    about = {"name": "kept", "labels": {"team": "rlm"}}
    return {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "BatchJob",
        "metadata": about,
        "spec": desired,
    }


def lost(world: VerbWorld, index: int, **changes: Any) -> RunRequest:
    """The order of a task of `kept` by a store that is lost."""
    spec = KINDS["BatchJob"].spec.model_validate(manifest(world)["spec"])
    controller = CONTROLLERS["BatchJob"](spec, {})
    unit = controller.unit(index)
    assert unit is not None
    return world.order(
        controller.template(index),
        run=f"lost-{index}",
        uid="uid-lost",
        owner="lost-store",
        resource="batchjob/kept",
        index=index,
        template_hash=unit.template_hash,
        **changes,
    )


async def leave(world: VerbWorld, *orders: RunRequest) -> None:
    """Begin them for a store that is then lost. Whoever still followed them for it would end each
    sandbox once its end is on the store's disk, and another store would find nothing there.
    """
    store = world.again("lost-store")
    for order in orders:
        await world.begin(order, store)
    await store.close()
    world.backends.remove(store)


def with_controller(
    home: Path, provider: str, tale: Callable[[VerbWorld], Awaitable[None]]
) -> None:
    async def scene(world: VerbWorld) -> None:
        world.store.close()
        try:
            await tale(world)
        finally:
            await world.fleetctl("down")

    play(home, provider, scene)


async def said(world: VerbWorld, *words: str, code: int = 0) -> str:
    found, out, talk = await world.fleetctl(*words)
    assert found == code, (out, talk)
    return out + talk


async def orphans(world: VerbWorld) -> list[str]:
    out = await said(world, "orphans", "--provider", world.name, "-o", "json")
    return [one["run"] for one in json.loads(out) if one["kind"] == "sandbox"]


async def let_end(world: VerbWorld, job: str, index: int) -> None:
    """Its task runs as any other: a command beside it tells it that it may end. Told until it has:
    a command may come before the task, which begins with a directory of its own.
    """

    async def told() -> bool:
        words = ("exec", job, "--index", str(index), "--", "touch", "go")
        _, _, talk = await world.fleetctl(*words)
        return "has ended (succeeded)" in talk

    await eventually(told, f"task {index} of {job} ended")


async def results(world: VerbWorld, job: str) -> list[Any]:
    out = await said(world, "results", job, "-o", "json")
    return [(one["state"], one["attempts"], one["result"]) for one in json.loads(out)]


def test_an_object_is_made_for_what_has_none_and_its_result_is_collected(
    home: Path, provider: str
) -> None:
    async def tale(world: VerbWorld) -> None:
        await leave(world, lost(world, 1))
        out = await said(world, "orphans", "--adopt", "--provider", world.name)
        assert "no orphans to adopt" in out and "of other stores left alone" in out

        adopting = ("orphans", "--adopt", "--all-stores", "--provider", world.name)
        out = await said(world, *adopting)
        assert "adopted: index 0 of batchjob/adopted-kept, which was made for it" in out
        assert await orphans(world) == []
        await let_end(world, "job/adopted-kept", 0)
        await said(world, "wait", "job/adopted-kept", "--timeout", "400s")
        assert await results(world, "job/adopted-kept") == [("Succeeded", 1, {"n": 7})]
        out = await said(world, "logs", "job/adopted-kept")
        assert out.count("begun") == 1

    with_controller(home, provider, tale)


def test_what_its_object_wishes_for_again_is_a_run_of_it(
    home: Path, provider: str, tmp_path: Path
) -> None:
    async def tale(world: VerbWorld) -> None:
        await leave(world, lost(world, 0))
        (tmp_path / "kept.json").write_text(json.dumps(manifest(world, parallelism=0)))
        await said(world, "apply", "-f", str(tmp_path / "kept.json"))
        adopting = ("orphans", "--adopt", "--all-stores", "--provider", world.name)
        assert "adopted: index 0 of batchjob/kept\n" in await said(world, *adopting)
        assert await orphans(world) == []

        await said(world, "scale", "job/kept", "--parallelism", "2")
        await let_end(world, "job/kept", 0)
        await let_end(world, "job/kept", 1)
        await said(world, "wait", "job/kept", "--timeout", "400s")
        assert await results(world, "job/kept") == [("Succeeded", 1, {"n": 7})] * 2
        assert (await said(world, "logs", "job/kept", "--index", "0")).count("begun") == 1

    with_controller(home, provider, tale)


def test_what_cannot_be_adopted_says_why_and_stops_no_other(home: Path, tmp_path: Path) -> None:
    async def tale(world: VerbWorld) -> None:
        await leave(world, lost(world, 0), lost(world, 1, reusable=True))
        (tmp_path / "kept.json").write_text(json.dumps(manifest(world, parallelism=1)))
        await said(world, "apply", "-f", str(tmp_path / "kept.json"))
        await let_end_of_first(world)
        code, out, talk = await world.fleetctl("orphans", "--adopt", "--all-stores")
        assert (code, out) == (3, ""), talk
        assert "batchjob/kept: task 0 has succeeded already" in talk
        assert "tasks take turns in it" in talk
        assert "`fleetctl orphans lost-0 --delete` ends it" in talk
        assert sorted(await orphans(world)) == ["lost-0", "lost-1"]

        code, _, talk = await world.fleetctl(
            "orphans", "lost-0", "--adopt", "--all-stores", "--into", "job/none"
        )
        assert code == 4 and "batchjob/none is not there" in talk
        await said(world, "delete", "job/kept", "--yes")

    async def let_end_of_first(world: VerbWorld) -> None:
        await let_end(world, "job/kept", 0)

        async def done() -> bool:
            out = await said(world, "get", "jobs", "-o", "json")
            return bool(json.loads(out)["items"][0]["status"]["succeeded"])

        await eventually(done, "task 0 succeeded")

    with_controller(home, "local", tale)


def test_a_person_may_say_whose_run_it_is(home: Path, tmp_path: Path) -> None:
    async def tale(world: VerbWorld) -> None:
        await leave(world, lost(world, 1))
        other = manifest(world, parallelism=0)
        other["metadata"]["name"] = "other"
        (tmp_path / "other.json").write_text(json.dumps(other))
        await said(world, "apply", "-f", str(tmp_path / "other.json"))
        adopting = ("orphans", "--adopt", "--all-stores", "--into", "job/other")
        assert "index 1 of batchjob/other" in await said(world, *adopting)
        await let_end(world, "job/other", 1)

        async def done() -> bool:
            return await results(world, "job/other") == [("Succeeded", 1, {"n": 7})]

        await eventually(done, "the result came")

    with_controller(home, "local", tale)


def test_words_that_do_not_go_together_are_refused(home: Path) -> None:
    async def tale(world: VerbWorld) -> None:
        for words in (("--adopt", "--delete"), ("--into", "job/x"), ("-n", "team")):
            assert (await world.fleetctl("orphans", *words))[0] == 2

    play(home, "local", tale)
