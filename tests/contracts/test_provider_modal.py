"""Provider `modal` against the suite of all providers: the unmodified SDK, and the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive
from fleetctl.providers.modal.modal_provider import ModalProvider
from fleetctl.specs.blocks.template import Template
from tests.contracts.modal_worlds import ModalWorld, emulated
from tests.contracts.provider_answers import ProviderAnswers
from tests.contracts.provider_bare import WithoutPython, without_python
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import World, command, python, story
from tests.emulators.modal.running import ModalEmulator


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with emulated() as one:
        yield one


class OnModal(ProviderSuite):
    sort = "modal"
    reads_contents = False
    whole = False

    test_a_machine_has_room_for_its_services = None  # the emulator does not report it

    @pytest.fixture(autouse=True)
    def _emulator(self, emulator: ModalEmulator) -> None:
        self.emulator = emulator

    def world(self, tmp_path: Path) -> World:
        return ModalWorld(tmp_path, self.emulator)

    def refused(self) -> Template:
        return command("true", resources={"gpu": "NoSuchGpu:1"})


class TestModal(ProviderAnswers, OnModal):
    # What follows a run is a stream to its worker, which the SDK mends by itself for long. So the
    # question itself is asked here.
    @pytest.mark.parametrize("answer", ["page", "key", "unknown", "broken"])
    def test_an_odd_answer_to_a_look_loses_nothing(self, tmp_path: Path, answer: str) -> None:
        async def told(_: object, world: ModalWorld) -> None:
            ref = await world.start(python("import time; time.sleep(600)"))
            world.spoil("look", answer)
            provider = world.provider
            assert isinstance(provider, ModalProvider)
            with pytest.raises(Unavailable):
                await provider._sandboxes.fate(ref.handle)
            world.mend()
            assert await provider._sandboxes.fate(ref.handle) is None
            assert isinstance(await world.see(ref), Alive)
            assert world.living() == 1

        story(told)(self, tmp_path)


class TestOlderBackend(OnModal):
    """The one that all sandboxes with GPUs run on; the SDK takes it for the others when told to."""

    second = True

    @pytest.fixture(autouse=True)
    def _older(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MODAL_SANDBOX_V2", "0")


class TestModalWithoutPython(WithoutPython):
    @pytest.fixture(autouse=True)
    def _emulator(self, emulator: ModalEmulator) -> None:
        self.emulator = emulator

    def world(self, tmp_path: Path) -> World:
        return without_python(ModalWorld)(tmp_path, self.emulator)
