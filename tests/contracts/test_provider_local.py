"""Provider `local` against the suite of all providers, in both of its tiers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.base import BEGUN_AS_ANOTHER
from fleetctl.specs.blocks.template import Template
from tests.contracts.local_worlds import LocalWorld, stop_supervisors
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import World, command, python, story


class TestNamespaces(ProviderSuite):
    tier = "namespaces"

    @pytest.fixture(autouse=True)
    def _tier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETCTL_LOCAL_TIER", self.tier)

    @pytest.fixture(autouse=True)
    def _nothing_left(self, tmp_path: Path) -> Iterator[None]:
        """The supervisors of a test end with it."""
        yield
        home = tmp_path / "home"
        if home.exists():
            stop_supervisors(home)

    def world(self, tmp_path: Path) -> World:
        return LocalWorld(tmp_path)

    def refused(self) -> Template:
        return command("true", image={"registry": "example.org/image"})


class TestProcess(TestNamespaces):
    tier = "process"


class TestSecrets:
    def world(self, tmp_path: Path) -> World:
        return LocalWorld(tmp_path)

    @story
    async def test_a_secret_that_another_provider_keeps_is_refused(self, world: World) -> None:
        with pytest.raises(Refused, match="keeps no secrets"):
            await world.provider.start(world.order(secret_refs=("wandb-secret",)))


class TestRestored:
    """The store was put back from a backup, and its names have been used since."""

    @pytest.fixture(autouse=True)
    def _nothing_left(self, tmp_path: Path) -> Iterator[None]:
        yield
        stop_supervisors(tmp_path / "home")

    def world(self, tmp_path: Path) -> World:
        return LocalWorld(tmp_path)

    @story
    async def test_what_ended_is_adopted_as_itself_and_not_as_other_work(
        self, world: World
    ) -> None:
        order = world.order(python("SUBMIT(x=x)"), params={"x": 1})
        ref = await world.begin(order)
        await world.ended(ref)
        with pytest.raises(Unavailable) as caught:
            await world.again().start(replace(order, params={"x": 2}))
        assert caught.value.reason == BEGUN_AS_ANOTHER
        assert await world.begin(order, world.again()) == ref
