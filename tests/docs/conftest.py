"""One home for all examples, so that each environment is built once; one for the README's tour; and
one that is emptied after each test.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.daemon.client import spawn
from tests.docs.fleet import Fleet, of_all_workers
from tests.docs.screens import variables_for
from tests.emulators.modal.running import ModalEmulator
from tests.emulators.wandb.running import WandbEmulator
from tests.servers import forked


@pytest.fixture(autouse=True, scope="module")
def _controllers_are_forks() -> Iterator[None]:
    """Those that a command in this process starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spawn, "_spawn_controller", forked.start_controller)
        yield


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    home = tmp_path_factory.mktemp("examples") / "home"
    fleet = Fleet(home, environments=of_all_workers(tmp_path_factory) / "environments")
    yield fleet
    fleet.close()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One home and one controller for a module."""
    house = Fleet(tmp_path_factory.mktemp("house") / "home")
    yield house
    house.close()


@pytest.fixture
def empty(house: Fleet) -> Iterator[Fleet]:
    """With no object in it when a test begins."""
    yield house
    house.delete_all()


@pytest.fixture
def tour(shows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A page begins with nothing, so its screens do too; an emulated Modal stands by for those that
    ask for an account. shows: the page.
    """
    with ModalEmulator() as emulator:
        patience = {"FLEETCTL_MODAL_CONNECT_S": "60"}  # the machine may be busy
        tour = Fleet(
            tmp_path_factory.mktemp("tour") / "home", {**variables_for(shows, emulator), **patience}
        )
        yield tour
        tour.close()


@pytest.fixture
def wandb_emulator() -> Iterator[WandbEmulator]:
    with WandbEmulator() as one:
        yield one
