"""Code for tasks that run in functions on Modal: as in sandboxes, cloned once a container."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.modal_worlds import FunctionWorld, emulated
from tests.contracts.provider_worlds import World, script, story
from tests.emulators.modal.running import ModalEmulator
from tests.servers import test_modal_sources


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with emulated() as running:
        yield running


class TestSourcesOfFunctions(test_modal_sources.TestSources):
    def world(self, tmp_path: Path) -> FunctionWorld:
        return FunctionWorld(tmp_path, self.emulator)

    @story
    async def test_a_warm_container_clones_once(self, world: World) -> None:
        source = {"git": {"url": self.public.url, "ref": "main"}}
        for at in range(3):
            ref = await world.start(
                script("echo x >> log; wc -l < log", source=source), run=f"r{at}"
            )
            assert (await world.ended(ref)).ok
            assert (await world.log(ref)).strip() == str(at + 1).encode()
