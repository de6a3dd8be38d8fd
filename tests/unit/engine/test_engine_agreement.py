"""A Volume, a Function or a Secret and the work that uses it agree on their provider, or it is an
error that names both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetctl.apply.predictions.predict import is_worth_a_look, make_predictions
from fleetctl.apply.predictions.world import world_of
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions
from fleetctl.manifest import Manifest
from fleetctl.stores.sqlite.store import MemoryDatabase, open_memory_store
from fleetctl.wiring.account_registry import AccountRegistry
from tests.unit.engine.fake_world import ManualClock
from tests.unit.engine.test_engine_desired import manifest

DAYTONA = {"provider": "daytona"}


def job(placement: dict[str, Any] | None = None, **template: Any) -> Manifest:
    spec = {"completions": 1, "template": {"python": "pass", **template}}
    return manifest("BatchJob", "job", spec | ({"placement": placement} if placement else {}))


def volume(**spec: Any) -> Manifest:
    return manifest("Volume", "data", spec)


async def said(tmp_path: Path, *manifests: Manifest) -> list[str]:
    store = open_memory_store(ManualClock(), MemoryDatabase())
    providers = AccountRegistry(tmp_path, store_id="s", notify=lambda _: None).backends
    changes = propose_changes(store, manifests, ApplyOptions(), 1000.0)
    world = world_of(store, changes, providers, {}, lambda _: "value", starts_here=False)
    found = await make_predictions(manifests, changes, world)
    for provider in providers.values():
        await provider.close()
    store.close()
    named = ("volumes", "function", "secrets", "secret")
    return [
        f"{it.finding.what}; {it.finding.fix}"
        for it in found
        if any(name in it.finding.where for name in named)
    ]


MOUNT = {"volumes": [{"name": "data", "mountPath": "/data"}]}


async def test_a_volume_without_a_provider_and_work_elsewhere_is_an_error(tmp_path: Path) -> None:
    [told] = await said(tmp_path, volume(), job(DAYTONA, **MOUNT))
    assert "volume/data keeps on `local`" in told
    assert "this runs on `daytona`" in told
    assert "write `provider: daytona` in volume/data" in told


@pytest.mark.parametrize(
    ("kept", "placement"),
    [
        ({"provider": "daytona"}, DAYTONA),
        ({}, None),
        ({}, {"ordered": [{"provider": "daytona"}, {"provider": "local"}]}),
    ],
)
async def test_what_agrees_is_no_error(
    tmp_path: Path, kept: dict[str, Any], placement: dict[str, Any] | None
) -> None:
    assert await said(tmp_path, volume(**kept), job(placement, **MOUNT)) == []


async def test_a_volume_that_nobody_declares_goes_where_the_work_is(tmp_path: Path) -> None:
    assert await said(tmp_path, job(DAYTONA, **MOUNT)) == []


async def test_work_of_a_function_without_its_place_is_an_error(tmp_path: Path) -> None:
    function = manifest("Function", "f", {"provider": "modal", "minContainers": 1})
    [told] = await said(tmp_path, function, job(function="f", runtime="function"))
    assert "function/f keeps on `modal`" in told and "this runs on `local`" in told
    placed = job({"provider": "modal"}, function="f", runtime="function")
    assert await said(tmp_path, function, placed) == []


async def test_a_function_and_its_own_volume_disagree(tmp_path: Path) -> None:
    spec = {"provider": "modal", "volumes": MOUNT["volumes"]}
    [told] = await said(tmp_path, volume(), manifest("Function", "f", spec))
    assert "volume/data keeps on `local`" in told and "this runs on `modal`" in told


@pytest.mark.parametrize(("place", "wrong"), [("daytona", 1), ("local", 1), ("modal", 0)])
async def test_a_secret_that_its_provider_keeps_and_work_where_none_is_given(
    tmp_path: Path, place: str, wrong: int
) -> None:
    secret = manifest("Secret", "s", {"fromProvider": "kept"})
    reply = await said(tmp_path, secret, job({"provider": place}, secrets=["s"]))
    assert len(reply) == wrong
    assert all(f"`{place}` gives work none" in it for it in reply)


def test_work_of_this_machine_with_a_volume_is_worth_a_look() -> None:
    assert is_worth_a_look(job(**MOUNT).spec)
    assert not is_worth_a_look(job().spec)


KEPT, GIVEN = {"fromProvider": "kept"}, {"fromEnv": ["PIP_INDEX_PASSWORD"]}


@pytest.mark.parametrize(
    ("place", "secret", "hint"),
    [
        ("kubernetes", GIVEN, "`fromProvider: s` in place of its variables"),
        ("kubernetes", KEPT, ""),
        ("modal", KEPT, "use `fromEnv` or `fromFile`"),
        ("local", KEPT, "use `fromEnv` or `fromFile`"),
    ],
)
async def test_a_password_of_an_index_comes_in_the_way_that_a_place_has(
    tmp_path: Path, place: str, secret: dict[str, Any], hint: str
) -> None:
    index = {"url": "https://a.example.org/simple", "secret": "s"}
    image = {"pip": ["six"], "pipIndex": index}
    found = await said(
        tmp_path, manifest("Secret", "s", secret), job({"provider": place}, image=image)
    )
    assert len(found) == bool(hint)
    assert all(hint in it for it in found)
