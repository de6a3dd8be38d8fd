"""`fleetctl orphans` tells of volumes and functions that nothing names any more. Data goes only
when somebody has named its volume.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.controllers.model import Resource
from fleetctl.providers.contract.base import FunctionAsset, FunctionRequest
from fleetctl.specs.blocks.template import Template
from tests.servers.verb_worlds import ON_TWO, PROVIDERS, VerbWorld, play, service

pytestmark = ON_TWO


@pytest.fixture(scope="module", params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Iterator[str]:
    with service(request.param):
        yield request.param


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


async def listed(world: VerbWorld) -> list[str]:
    words = ("orphans", "--provider", world.name, "-o", "json")
    code, out, said = await world.fleetctl(*words)
    assert code == 0, said
    return sorted(one["id"] for one in json.loads(out))


def declare(world: VerbWorld, kind: str, name: str, namespace: str = "default") -> None:
    desired = json.dumps({"provider": world.name})
    row = Resource(f"u-{name}", kind, name, 1, 0, desired, "", {}, {}, 5.0, namespace=namespace)
    with world.store.transaction():
        world.store.resources.put(row, expected_version=None)


def test_a_volume_that_no_object_names_is_listed_and_goes_when_it_is_named(
    home: Path, provider: str
) -> None:
    async def tale(world: VerbWorld) -> None:
        for volume in ("declared", "team.declared", "left", "other"):
            await world.provider.ensure_volume(volume)
        declare(world, "Volume", "declared")
        assert await listed(world) == ["volume/left", "volume/other", "volume/team.declared"]
        with world.store.transaction():
            world.store.resources.delete("u-declared")
        declare(world, "Volume", "declared", "team")
        assert await listed(world) == ["volume/declared", "volume/left", "volume/other"]

        deleting = ("orphans", "--delete", "--yes", "--provider", world.name)
        code, out, said = await world.fleetctl(*deleting)
        assert (code, out) == (0, "") and "3 volumes left alone" in said
        code, _, said = await world.fleetctl("orphans", "volume/left", "--delete")
        assert code == 3 and "the data of volume/left" in said
        code, out, said = await world.fleetctl(*deleting, "volume/left")
        assert (code, out) == (0, f"{world.name}/volume/left deleted\n"), said
        assert await listed(world) == ["volume/declared", "volume/other"]
        code, _, said = await world.fleetctl("orphans", "volume/other", "--adopt")
        assert code == 3 and "declare it" in said
        await world.fleetctl(*deleting, "volume/other", "volume/declared")
        await world.provider.remove_volume("team.declared")
        assert await listed(world) == []

    play(home, provider, tale)


def test_a_function_that_nobody_calls_is_listed_and_stopped(home: Path) -> None:
    async def tale(world: VerbWorld) -> None:
        order = FunctionRequest("embed", 0, None, 60.0)
        await world.provider.ensure_function(FunctionAsset(order, Template()))
        declare(world, "Function", "embed")
        assert await listed(world) == []
        with world.store.transaction():
            world.store.resources.delete("u-embed")
        (left,) = await listed(world)
        assert left.startswith("function/fleetctl-fn-")
        code, _, said = await world.fleetctl("orphans", left, "--adopt")
        assert code == 3 and "no object of this store calls it" in said
        code, out, said = await world.fleetctl("orphans", "--delete", "--yes")
        assert (code, out) == (0, f"modal/{left} deleted\n"), said
        assert await listed(world) == []

    with service("modal"):
        play(home, "modal", tale)
