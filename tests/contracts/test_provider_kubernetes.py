"""Provider `kubernetes` against the suite of all providers, on the emulated cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive
from fleetctl.providers.kubernetes.kubernetes_provider import KubernetesProvider
from tests.contracts.kubernetes_suite import KubernetesSuite
from tests.contracts.kubernetes_worlds import KubernetesWorld, emulated
from tests.contracts.provider_answers import ProviderAnswers
from tests.contracts.provider_bare import WithoutPython, without_python
from tests.contracts.provider_worlds import World, python, script, story
from tests.emulators.kubernetes.running import KubernetesEmulator


@pytest.fixture(scope="module")
def emulator() -> Iterator[KubernetesEmulator]:
    with emulated() as one:
        yield one


class TestKubernetes(ProviderAnswers, KubernetesSuite):
    whole = False

    @pytest.fixture(autouse=True)
    def _emulator(self, emulator: KubernetesEmulator) -> None:
        self.emulator = emulator

    def world(self, tmp_path: Path) -> World:
        return KubernetesWorld(tmp_path, self.emulator)

    @story
    async def test_a_pod_has_the_settings_of_its_template(self, world: World) -> None:
        assert isinstance(world, KubernetesWorld)
        settings = {"podLabels": {"team": "vision"}, "nodeSelector": {"kubernetes.io/os": "linux"}}
        ref = await world.start(script("sleep 600", kubernetes=settings))
        await world.alive(ref)
        [pod] = world.pods()
        assert pod["metadata"]["labels"]["team"] == "vision"
        assert pod["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux"
        await world.provider.stop(ref, grace_s=0)

    # A stream that broke is opened anew before anybody asks what became of its pod. So the question
    # itself is asked here.
    @pytest.mark.parametrize("answer", ["page", "key", "unknown", "broken"])
    def test_an_odd_answer_to_a_look_loses_nothing(self, tmp_path: Path, answer: str) -> None:
        async def told(_: object, world: KubernetesWorld) -> None:
            ref = await world.start(python("import time; time.sleep(600)"))
            world.spoil("look", answer)
            provider = world.provider
            assert isinstance(provider, KubernetesProvider)
            with pytest.raises(Unavailable):
                await provider._sandboxes.fate(ref.handle)
            world.mend()
            assert await provider._sandboxes.fate(ref.handle) is None
            assert isinstance(await world.see(ref), Alive)
            assert world.living() == 1

        story(told)(self, tmp_path)

    def test_a_create_whose_lost_reply_made_nothing_waits_as_the_server_asks(
        self, tmp_path: Path
    ) -> None:
        async def told(_: object, world: KubernetesWorld) -> None:
            world.emulator.fault(verb="create", resource="jobs", code=503, retry_after_s=30)
            with pytest.raises(Unavailable, match="cannot be made") as raised:
                await world.start(python("pass"))
            assert (raised.value.retry_after_s, raised.value.perhaps_made) == (30.0, True)
            assert str(raised.value).count("cannot be made") == 1
            assert world.living() == 0

        story(told)(self, tmp_path)


class TestKubernetesWithoutPython(WithoutPython):
    @pytest.fixture(autouse=True)
    def _emulator(self, emulator: KubernetesEmulator) -> None:
        self.emulator = emulator

    def world(self, tmp_path: Path) -> World:
        return without_python(KubernetesWorld)(tmp_path, self.emulator)
