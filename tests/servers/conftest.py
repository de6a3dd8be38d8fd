"""Fixtures that more than one file here uses: an emulator of each cloud for a module, what plays a
test there, and a tally of what really began.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.daemon.client import spawn
from fleetctl.providers.remote import recipes
from tests.contracts import daytona_worlds, modal_worlds
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.modal.running import ModalEmulator
from tests.emulators.wandb.running import WandbEmulator
from tests.servers import daytona_fleet, forked, modal_fleet
from tests.servers.fleets import Tally
from tests.servers.modal_calling import look_often

PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def _builds_take_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start waits for its image's build, however busy the machine is."""
    monkeypatch.setattr(recipes, "PATIENCE_S", PATIENCE_S)


@pytest.fixture(autouse=True, scope="module")
def _controllers_are_forks() -> Iterator[None]:
    """Those that a command in this process starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spawn, "_spawn_controller", forked.start_controller)
        yield


@pytest.fixture
def tally() -> Iterator[Tally]:
    with Tally() as one:
        yield one


@pytest.fixture(scope="module")
def modal_emulator() -> Iterator[ModalEmulator]:
    with modal_worlds.emulated() as one:
        yield one


@pytest.fixture
def on_modal(tmp_path: Path, modal_emulator: ModalEmulator) -> Iterator[modal_fleet.Play]:
    """Tells a tale of one store, whose runs are on the emulated Modal."""
    with modal_fleet.played(tmp_path / "home", modal_emulator) as told:
        yield told


@pytest.fixture
def calls_on_modal(on_modal: modal_fleet.Play, monkeypatch: pytest.MonkeyPatch) -> modal_fleet.Play:
    """The same, for calls of functions: they are looked at often."""
    look_often(monkeypatch)
    return on_modal


@pytest.fixture
def wandb_emulator() -> Iterator[WandbEmulator]:
    """A new one for each test: it starts in 30 ms, and what was asked of it is counted."""
    with WandbEmulator() as one:
        yield one


@pytest.fixture(scope="module")
def daytona_emulator() -> Iterator[DaytonaEmulator]:
    with daytona_worlds.emulated() as one:
        yield one


@pytest.fixture
def on_daytona(tmp_path: Path, daytona_emulator: DaytonaEmulator) -> Iterator[daytona_fleet.Play]:
    """Tells a tale of one store, whose runs are on the emulated Daytona."""
    with daytona_fleet.played(tmp_path / "home", daytona_emulator) as told:
        yield told


@pytest.fixture
def daytona_alone(
    tmp_path: Path, daytona_emulator: DaytonaEmulator
) -> Iterator[daytona_worlds.Play]:
    """Tells a tale of the provider alone, without an engine; of what it made nothing is left."""
    with daytona_worlds.played(tmp_path, daytona_emulator) as told:

        def and_nothing_is_left(tale: daytona_worlds.Tale) -> None:
            async def whole(world: daytona_worlds.DaytonaWorld) -> None:
                await tale(world)
                assert world.present() == []

            told(whole)

        yield and_nothing_is_left
