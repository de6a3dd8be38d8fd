"""Code for tasks on Daytona: repositories, private ones by a secret, and local directories."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.base import RunRef
from tests.contracts.daytona_worlds import DaytonaWorld, Play
from tests.contracts.provider_worlds import eventually, python, script
from tests.interpreters import make_repository
from tests.unit.providers.test_clone import Served
from tests.unit.providers.test_gitsource import Repository

Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A repository over HTTP, whose `main.py` tells of which commit it is."""
    open_: list[Served] = []

    def served(*, private: bool = False) -> Served:
        (tmp_path / "served").mkdir()
        repository = Repository(tmp_path / "served" / "origin")
        repository.commit("main.py", "NAME = 'one'")
        open_.append(Served(repository, private=private))
        return open_[-1]

    yield served
    for one in open_:
        one.close()


# -- repositories ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "listed"), [(None, ["code.py"]), ("v1", ["code.py"]), ("feature/one", ["new.txt"])]
)
def test_a_repository_is_cloned_into_the_workspace_and_is_where_the_task_begins(
    daytona_alone: Play, tmp_path: Path, ref: str | None, listed: list[str]
) -> None:
    url = f"file://{make_repository(tmp_path)}"

    async def tale(world: DaytonaWorld) -> None:
        source = {"git": {"url": url, **({"ref": ref} if ref else {})}}
        started = await world.start(script("pwd; ls", source=source))
        assert (await world.ended(started)).ok
        said = (await world.log(started)).decode().split()
        assert said[0] == "/home/daytona/workspace/sample-repo"
        assert set(listed) <= set(said)

    daytona_alone(tale)


@pytest.mark.parametrize("digits", [40, 10])
def test_a_commit_that_is_not_the_newest_is_what_the_task_finds(
    daytona_alone: Play, serve: Serve, digits: int
) -> None:
    served = serve()
    first = served.repository.git("rev-parse", "HEAD")
    served.repository.commit("main.py", "NAME = 'two'")
    served.publish()

    async def tale(world: DaytonaWorld) -> None:
        source = {"git": {"url": served.url, "ref": first[:digits]}}
        seen = await world.run(python("import main\nSUBMIT(name=main.NAME)", source=source))
        assert seen.result == '{"name":"one"}', seen.message

    daytona_alone(tale)


def test_tasks_of_a_template_get_the_same_commit(daytona_alone: Play, serve: Serve) -> None:
    served = serve()

    async def tale(world: DaytonaWorld) -> None:
        source = {"git": {"url": served.url, "ref": "main"}}
        template = python("import main\nSUBMIT(name=main.NAME)", source=source)
        assert (await world.run(template)).result == '{"name":"one"}'
        served.repository.commit("main.py", "NAME = 'two'")
        served.publish()
        assert (await world.run(template, run="run-1")).result == '{"name":"one"}'
        assert (await world.run(template, run="run-2", uid="uid-2")).result == '{"name":"two"}'

    daytona_alone(tale)


def test_a_private_repository_is_cloned_with_a_token_of_the_tasks_secrets(
    daytona_alone: Play, serve: Serve
) -> None:
    served = serve(private=True)

    async def tale(world: DaytonaWorld) -> None:
        source = {"git": {"url": served.url, "ref": "main"}}
        started = await world.start(
            script("cat main.py; cat .git/config", source=source), secrets={"GIT_TOKEN": "hush-1"}
        )
        assert (await world.ended(started)).ok
        reply = await world.log(started)
        assert reply.startswith(b"NAME = 'one'")
        assert b"hush" not in reply
        assert set(served.passwords) == {"x-access-token:hush-1"}
        assert "hush" not in json.dumps(world.emulator.state(requests=True))

    daytona_alone(tale)


def test_a_repository_that_may_not_be_seen_is_refused_and_its_sandbox_goes(
    daytona_alone: Play, serve: Serve
) -> None:
    served = serve(private=True)

    async def tale(world: DaytonaWorld) -> None:
        source = {"git": {"url": served.url, "ref": "main"}}
        with pytest.raises(Refused, match="asks for a password") as caught:
            await world.provider.start(world.order(script("echo begun", source=source)))
        assert "GIT_TOKEN" in caught.value.hint
        await _given_up(world)

    daytona_alone(tale)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_clone_whose_answer_is_lost_is_made_again_from_its_beginning(
    daytona_alone: Play, serve: Serve, when: str
) -> None:
    served = serve()

    async def tale(world: DaytonaWorld) -> None:
        world.emulator.fault(path="/toolbox/*/git/clone", when=when, drop=True, count=1)
        source = {"git": {"url": served.url, "ref": "main"}}
        template = script("cat main.py; git status --short", source=source)
        order = world.order(template)

        async def made() -> bool:
            try:
                return bool(await world.provider.start(order))
            except Unavailable:
                return False

        await eventually(made, "its sandbox was made")
        ref = await world.begin(order)
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"NAME = 'one'"
        assert len(world.made()) == 1

    daytona_alone(tale)


def test_a_ref_that_daytona_does_not_find_is_told_by_git(
    daytona_alone: Play, tmp_path: Path
) -> None:
    url = f"file://{make_repository(tmp_path)}"

    async def tale(world: DaytonaWorld) -> None:
        source = {"git": {"url": url, "ref": "no-such-branch"}}
        with pytest.raises(Refused, match="cannot be cloned") as caught:
            await world.provider.start(world.order(script("true", source=source)))
        assert "no-such-branch" in str(caught.value)
        await _given_up(world)

    daytona_alone(tale)


async def _given_up(world: DaytonaWorld) -> None:
    """As the engine does with a start that was refused."""
    await world.provider.stop(RunRef("run-0", "run-0", "", 0, "uid-1"), grace_s=0)

    async def gone() -> bool:
        return not world.present()

    await eventually(gone, "its sandbox was deleted")


# -- directories -----------------------------------------------------------------------------------


def test_a_directory_of_this_machine_is_where_the_task_begins(
    daytona_alone: Play, tmp_path: Path
) -> None:
    tree = tmp_path / "project"
    (tree / "pkg").mkdir(parents=True)
    (tree / "pkg" / "mod.py").write_text("WORD = 'imported'\n")
    (tree / "secret.env").write_text("no")
    (tree / ".gitignore").write_text("*.env\n")

    async def tale(world: DaytonaWorld) -> None:
        source = {"path": str(tree)}
        ref = await world.start(script("pwd; cat pkg/mod.py; ls", source=source))
        assert (await world.ended(ref)).ok
        message = (await world.log(ref)).decode()
        assert message.startswith("/home/daytona/workspace/project\nWORD = 'imported'\n")
        assert "secret.env" not in message
        (tree / "pkg" / "mod.py").write_text("WORD = 'changed'\n")
        elsewhere = {**source, "mountPath": "/root/There"}
        ref = await world.start(script("pwd; cat pkg/mod.py", source=elsewhere), run="run-1")
        assert (await world.ended(ref)).ok
        # All runs of a template see the directory as the first one did.
        assert await world.log(ref) == b"/root/There\nWORD = 'imported'\n"
        [archive] = (world.directory / "home").rglob("source-*.tar.gz")
        with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as tar:
            assert "./secret.env" not in tar.getnames()

    daytona_alone(tale)
