"""Containers in jobs of a real Slurm: a real podman on its nodes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.sandbox_access import ExecStreams, ExecTarget
from fleetctl.providers.slurm.slurm_access import SlurmEntering
from tests.contracts.provider_worlds import eventually, python, script
from tests.contracts.slurm_worlds import SlurmWorld
from tests.machines.container_images import (
    container_settings,
    containers_of,
    podman,
    python_image,
    shell_image,
)
from tests.machines.slurm_cluster import SlurmCluster

pytestmark = [
    pytest.mark.needs("slurmctld", "slurmd", "squeue", "munged", "podman", "runc"),
    pytest.mark.only_all(reason="a real Slurm of three nodes"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    place = tmp_path_factory.mktemp("slurm") / "cluster"
    with SlurmCluster(place) as one, pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "SLURM_CONF", str(one.config))
        yield one


def play(
    directory: Path,
    cluster: SlurmCluster,
    tale: Callable[[SlurmWorld], Awaitable[None]],
    **container: object,
) -> None:
    """Plays a tale, after which no container may be there."""

    async def whole() -> None:
        world = SlurmWorld(directory, cluster, container={**container_settings(), **container})
        try:
            await tale(world)
            await no_containers(world)
        finally:
            await world.close()
            for name in containers_of(world.root):
                podman("rm", "--force", "--time", "0", name)

    asyncio.run(whole())


async def no_containers(world: SlurmWorld) -> None:
    async def none() -> bool:
        return containers_of(world.root) == []

    await eventually(none, "no container is left")


def test_tasks_of_a_job_run_in_its_container(tmp_path: Path, cluster: SlurmCluster) -> None:
    volume = [{"name": "v", "mountPath": "/given/v"}]
    code = tmp_path / "code"
    code.mkdir()
    (code / "note").write_text("from the source\n")

    async def tale(world: SlurmWorld) -> None:
        text = "cat note /etc/made-for; echo $S >/given/v/by; echo in $SLURM_JOB_ID; exit 7"
        image = {"registry": shell_image()}
        source = {"path": str(code)}
        template = script(text, image=image, volumes=volume, source=source)
        ref = await world.begin(world.order(template, secrets={"S": "hidden"}))
        seen = await world.ended(ref)
        assert (seen.ok, seen.exit_code) == (False, 7)
        log = await world.log(ref)
        job = ref.handle.partition("/")[0].encode()
        assert log == b"from the source\ntests of fleetctl\nin " + job + b"\n"
        assert (world.root / "volumes" / "v" / "by").read_text() == "hidden\n"
        assert not Path("/given").exists()
        image = {"registry": python_image()}
        where = "SUBMIT(made=open('/etc/made-for').read())"
        seen = await world.run(python(where, image=image), run="run-1")
        assert seen.result == '{"made":"tests of fleetctl\\n"}'

    play(tmp_path, cluster, tale)


def test_a_command_beside_a_task_is_in_its_container(tmp_path: Path, cluster: SlurmCluster) -> None:
    async def tale(world: SlurmWorld) -> None:
        image = {"registry": shell_image()}
        ref = await world.start(script("echo 7 >note; echo begun; sleep 600", image=image))
        await world.log_holds(ref, b"begun")
        account = Account("slurm", "slurm", settings=world.settings)
        entering = SlurmEntering(world.directory / "home", account)
        out: list[bytes] = []
        streams = ExecStreams(None, out.append, lambda _: None)
        target = ExecTarget(ref.run, ref.sandbox, ref.handle)
        words = ("sh", "-c", "cat note /etc/made-for; exit 5")
        assert await entering.execute(target, words, streams) == 5
        assert b"".join(out) == b"7\ntests of fleetctl\n"
        await entering.close()
        await world.provider.stop(ref, grace_s=0)

    play(tmp_path, cluster, tale)


def test_a_container_ends_with_its_job_also_where_that_is_killed(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    async def tale(world: SlurmWorld) -> None:
        image = {"registry": shell_image()}
        ref = await world.start(script("echo begun; sleep 600", image=image))
        await world.log_holds(ref, b"begun")
        box = ref.handle.partition("/")[2]
        killed = 0
        for about in Path("/proc").glob("[0-9]*"):
            try:
                words = (about / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if box.encode() in words and b"python3" in words[0]:
                os.kill(int(about.name), signal.SIGKILL)
                killed += 1
        assert killed
        await no_containers(world)
        await world.lost(ref)

    play(tmp_path, cluster, tale)


def test_what_a_node_cannot_run_is_refused_with_the_words_of_podman(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    async def tale(world: SlurmWorld) -> None:
        image = {"registry": shell_image()}
        with pytest.raises(Refused) as caught:
            await world.begin(world.order(script("true", image=image)))
        assert "a node of the cluster cannot start a container" in str(caught.value)
        assert "unknown flag: --no-such-option" in str(caught.value)
        assert await world.provider.owned() == []

    play(tmp_path, cluster, tale, args=["--no-such-option"])
