"""Code for tasks on Modal: directories of this machine, repositories, private ones by a secret."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused
from tests.contracts.modal_worlds import ModalWorld, emulated
from tests.contracts.provider_worlds import World, python, script, story
from tests.emulators.modal.running import ModalEmulator
from tests.unit.providers.test_clone import Served
from tests.unit.providers.test_gitsource import Repository


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with emulated() as running:
        yield running


class TestSources:
    @pytest.fixture(autouse=True)
    def _emulator(self, emulator: ModalEmulator) -> None:
        self.emulator = emulator

    @pytest.fixture(autouse=True)
    def _served(self, tmp_path: Path) -> Iterator[None]:
        repository = Repository(tmp_path / "Sky.RL")
        repository.commit("train.sh", "basename $PWD; cat lib.py")
        repository.commit("lib.py", "name = 'one'")
        self.public = Served(repository, private=False)
        (tmp_path / "hidden").mkdir()
        hidden = Repository(tmp_path / "hidden" / "origin")
        hidden.commit("main.py", "print('private')")
        self.private = Served(hidden, private=True)
        yield
        self.public.close()
        self.private.close()

    def world(self, tmp_path: Path) -> ModalWorld:
        return ModalWorld(tmp_path, self.emulator)

    @story
    async def test_a_task_starts_in_a_clone_of_its_repository(self, world: World) -> None:
        source = {"git": {"url": self.public.url, "ref": "main"}}
        ref = await world.start(script("sh train.sh; git status --short", source=source))
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"served\nname = 'one'"

    @story
    async def test_a_python_task_imports_from_its_repository(self, world: World) -> None:
        source = {"git": {"url": self.public.url}, "mountPath": "/srv/code"}
        seen = await world.run(python("import lib\nSUBMIT(name=lib.name)", source=source))
        assert seen.result == '{"name":"one"}'

    @story
    async def test_tasks_of_a_template_get_the_same_commit(self, world: World) -> None:
        source = {"git": {"url": self.public.url, "ref": "main"}}
        await world.run(script("true", source=source))
        self.public.repository.commit("lib.py", "name = 'two'")
        self.public.publish()
        ref = await world.start(script("cat lib.py", source=source), run="run-1")
        await world.ended(ref)
        assert await world.log(ref) == b"name = 'one'"
        ref = await world.start(script("cat lib.py", source=source), run="run-2", uid="uid-2")
        await world.ended(ref)
        assert await world.log(ref) == b"name = 'two'"

    @story
    async def test_a_private_repository_is_cloned_with_a_token_of_the_tasks_secrets(
        self, world: World
    ) -> None:
        source = {"git": {"url": self.private.url, "ref": "main"}}
        ref = await world.start(
            script("cat main.py; cat .git/config", source=source), secrets={"GIT_TOKEN": "hush-1"}
        )
        assert (await world.ended(ref)).ok
        reply = await world.log(ref)
        assert reply.startswith(b"print('private')")
        assert b"hush" not in reply
        assert set(self.private.passwords) == {"x-access-token:hush-1"}
        calls = self.emulator.log()
        assert "hush" not in str([call for call in calls if call.get("rpc") == "SandboxCreateV2"])

    @story
    async def test_a_repository_that_may_not_be_seen_fails_the_run_and_says_so(
        self, world: World
    ) -> None:
        source = {"git": {"url": self.private.url, "ref": "main"}}
        seen = await world.run(script("echo begun", source=source))
        assert (seen.ok, seen.reason) == (False, "SourceFailed")
        assert "/served.git" in seen.message

    @story
    async def test_a_ref_that_is_not_there_is_refused_before_anything_is_made(
        self, world: World
    ) -> None:
        source = {"git": {"url": self.public.url, "ref": "nope"}}
        before = len(self.emulator.state()["sandboxes"])
        with pytest.raises(Refused, match="`nope` is not in"):
            await world.start(script("true", source=source))
        assert len(self.emulator.state()["sandboxes"]) == before

    @story
    async def test_a_task_works_in_a_directory_of_this_machine(self, world: World) -> None:
        code = world.directory / "my code"
        (code / "package").mkdir(parents=True)
        (code / "package" / "__init__.py").write_text("name = 'mine'")
        (code / "big.bin").write_bytes(os.urandom(1000))
        (code / ".gitignore").write_text("*.bin")
        source = {"path": str(code)}
        ref = await world.start(script("pwd; ls -A; echo x > made && cat made", source=source))
        assert (await world.ended(ref)).ok
        assert (await world.log(ref)).decode().splitlines() == [
            *("/root/my code", ".gitignore", "package", "x"),
        ]
        seen = await world.run(
            python("from package import name\nSUBMIT(name=name)", source=source), run="run-1"
        )
        assert seen.result == '{"name":"mine"}'
