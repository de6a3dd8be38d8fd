"""Provider `local` against the suite of all providers, in both of its tiers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.errors import Refused
from specs.template import Template
from tests.contracts.local_worlds import LocalWorld, stop_keepers
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import World, command, story


class TestNamespaces(ProviderSuite):
    tier = "namespaces"

    @pytest.fixture(autouse=True)
    def _tier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETCTL_LOCAL_TIER", self.tier)

    @pytest.fixture(autouse=True)
    def _nothing_left(self, tmp_path: Path) -> Iterator[None]:
        """The keepers of a test end with it."""
        yield
        home = tmp_path / "home"
        if home.exists():
            stop_keepers(home)

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
