"""Containers on hosts of provider `ssh`: a real podman behind a real OpenSSH server, with images of
this machine's own programs.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fleetctl.common.errors import Refused
from fleetctl.controllers.model import Alive
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.contract.sandbox_access import ExecStreams, ExecTarget
from fleetctl.providers.ssh.ssh_access import SshEntering, SshOrphans
from fleetctl.providers.ssh.ssh_hosts import check_ssh
from tests.contracts.provider_worlds import eventually, python, script
from tests.contracts.ssh_worlds import ContainerWorld
from tests.emulators.llm.server import Model
from tests.machines.container_images import podman, python_image, shell_image
from tests.machines.image_registry import ImageRegistry
from tests.machines.machine_lives import ContainerLife
from tests.machines.memory_suite import end_for_memory
from tests.machines.ssh_server import SshServer
from tests.machines.test_ssh_hosts import lives
from tests.servers.test_relayed_calls import ASKS, KEY, access, played

pytestmark = pytest.mark.needs("sshd", "podman", "runc")
WAITS = "echo begun; sleep 987 & wait"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with SshServer(tmp_path / "server") as one:
        yield one


def play(directory: Path, server: SshServer, tale, **host: object) -> None:  # type: ignore[no-untyped-def]
    """Plays a tale, after which no container may be there."""

    async def whole() -> None:
        world = ContainerWorld(directory, server, **host)
        try:
            await tale(world)
        finally:
            for backend in world.backends:
                for box in await backend.owned():
                    await backend._sandboxes.end(box.handle)  # type: ignore[attr-defined]
            await world.close()
            left = world.containers()
            for name in left:
                podman("rm", "--force", "--time", "0", name)
        assert left == []

    asyncio.run(whole())


async def no_containers(world: ContainerWorld) -> None:
    async def none() -> bool:
        return world.containers() == []

    await eventually(none, "no container is left")


def target_of(ref: RunRef) -> ExecTarget:
    return ExecTarget(ref.run, ref.sandbox, ref.handle)


# What a task finds


def test_a_command_runs_in_an_image_without_python_and_its_files_are_its_persons(
    tmp_path: Path, server: SshServer
) -> None:
    volume = [{"name": "v", "mountPath": "/given/v"}]
    text = (
        "cat /etc/made-for; echo $MADE_FOR $OWN; [ ! -e /etc/passwd ]; id -u >/given/v/by; exit 7"
    )

    async def tale(world: ContainerWorld) -> None:
        image = {"registry": shell_image(), "env": {"OWN": "mine"}}
        ref = await world.start(script(text, image=image, volumes=volume))
        seen = await world.ended(ref)
        assert (seen.ok, seen.exit_code, seen.infrastructure) == (False, 7, False)
        assert await world.log(ref) == b"tests of fleetctl\ntests mine\n"
        written = world.root / "volumes" / "v" / "by"
        assert written.read_text() == "0\n"  # root of the container is who logs in
        assert (written.stat().st_uid, written.stat().st_gid) == (os.geteuid(), os.getegid())
        assert not Path("/given").exists()  # nothing of the host changed
        await no_containers(world)

    play(tmp_path, server, tale)


def test_a_function_runs_in_the_python_of_its_image_and_fails_where_there_is_none(
    tmp_path: Path, server: SshServer
) -> None:
    where = "SUBMIT(made=open('/etc/made-for').read(), n=2)"

    async def tale(world: ContainerWorld) -> None:
        seen = await world.run(python(where, image={"registry": python_image()}))
        assert json.loads(seen.result or "") == {"made": "tests of fleetctl\n", "n": 2}
        seen = await world.run(python(where, image={"registry": shell_image()}), run="run-1")
        assert (seen.ok, seen.reason) == (False, "CommandNotFound")
        assert "`python3` was not found" in seen.message

    play(tmp_path, server, tale)


def test_no_value_of_a_task_is_in_a_command_line_or_in_records_of_podman(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: ContainerWorld) -> None:
        template = script("echo begun $S; sleep 987", env={"PLAIN": "seen-by-nobody"})
        order = world.order(template, secrets={"S": "hidden-from-all"})
        ref = await world.begin(order)
        await world.log_holds(ref, b"begun")
        [name] = world.containers()
        records = podman("container", "inspect", name)
        lines = [_command_line(about) for about in Path("/proc").glob("[0-9]*")]
        for value in ("hidden-from-all", "seen-by-nobody"):
            assert value not in records
            assert not [line for line in lines if value in line]
        await world.provider.stop(ref, grace_s=0)

    play(tmp_path, server, tale)


def _command_line(about: Path) -> str:
    try:
        return (about / "cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def test_tasks_of_a_sandbox_share_its_container(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: ContainerWorld) -> None:
        names: set[str] = set()
        for number in range(3):
            template = script("echo $JOB_COMPLETION_INDEX")
            changes = {"sandbox": "run-0", "reusable": True, "index": number}
            world.handles.setdefault("run-0", "")
            ref = await world.start(template, run=f"run-{number}", **changes)
            assert (await world.ended(ref)).ok
            assert await world.log(ref) == f"{number}\n".encode()
            names.update(world.containers())
        assert len(names) == 1

    play(tmp_path, server, tale)


def test_a_task_has_the_cores_that_it_asks_for(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: ContainerWorld) -> None:
        ref = await world.start(script("echo $(nproc)", resources={"cpu": 1}))
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"1\n"

    play(tmp_path, server, tale)


@pytest.mark.parametrize("how", ["at once", "together"])
def test_a_task_over_its_memory_ends_for_it(tmp_path: Path, server: SshServer, how: str) -> None:
    play(tmp_path, server, lambda world: end_for_memory(world, how))


# Ends


def test_a_stop_gives_grace_to_all_processes_of_a_container_and_leaves_none(
    tmp_path: Path, server: SshServer
) -> None:
    volume = [{"name": "v", "mountPath": "/v"}]
    one = "trap 'echo said >>/v/$1; exit 0' TERM; touch /v/up$1; while :; do sleep 0.1; done"
    text = f"(set -- a; {one}) & (set -- b; {one}) & trap 'wait; exit 0' TERM; wait; wait"

    async def tale(world: ContainerWorld) -> None:
        ref = await world.start(script(text, volumes=volume))
        place = world.root / "volumes" / "v"

        async def up() -> bool:
            return (place / "upa").exists() and (place / "upb").exists()

        await eventually(up, "both have begun")
        await world.provider.stop(ref, grace_s=60)
        await world.until(ref, lambda seen: not isinstance(seen, Alive), "stopped")
        assert (place / "a").read_text() == (place / "b").read_text() == "said\n"
        await no_containers(world)

    play(tmp_path, server, tale)


def test_a_container_outlives_its_line_and_its_controller_and_is_adopted(
    tmp_path: Path, server: SshServer
) -> None:
    volume = [{"name": "v", "mountPath": "/v"}]
    text = "echo begun; while [ ! -e /v/go ]; do sleep 0.1; done; echo done; exit 3"

    async def tale(world: ContainerWorld) -> None:
        order = world.order(script(text, volumes=volume))
        ref = await world.begin(order)
        await world.log_holds(ref, b"begun")
        first = world.supervisor(ref)
        server.cut()
        await world.provider.close()
        server.stop()
        server.start()
        world.provider = world.again()
        assert await world.begin(order) == ref
        assert (await world.alive(ref)) and world.supervisor(ref) == first
        (world.root / "volumes" / "v" / "go").touch()
        assert (await world.ended(ref)).exit_code == 3
        assert await world.log(ref) == b"begun\ndone\n"
        await no_containers(world)

    play(tmp_path, server, tale)


def test_a_container_ends_with_its_lease(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: ContainerWorld) -> None:
        world.settings["lease"] = 3
        ref = await world.start(script(WAITS))
        await world.log_holds(ref, b"begun")
        await world.provider.close()
        await no_containers(world)
        world.provider = world.again()
        seen = await world.lost(ref)
        assert "no controller was there for the time of its lease" in seen.message

    play(tmp_path, server, tale)


def test_nothing_is_left_when_all_that_looks_after_a_container_was_killed(
    tmp_path: Path, server: SshServer
) -> None:
    """Its box is gone as well, so that its label alone shows whose it is."""

    async def tale(world: ContainerWorld) -> None:
        ref = await world.start(script(WAITS))
        await world.log_holds(ref, b"begun")
        pid = world.supervisor(ref)
        inside = [it for it in _processes() if _parent(it) == pid]
        await world.provider.close()
        for about in Path("/proc").glob("[0-9]*"):
            line = _command_line(about)
            ours = str(world.root) in line and ("agent" in line or "conmon" in line)
            if ours and int(about.name) not in (pid, os.getpid()):
                os.kill(int(about.name), signal.SIGKILL)
        conmon = [it for it in _processes() if it == _parent(pid) and it > 1]
        for it in conmon:
            os.kill(it, signal.SIGKILL)
        (world.root / "boxes").rename(world.root / "lost")
        account = Account("ssh", "ssh", settings=world.settings)
        orphans = SshOrphans(world.directory / "home", account)
        assert await orphans.find_all() == []
        await no_containers(world)
        await orphans.close()
        assert not any(map(lives, [pid, *inside]))
        world.provider = world.again()

    play(tmp_path, server, tale)


def _processes() -> list[int]:
    return [int(it.name) for it in Path("/proc").glob("[0-9]*")]


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def test_a_container_that_ended_before_its_order_costs_no_attempt(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: ContainerWorld) -> None:
        order = world.order(script("echo hi"))
        handle = await world.provider.start(order)
        [name] = world.containers()
        podman("rm", "--force", "--time", "0", name)
        await world.provider.start(replace(order, handle=handle))
        ref = RunRef(order.run, order.sandbox, handle, 0, order.uid)
        seen = await world.lost(ref)
        assert seen.reason == "NeverBegan"
        await no_containers(world)
        assert (await world.run(script("echo hi"), run="run-1")).ok

    play(tmp_path, server, tale)


# Beside a task


def test_commands_beside_a_task_are_in_its_container(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: ContainerWorld) -> None:
        ref = await world.start(script("echo 7 >note; echo begun; sleep 600", env={"A": "b c"}))
        await world.log_holds(ref, b"begun")
        account = Account("ssh", "ssh", settings=world.settings)
        entering = SshEntering(world.directory / "home", account)
        out, err = [], []

        async def typed():  # type: ignore[no-untyped-def]
            yield b"typed\n"

        words = ("sh", "-c", "cat note - /etc/made-for; echo $A; echo wrong >&2; exit 5")
        streams = ExecStreams(typed(), out.append, err.append)
        assert await entering.execute(target_of(ref), words, streams) == 5
        assert b"".join(out) == b"7\ntyped\ntests of fleetctl\nb c\n"
        assert b"".join(err) == b"wrong\n"
        out.clear()
        streams = ExecStreams(None, out.append, err.append, tty=(33, 77))
        assert await entering.execute(target_of(ref), ("stty", "size"), streams) == 0
        assert b"".join(out).strip() == b"33 77"
        await entering.close()

    play(tmp_path, server, tale)


def test_a_task_in_a_container_asks_models_through_its_line(
    tmp_path: Path, server: SshServer
) -> None:
    asks = f"{ASKS}\nSUBMIT(said=json.load(ask('first'))['choices'][0]['message']['content'])"
    image = {"registry": python_image()}

    async def tale() -> None:
        model = Model(key=KEY)
        async with played(lambda path: ContainerWorld(path, server), tmp_path, model) as (
            world,
            gateway,
        ):
            asked = access(gateway, "r1")  # of those that the gateway was granted
            ref = await world.start(python(asks, image=image), run="r1", endpoints=asked)
            seen = await world.ended(ref)
            assert seen.ok, await world.log(ref)
            assert "said" in json.loads(seen.result or "")

    (tmp_path / "world").mkdir()
    asyncio.run(tale())


INTERPRETER = """
import fleetctl, sys
with fleetctl.Interpreter(provider="own", image=sys.argv[1]) as interpreter:
    interpreter.execute("made = open('/etc/made-for').read()")
    print(interpreter.execute("print('x' + made)"))
"""


def test_an_interpreter_is_in_the_container_of_the_image_that_it_names(
    tmp_path: Path, server: SshServer
) -> None:
    (tmp_path / "life").mkdir()
    life = ContainerLife(tmp_path / "life", Random(1), server)
    life.declare()
    words = [sys.executable, "-c", INTERPRETER, python_image()]
    done = subprocess.run(words, env=life.env, capture_output=True, text=True, timeout=600)
    assert done.stdout.startswith("xtests of fleetctl\n"), done.stderr
    assert life.leftovers() == []
    assert life.end() == []


@pytest.mark.parametrize("mounted", [False, True])
def test_a_source_needs_no_programs_of_an_image(
    tmp_path: Path, server: SshServer, mounted: bool
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "note").write_text("from the source\n")
    source = {"path": str(code), **({"mountPath": "/src"} if mounted else {})}

    async def tale(world: ContainerWorld) -> None:
        template = script("cat note; echo $PWD", image={"registry": shell_image()}, source=source)
        ref = await world.start(template)
        assert (await world.ended(ref)).ok
        first, second = (await world.log(ref)).decode().splitlines()
        assert first == "from the source"
        assert (second == "/src") == mounted

    play(tmp_path, server, tale)


# Hosts and registries


def test_doctor_tells_the_engine_of_a_host(tmp_path: Path, server: SshServer) -> None:
    settings = {"hosts": [{**server.host}], "config": str(server.config)}
    account = Account("lab", "ssh", settings=settings)
    [seen] = asyncio.run(check_ssh(tmp_path / "home", account))
    assert seen.says.endswith("containers by podman")


def test_a_host_without_an_engine_is_refused_and_known_before_the_next_plan(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: ContainerWorld) -> None:
        world.settings["container"] = {"command": ["no-such-engine"]}
        order = world.order(script("true"))
        account = Account("ssh", "ssh", settings=world.settings)
        assert list(world.provider._obstacles(order.template, account)) == []  # type: ignore[attr-defined]
        with pytest.raises(Refused) as caught:
            await world.begin(order)
        assert "it has no podman or docker" in str(caught.value)
        assert "sudo apt-get install -y podman" in caught.value.hint
        [found] = world.provider._obstacles(order.template, account)  # type: ignore[attr-defined]
        assert "no host of provider `ssh` has podman or docker" in found.what
        del world.settings["container"]

    play(tmp_path, server, tale)


def test_an_image_is_pulled_once_and_words_of_its_registry_reach_its_person(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: ContainerWorld) -> None:
        with ImageRegistry(tmp_path / "registry", shell_image()) as registry:
            command = ["env", f"CONTAINERS_REGISTRIES_CONF={registry.config}", "podman"]
            settings = dict(world.settings["container"])  # type: ignore[call-overload]
            world.settings["container"] = {**settings, "command": [*command, *_OPTIONS]}
            try:
                image = {"registry": registry.image}
                template = script("cat /etc/made-for", image=image)
                refs = await asyncio.gather(
                    *(world.start(template, run=f"run-{number}") for number in range(3))
                )
                for ref in refs:
                    assert (await world.ended(ref)).ok
                    assert await world.log(ref) == b"tests of fleetctl\n"
                assert registry.configs_sent == 1
                for name, said in (("none", "check `image.registry`"), ("closed", "podman login")):
                    image = {"registry": f"{registry.address}/{name}:1"}
                    with pytest.raises(Refused) as caught:
                        await world.begin(world.order(script("true", image=image), run=name))
                    assert f"cannot pull image `{registry.address}/{name}:1`: " in str(caught.value)
                    assert said in caught.value.hint
                assert [it for it in world.boxes() if not it.startswith(".")] == []
            finally:
                podman("rmi", "--force", "--ignore", registry.image)

    play(tmp_path, server, tale)


_OPTIONS = ("--cgroup-manager=cgroupfs",)


def test_an_option_that_podman_refuses_is_quoted(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: ContainerWorld) -> None:
        settings = dict(world.settings["container"])  # type: ignore[call-overload]
        world.settings["container"] = {**settings, "args": ["--no-such-option"]}
        with pytest.raises(Refused) as caught:
            await world.begin(world.order(script("true")))
        assert "unknown flag: --no-such-option" in str(caught.value)
        assert "`container` of the Provider object" in caught.value.hint

    play(tmp_path, server, tale)
