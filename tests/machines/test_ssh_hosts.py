"""Provider `ssh` on a real OpenSSH server: what fails on the way to a host and in it, what outlives
a line, a session and a controller, and whose slots and GPUs are whose.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

import pytest

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.controllers.model import Alive
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.sandbox_access import ExecStreams, ExecTarget
from fleetctl.providers.contract.volume_files import FileCopy
from fleetctl.providers.machines.agent_bundle import build_bundle
from fleetctl.providers.ssh.ssh_access import SshEntering, SshFiles, SshOrphans
from fleetctl.providers.ssh.ssh_hosts import check_ssh
from tests.contracts.provider_worlds import eventually, python, script
from tests.contracts.ssh_worlds import SshWorld
from tests.machines.small_disk import fill_disk, mount_small_disk
from tests.machines.ssh_server import SshServer
from tests.machines.ssh_stories import SMI, WAITS, clients_of, is_of, lives, play

pytestmark = pytest.mark.needs("sshd")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with SshServer(tmp_path / "server", programs={"nvidia-smi": SMI}) as one:
        yield one


def refusal(tmp_path: Path, server: SshServer, **host: object) -> FleetctlError:
    """What a start says."""
    told: list[FleetctlError] = []

    async def tale(world: SshWorld) -> None:
        with pytest.raises(FleetctlError) as caught:
            await world.begin(world.order())
        told.append(caught.value)

    play(tmp_path, server, tale, **host)
    return told[0]


# The way to a host


def test_an_unknown_host_key_is_refused_with_the_line_to_add(
    tmp_path: Path, server: SshServer
) -> None:
    known = server.known.read_text().strip()
    server.known.write_text("")
    error = refusal(tmp_path, server)
    assert isinstance(error, Unavailable)
    assert error.account
    assert "is not known here; it shows SHA256:" in str(error)
    assert f"echo '{known}' >> {server.known}" in error.hint
    assert server.known.read_text() == ""  # nothing is trusted by asking


def test_a_changed_host_key_is_refused_and_the_fix_is_named(
    tmp_path: Path, server: SshServer
) -> None:
    server.change_key()
    error = refusal(tmp_path, server)
    assert isinstance(error, Unavailable)
    assert error.reason == "HostKeyChanged"
    assert f"line 1 of {server.known}" in str(error)
    assert f"ssh-keygen -R '[127.0.0.1]:{server.port}'" in error.hint


def test_a_key_that_the_host_does_not_accept_is_told(tmp_path: Path, server: SshServer) -> None:
    (server.directory / "authorized_keys").write_text("")
    error = refusal(tmp_path, server)
    assert isinstance(error, Unavailable)
    assert (error.reason, error.account) == ("KeyRefused", True)
    assert error.hint.startswith("try it by hand: ssh ")


def test_a_host_that_is_not_there_is_told_and_is_no_word_about_the_account(
    tmp_path: Path, server: SshServer
) -> None:
    server.stop()

    async def tale() -> None:
        world = SshWorld(tmp_path, server)
        with pytest.raises(Unavailable) as caught:
            await world.begin(world.order())
        assert (caught.value.reason, caught.value.account) == ("Unreachable", False)
        assert "Connection refused" in str(caught.value)
        await world.close()

    asyncio.run(tale())


@pytest.mark.parametrize("program", ["/opt/none/bin/python3", "~/none/python3"])
def test_a_python_that_is_named_and_missing_is_told_with_what_installs_one(
    tmp_path: Path, program: str
) -> None:
    with SshServer(tmp_path / "server", python3=False) as server:
        error = refusal(tmp_path, server, python=program)
    assert isinstance(error, Unavailable)
    assert (error.reason, error.account) == ("NoPython", True)
    told = f"host `127.0.0.1:{server.port}` has no `{program}`, and work needs Python 3.9 or later"
    assert str(error).startswith(told)
    reach = f"ssh -F {server.config} -p {server.port} "
    assert error.hint.startswith(reach)
    assert f"127.0.0.1 sudo apt-get install -y python3; or as the user: {reach}" in error.hint


def test_a_python_below_the_home_of_its_user_is_found(tmp_path: Path) -> None:
    with SshServer(tmp_path / "server", python3=False) as server:
        place = server.home / "my own"
        place.mkdir()
        (place / "python3").symlink_to(os.path.realpath(sys.executable))

        async def tale(world: SshWorld) -> None:
            assert (await world.run(python("print('hi')"))).ok

        play(tmp_path, server, tale, python="~/my own/python3")


@pytest.mark.parametrize("owner", ["everybody", *(["another"] if os.geteuid() == 0 else [])])
def test_no_program_is_taken_from_a_directory_of_other_users(
    tmp_path: Path, server: SshServer, owner: str
) -> None:
    root = Path(os.path.realpath(tmp_path)) / "machine"
    trap = root / "agent" / build_bundle()[0] / "agent.py"
    trap.parent.mkdir(parents=True)
    trap.write_text(f"open({str(tmp_path / 'taken')!r}, 'w')")
    if owner == "everybody":
        root.chmod(0o1777)
    else:
        os.chown(root, 65534, 65534)
    error = refusal(tmp_path, server)
    assert isinstance(error, Unavailable)
    assert error.reason == "MachineFailed"
    words = {"everybody": "every user of the machine may", "another": "belongs to user 65534"}
    assert words[owner] in str(error)
    assert not (tmp_path / "taken").exists()


def test_doctor_tells_what_a_host_has(tmp_path: Path, server: SshServer) -> None:
    settings = {"hosts": [{**server.host, "slots": 3}], "config": str(server.config)}
    account = Account("lab", "ssh", settings=settings)
    [seen] = asyncio.run(check_ssh(tmp_path / "home", account))
    assert seen.ok
    assert "NVIDIA A100, NVIDIA A100; 0 of 3 slots taken; Python 3." in seen.says
    server.known.write_text("")
    server.cut()
    [seen] = asyncio.run(check_ssh(tmp_path / "home", account))
    assert (seen.ok, seen.away) == (False, False)
    assert seen.fix.endswith(str(server.known))


# What outlives what


def test_work_goes_on_when_its_host_is_cut_off_and_comes_back(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: SshWorld) -> None:
        go = tmp_path / "go"
        text = f"echo begun; while [ ! -e {go} ]; do sleep 0.1; done; echo done"
        ref = await world.start(script(text))
        await world.log_holds(ref, b"begun")
        server.stop()
        go.touch()

        async def held() -> bool:
            seen = await world.see(ref)
            assert seen is None or isinstance(seen, Alive), seen
            return isinstance(seen, Alive) and "cannot be reached" in seen.held.text

        await eventually(held, "it is told that the host is away")
        server.start()
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"begun\ndone\n"

    play(tmp_path, server, tale)


def test_sessions_that_are_killed_fifty_times_lose_and_repeat_nothing(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: SshWorld) -> None:
        count = 50
        text = "echo begun $JOB_COMPLETION_INDEX; sleep 0.$((JOB_COMPLETION_INDEX % 3)); echo done"
        killed = 0
        refs = []
        for index in range(count):
            order = world.order(script(text), run=f"run-{index}", index=index)
            handle = ""
            while not handle:
                try:
                    handle = await world.provider.start(replace(order, handle=handle))
                except Unavailable:
                    continue
            killed += server.cut()
            begun = False
            while not begun:
                try:
                    begun = bool(await world.provider.start(replace(order, handle=handle)))
                except Unavailable:
                    continue
            refs.append(replace(_ref(order), handle=handle))
            if index % 2:
                killed += server.cut()
        for index, ref in enumerate(refs):
            seen = await world.ended(ref)
            assert seen.ok, seen
            assert await world.log(ref) == f"begun {index}\ndone\n".encode()
        assert killed >= count
        assert not [it for it in world.boxes() if not it.startswith(".")]

    play(tmp_path, server, tale)


def _ref(order):  # type: ignore[no-untyped-def]
    from fleetctl.providers.contract.base import RunRef

    return RunRef(order.run, order.sandbox, "", 0, order.uid)


def test_work_without_a_controller_ends_with_its_lease(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: SshWorld) -> None:
        world.settings["lease"] = 3
        ref = await world.start(python(WAITS))
        await world.log_holds(ref, b"begun")
        pid = world.supervisor(ref)
        await world.provider.close()

        async def gone() -> bool:
            return not lives(pid)

        await eventually(gone, "its supervisor is gone")
        world.provider = world.again()
        seen = await world.lost(ref)
        assert "no controller was there for the time of its lease" in seen.message

    play(tmp_path, server, tale)


def test_work_is_not_ended_while_its_controller_works(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: SshWorld) -> None:
        world.settings["lease"] = 10  # shorter than the time between two beats of a longer one
        ref = await world.start(script("sleep 26"))
        assert (await world.ended(ref)).ok

    play(tmp_path, server, tale)


def test_a_line_that_lives_on_without_its_controller_renews_no_lease(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: SshWorld) -> None:
        world.settings["lease"] = 12
        ref = await world.start(python(WAITS))
        await world.log_holds(ref, b"begun")
        pid = world.supervisor(ref)
        frozen = clients_of(server)
        assert frozen
        for client in frozen:  # as a controller that hangs, or whose machine has lost its power
            os.kill(client, signal.SIGSTOP)
        try:

            async def gone() -> bool:
                return not lives(pid)

            await eventually(gone, "its supervisor is gone")
            assert server.sessions()[1:]  # its line was there all the time
        finally:
            for client in frozen:
                os.kill(client, signal.SIGCONT)
        seen = await world.lost(ref)
        assert "no controller was there for the time of its lease" in seen.message

    play(tmp_path, server, tale)


def test_work_whose_directory_somebody_removed_ends(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: SshWorld) -> None:
        ref = await world.start(script("trap '' TERM; echo begun; sleep 987 & wait; sleep 986"))
        await world.log_holds(ref, b"begun")
        pid = world.supervisor(ref)
        below = [it for it in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_of(it, pid)]
        assert len(below) >= 3  # the supervisor, the shell and what it waits for
        await world.provider.close()
        world.root.rename(world.root.with_name("moved"))
        shutil.rmtree(world.root.with_name("moved"))

        async def gone() -> bool:
            return not any(map(lives, below))

        await eventually(gone, "nothing of it is left")

    play(tmp_path, server, tale)


def test_no_process_of_a_task_outlives_its_sandbox(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: SshWorld) -> None:
        note = tmp_path / "pid"
        text = f"setsid sleep 987 & echo $! >{note}; echo begun; sleep 600"
        ref = await world.start(script(text))
        await world.log_holds(ref, b"begun")
        await world.provider.stop(ref, grace_s=0)
        await world.until(ref, lambda seen: not isinstance(seen, Alive), "stopped")
        assert not lives(int(note.read_text()))

    play(tmp_path, server, tale)


# Slots and GPUs


def test_two_controllers_share_the_slots_of_a_host(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: SshWorld) -> None:
        first = await world.start(python(WAITS))
        other = world.again("store-b")
        waits = asyncio.ensure_future(other.start(world.order(run="run-b")))
        done, _ = await asyncio.wait({waits}, timeout=3)
        assert not done
        assert list(await other.owned()) == []
        await world.provider.stop(first, grace_s=0)
        assert await waits
        assert [it.sandbox for it in await other.owned()] == ["run-b"]

    play(tmp_path, server, tale, slots=1)


def test_each_task_sees_its_own_gpus_alone(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: SshWorld) -> None:
        text = "echo gpus=$CUDA_VISIBLE_DEVICES; sleep 600"
        refs = []
        for number, gpu in enumerate(("A100:1", "any:1")):
            template = script(text, resources={"gpu": gpu})
            refs.append(await world.start(template, run=f"run-{number}"))
        refs.append(await world.start(script(text), run="run-2"))
        for ref, seen in zip(refs, (b"gpus=0\n", b"gpus=1\n", b"gpus=\n"), strict=True):
            await world.log_holds(ref, seen)
        with pytest.raises(Refused) as caught:
            await world.begin(world.order(script(text, resources={"gpu": "A100:3"}), run="run-3"))
        assert "0 of 2 GPUs `A100` are free" in str(caught.value)

    play(tmp_path, server, tale)


def test_a_machine_is_sampled_for_its_run(tmp_path: Path) -> None:
    """By the guest, over the line that carries the run's metrics."""
    text = "while :; do :; done"
    query = "#!/bin/sh\ncase $1 in -L) echo 'GPU 0: NVIDIA A100 (UUID: x)';; "
    query += "*) echo '0, 93, 40960, 81920';; esac\n"
    found: dict[str, float] = {}

    async def tale(world: SshWorld) -> None:
        ref = await world.start(script(text, resources={"gpu": "A100:1"}))

        async def sampled() -> bool:
            [seen] = await world.provider.observe([ref])
            assert isinstance(seen, Alive)
            found.update({it.name: it.value for it in seen.samples})
            return len(found) == 4

        await eventually(sampled, "GPU, CPU and memory are sampled")

    with SshServer(tmp_path / "server", programs={"nvidia-smi": query}) as server:
        play(tmp_path, server, tale)
    assert found["system/gpu.0.percent"] == 93.0 and found["system/gpu.0.memory_mib"] == 40960.0
    assert found["system/cpu.percent"] > 0 and found["system/memory_mib"] > 0


# Beside a task


def test_a_command_beside_a_task_has_its_directory_and_streams(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: SshWorld) -> None:
        text = "echo 7 >note; echo begun; sleep 600"
        name = f"run-{token_hex(4)}"  # others may run on this machine
        ref = await world.start(script(text, env={"A": "b c"}), run=name)
        await world.log_holds(ref, b"begun")
        account = Account("ssh", "ssh", settings=world.settings)
        entering = SshEntering(world.directory / "home", account)
        target = ExecTarget(ref.run, ref.sandbox, ref.handle)
        out, err = [], []

        async def typed():  # type: ignore[no-untyped-def]
            yield b"typed\n"

        words = ("sh", "-c", "cat note - ; echo $A; echo wrong >&2; exit 5")
        streams = ExecStreams(typed(), out.append, err.append)
        assert await entering.execute(target, words, streams) == 5
        assert (b"".join(out), b"".join(err)) == (b"7\ntyped\nb c\n", b"wrong\n")
        out.clear()
        streams = ExecStreams(None, out.append, err.append, tty=(33, 77))
        assert await entering.execute(target, ("stty", "size"), streams) == 0
        assert b"".join(out).strip() == b"33 77"
        await entering.close()

    play(tmp_path, server, tale)


def test_files_of_volumes_come_and_go_and_no_link_leads_out(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: SshWorld) -> None:
        files = SshFiles(world.directory / "home", Account("ssh", "ssh", settings=world.settings))
        (tmp_path / "a").write_bytes(b"x" * 300_000)
        await files.put("v", [FileCopy(tmp_path / "a", "d/a", 300_000)], tell=lambda _: None)
        assert [it[:3] for it in await files.entries("v", "", recursive=True)] == [
            ("d", True, 0),
            ("d/a", False, 300_000),
        ]
        seen = await world.run(python("SUBMIT(n=len(load_from_volume('d/a')))", volumes=[
            {"name": "v", "mountPath": str(tmp_path / "mnt" / "v")}
        ]))  # fmt: skip
        assert seen.result == '{"n":300000}'
        await files.get("v", [FileCopy(tmp_path / "b", "d/a", 300_000)], tell=lambda _: None)
        assert (tmp_path / "b").read_bytes() == b"x" * 300_000
        os.symlink("/etc", world.root / "volumes" / "v" / "out")
        with pytest.raises(Refused):
            await files.entries("v", "out/passwd")
        await files.remove("v", "d", recursive=True)
        assert [it.path for it in await files.entries("v", "")] == ["out"]
        assert await files.size("v") is not None

    play(tmp_path, server, tale)


def test_orphans_of_any_store_are_found_claimed_and_removed(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: SshWorld) -> None:
        ref = await world.start(python(WAITS))
        await world.alive(ref)
        account = Account("ssh", "ssh", settings=world.settings)
        orphans = SshOrphans(world.directory / "home", account)
        [orphan] = await orphans.find_all()
        assert (orphan.store, orphan.job, orphan.run) == ("store-a", "batchjob/suite", "run-0")
        await orphans.claim(orphan, "store-b", "uid-2")
        assert list(await world.provider.owned()) == []
        [orphan] = await orphans.find_all()
        assert (orphan.store, orphan.uid) == ("store-b", "uid-2")
        await orphans.remove(orphan)
        assert await orphans.find_all() == []
        await orphans.close()

    play(tmp_path, server, tale)


# A machine whose clock is wrong

# The program of the machine that is found first: Python, whose clock is off by some seconds.
WRONG_CLOCK = """#!/bin/sh
i=$1 s=$2 c=$3 code=$4
shift 4
exec {python} "$i" "$s" "$c" "import time
_now=time.time
time.time=lambda:_now()+({off_s})
$code" "$@"
"""


@pytest.mark.parametrize("off_s", [-3600, 3600])
def test_a_host_whose_clock_is_off_by_an_hour_loses_and_repeats_nothing(
    tmp_path: Path, off_s: int
) -> None:
    async def tale(world: SshWorld) -> None:
        order = world.order(script("echo begun; while [ ! -e go ]; do sleep 0.1; done; echo done"))
        ref = await world.begin(order)
        await world.log_holds(ref, b"begun")
        world.provider = world.again()
        assert await world.begin(order) == ref
        box = ref.handle.rpartition("/")[2].partition("@")[0]
        (world.root / "boxes" / box / "state" / "work" / "go").touch()
        seen = await world.ended(ref)
        assert seen.ok, seen
        assert seen.started_at_s is not None
        assert abs(seen.started_at_s - off_s - time.time()) < abs(off_s) / 2  # the clock was off
        assert await world.log(ref) == b"begun\ndone\n"
        assert list(await world.provider.owned()) == []

    text = WRONG_CLOCK.format(python=shutil.which("python3"), off_s=off_s)
    with SshServer(tmp_path / "server", programs={"python3": text}) as server:
        play(tmp_path, server, tale)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The directory of the host as a disk of its own, with some room beyond what logs leave."""
    with mount_small_disk(tmp_path / "machine") as place:
        yield place


def test_a_full_disk_of_a_host_is_named_and_costs_no_run_and_no_result(
    tmp_path: Path, server: SshServer, small_disk: Path
) -> None:
    go, over = tmp_path / "go", tmp_path / "over"
    text = f"""
import os, time
print("begun", flush=True)
while not os.path.exists({str(go)!r}):
    time.sleep(0.05)
open({str(over)!r}, "w").close()
SUBMIT(x="y" * 200_000)
"""

    async def tale(world: SshWorld) -> None:
        ref = await world.start(python(text), run="early")
        await world.log_holds(ref, b"begun")
        fill_disk(small_disk / "filler")
        late = world.order(script("echo late"), run="late")
        with pytest.raises(Unavailable) as caught:
            await world.provider.start(late)
        assert f"the disk that holds `{small_disk}` is full" in str(caught.value)

        go.touch()

        async def is_over() -> bool:
            return over.exists()

        await eventually(is_over, "the work came to its end")
        assert isinstance(await world.see(ref), Alive)  # its result has no room yet
        (small_disk / "filler").unlink()
        seen = await world.ended(ref)
        assert seen.ok, seen
        assert seen.result == f'{{"x":"{"y" * 200_000}"}}'
        assert await world.log(ref) == b"begun\n"
        assert (await world.ended(await world.begin(late))).ok

    play(tmp_path, server, tale)
