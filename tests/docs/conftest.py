"""One home for all examples, so that each environment is built once; one for the README's tour."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.fleet import Fleet
from tests.emulators.modal.running import ModalEmulator


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("examples") / "home")
    yield fleet
    fleet.close()


@pytest.fixture
def tour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The README begins with nothing, so its screens do too; an emulated Modal stands by."""
    with ModalEmulator() as emulator:
        tour = Fleet(tmp_path_factory.mktemp("tour") / "home", emulator.env)
        yield tour
        tour.close()
