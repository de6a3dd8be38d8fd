"""Provider `daytona` against the suite of all providers: the unmodified SDK, and the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.specs.blocks.template import Template
from tests.contracts.daytona_worlds import DaytonaWorld, emulated
from tests.contracts.provider_answers import ProviderAnswers
from tests.contracts.provider_bare import WithoutPython, without_python
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import World, command
from tests.emulators.daytona.running import DaytonaEmulator


@pytest.fixture(scope="module")
def emulator() -> Iterator[DaytonaEmulator]:
    with emulated() as one:
        yield one


class TestDaytona(ProviderAnswers, ProviderSuite):
    sort = "daytona"

    @pytest.fixture(autouse=True)
    def _emulator(self, emulator: DaytonaEmulator) -> None:
        self.emulator = emulator

    def world(self, tmp_path: Path) -> World:
        return DaytonaWorld(tmp_path, self.emulator)

    def refused(self) -> Template:
        return command("true", resources={"gpu": "NoSuchGpu:1"})


class TestDaytonaWithoutPython(WithoutPython):
    @pytest.fixture(autouse=True)
    def _emulator(self, emulator: DaytonaEmulator) -> None:
        self.emulator = emulator

    def world(self, tmp_path: Path) -> World:
        return without_python(DaytonaWorld)(tmp_path, self.emulator)
