"""Provider `ssh` on a real OpenSSH server whose host has no Python: what outlives a session and a
controller, whose slots and GPUs are whose, and what such a host cannot do.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from secrets import token_hex

import pytest

from fleetctl.common.errors import NotFound, Refused, Unavailable
from fleetctl.controllers.model import Alive
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.contract.sandbox_access import ExecStreams, ExecTarget
from fleetctl.providers.contract.volume_files import FileCopy
from fleetctl.providers.ssh.ssh_access import SshEntering, SshFiles, SshOrphans
from fleetctl.providers.ssh.ssh_hosts import check_ssh
from fleetctl.providers.ssh.ssh_provider import SshProvider
from tests.contracts.provider_worlds import eventually, python, script
from tests.contracts.ssh_worlds import ShellWorld, SshWorld
from tests.machines.machine_lives import ShellLife
from tests.machines.ssh_server import SshServer
from tests.machines.ssh_stories import SMI, is_of, lives, play

pytestmark = pytest.mark.needs("sshd")
WAITS = "trap '' TERM; echo begun; sleep 987 & wait; sleep 986"
JOB = """apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {{name: tried}}
spec:
  placement: {{provider: own}}
  template:
    {work}
"""
OLD = "#!/bin/sh\nprintf 'fleetctl-agent old 3.7.3\\n'\nexit 1\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with SshServer(tmp_path / "server", programs={"nvidia-smi": SMI}, python3=False) as one:
        yield one


def account_of(world: SshWorld) -> Account:
    return Account("ssh", "ssh", settings=world.settings)


def processes_below(pid: int) -> list[int]:
    found = [it for it in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_of(it, pid)]
    assert len(found) >= 3  # the supervisor, the shell and what it waits for
    return found


# The guest of a host


def test_doctor_shows_the_guest_and_the_first_probe_notes_it(
    tmp_path: Path, server: SshServer
) -> None:
    settings = {"hosts": [{**server.host, "slots": 3}], "config": str(server.config)}
    account = Account("lab", "ssh", settings=settings)
    [seen] = asyncio.run(check_ssh(tmp_path / "home", account))
    assert seen.ok
    assert "NVIDIA A100, NVIDIA A100; 0 of 3 slots taken; guest: shell" in seen.says
    noted = json.loads((account.directory(tmp_path / "home") / "guests.json").read_text())
    assert noted == {f"127.0.0.1:{server.port}": "shell"}


def test_a_host_whose_python_is_too_old_gets_the_guest_in_shell(tmp_path: Path) -> None:
    async def tale(world: ShellWorld) -> None:
        assert (await world.run(script("echo hi"))).ok

    with SshServer(tmp_path / "server", programs={"python3": OLD}) as server:
        play(tmp_path, server, tale, ShellWorld)


def test_a_host_that_lacks_a_program_of_the_guest_in_shell_names_it(
    tmp_path: Path, server: SshServer
) -> None:
    (server.directory / "plain" / "mkfifo").unlink()

    async def tale(world: ShellWorld) -> None:
        with pytest.raises(Unavailable) as caught:
            await world.begin(world.order(script("true")))
        assert caught.value.reason == "NoPython"
        assert "no `mkfifo`" in str(caught.value)
        assert "sudo apt-get install -y python3" in caught.value.hint

    play(tmp_path, server, tale, ShellWorld)


@pytest.mark.parametrize("owner", ["everybody", *(["another"] if os.geteuid() == 0 else [])])
def test_no_program_is_taken_from_a_directory_of_other_users(
    tmp_path: Path, server: SshServer, owner: str
) -> None:
    async def tale(world: ShellWorld) -> None:
        root = world.root.parent
        root.mkdir()
        if owner == "everybody":
            root.chmod(0o1777)
        else:
            os.chown(root, 65534, 65534)
        with pytest.raises(Unavailable) as caught:
            await world.begin(world.order(script("true")))
        assert caught.value.reason == "MachineFailed"
        words = {"everybody": "every user of the machine may", "another": "belongs to user 65534"}
        assert words[owner] in str(caught.value)

    play(tmp_path, server, tale, ShellWorld)


def test_both_guests_never_count_the_slots_of_one_host_at_the_same_time(
    tmp_path: Path, server: SshServer
) -> None:
    """One controller names a Python that another one does not know of."""

    async def tale(world: ShellWorld) -> None:
        ref = await world.start(script(WAITS))
        await world.log_holds(ref, b"begun")
        named = {**world.settings["hosts"][0], "python": os.path.realpath(sys.executable)}  # type: ignore[index]
        settings = {**world.settings, "hosts": [named]}
        other = SshProvider(
            tmp_path / "other",
            store_id="store-b",
            notify=lambda _: None,
            account=lambda: Account("ssh", "ssh", settings=settings),
        )
        try:
            beside = replace(world.order(script("echo two"), run="run-b"), owner="store-b")
            handle = await other.start(beside)
            assert "/store-b-run-b@" in handle
            assert len(world.boxes()) == 2  # in shell as well, as long as there is such work
            await world.provider.stop(ref, grace_s=0)
            await other.end_run("uid-1", "run-b", within_s=60)
        finally:
            await other.close()

    play(tmp_path, server, tale, ShellWorld)


# What outlives what


def test_sessions_that_are_killed_lose_and_repeat_nothing(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: ShellWorld) -> None:
        count = 16
        text = "echo begun $JOB_COMPLETION_INDEX; sleep 0.$((JOB_COMPLETION_INDEX % 3)); echo done"
        killed = 0
        refs = []
        for index in range(count):
            order = world.order(script(text), run=f"run-{index}", index=index)
            handle = ""
            while not handle:
                try:
                    handle = await world.provider.start(order)
                except Unavailable:
                    continue
            killed += server.cut()
            begun = False
            while not begun:
                try:
                    begun = bool(await world.provider.start(replace(order, handle=handle)))
                except Unavailable:
                    continue
            refs.append(RunRef(order.run, order.sandbox, handle, 0, order.uid))
            if index % 2:
                killed += server.cut()
        for index, ref in enumerate(refs):
            seen = await world.ended(ref)
            assert seen.ok, seen
            assert await world.log(ref) == f"begun {index}\ndone\n".encode()
        assert killed >= count

        async def gone() -> bool:
            return not world.boxes()

        await eventually(gone, "no box is left")

    play(tmp_path, server, tale, ShellWorld)


def test_work_goes_on_when_its_host_is_cut_off_and_comes_back(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: ShellWorld) -> None:
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

    play(tmp_path, server, tale, ShellWorld)


def test_work_without_a_controller_ends_with_its_lease(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: ShellWorld) -> None:
        world.settings["lease"] = 3
        ref = await world.start(script(WAITS))
        await world.log_holds(ref, b"begun")
        below = processes_below(world.supervisor(ref))
        await world.provider.close()

        async def gone() -> bool:
            return not any(map(lives, below))

        await eventually(gone, "nothing of it is left")
        world.provider = world.again()
        seen = await world.lost(ref)
        assert "no controller was there for the time of its lease" in seen.message

    play(tmp_path, server, tale, ShellWorld)


def test_work_is_not_ended_while_its_controller_works(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: ShellWorld) -> None:
        world.settings["lease"] = 10  # shorter than the time between two beats of a longer one
        ref = await world.start(script("sleep 26"))
        assert (await world.ended(ref)).ok

    play(tmp_path, server, tale, ShellWorld)


def test_work_whose_directory_somebody_removed_ends(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: ShellWorld) -> None:
        ref = await world.start(script(WAITS))
        await world.log_holds(ref, b"begun")
        below = processes_below(world.supervisor(ref))
        await world.provider.close()
        moved = world.root.parent.with_name("moved")
        world.root.parent.rename(moved)
        shutil.rmtree(moved)

        async def gone() -> bool:
            return not any(map(lives, below))

        await eventually(gone, "nothing of it is left")

    play(tmp_path, server, tale, ShellWorld)


def test_no_process_of_a_task_outlives_its_sandbox(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: ShellWorld) -> None:
        note = tmp_path / "pid"
        text = f"env -i setsid sleep 987 & echo $! >{note}; echo begun; sleep 600"
        ref = await world.start(script(text))
        await world.log_holds(ref, b"begun")
        os.kill(world.supervisor(ref), signal.SIGKILL)
        await world.lost(ref)
        await world.provider.end_run("uid-1", ref.run, within_s=60)
        assert not lives(int(note.read_text()))

    play(tmp_path, server, tale, ShellWorld)


# Slots and GPUs


def test_two_controllers_share_the_slots_of_a_host(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: ShellWorld) -> None:
        first = await world.start(script(WAITS))
        other = world.again("store-b")
        waits = asyncio.ensure_future(other.start(world.order(script("true"), run="run-b")))
        done, _ = await asyncio.wait({waits}, timeout=3)
        assert not done
        assert list(await other.owned()) == []
        await world.provider.stop(first, grace_s=0)
        assert await waits
        assert [it.sandbox for it in await other.owned()] == ["run-b"]

    play(tmp_path, server, tale, ShellWorld, slots=1)


def test_claims_that_race_take_no_more_slots_than_there_are(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: ShellWorld) -> None:
        stores = [world.provider, *(world.again(f"store-{it}") for it in "bcd")]
        asked = [
            asyncio.ensure_future(store.start(world.order(script(WAITS), run=f"r{number}-{it}")))
            for number, store in enumerate(stores)
            for it in range(2)
        ]
        done: set[object] = set()
        while len(done) < 3:
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=1)
        await asyncio.sleep(1)  # for one that would be too many
        assert len(world.boxes()) == 3
        owned = [len(list(await store.owned())) for store in stores]
        assert sum(owned) == 3
        for one in asked:
            one.cancel()

    play(tmp_path, server, tale, ShellWorld, slots=3)


def test_each_task_sees_its_own_gpus_alone(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: ShellWorld) -> None:
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

    play(tmp_path, server, tale, ShellWorld)


# Beside a task


def test_a_command_beside_a_task_has_its_directory_and_streams(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: ShellWorld) -> None:
        name = f"run-{token_hex(4)}"  # others may run on this machine
        text = "echo 7 >note; echo begun; sleep 600"
        ref = await world.start(script(text, env={"A": "b c"}), run=name)
        await world.log_holds(ref, b"begun")
        entering = SshEntering(world.directory / "home", account_of(world))
        target = ExecTarget(ref.run, ref.sandbox, ref.handle)
        out, err = [], []

        async def typed():  # type: ignore[no-untyped-def]
            yield b"typed\n"

        words = ("sh", "-c", "cat note - ; echo $A; echo wrong >&2; exit 5")
        streams = ExecStreams(typed(), out.append, err.append)
        assert await entering.execute(target, words, streams) == 5
        assert (b"".join(out), b"".join(err)) == (b"7\ntyped\nb c\n", b"wrong\n")
        await entering.close()

    play(tmp_path, server, tale, ShellWorld)


def test_files_of_volumes_come_and_go_and_no_link_leads_out(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: ShellWorld) -> None:
        files = SshFiles(world.directory / "home", account_of(world))
        (tmp_path / "a").write_bytes(b"x" * 300_000)
        (tmp_path / "none").write_bytes(b"")
        copies = [FileCopy(tmp_path / "a", "d/a b", 300_000), FileCopy(tmp_path / "none", "d/n", 0)]
        await files.put("v", copies, tell=lambda _: None)
        assert sorted(it[:3] for it in await files.entries("v", "", recursive=True)) == [
            ("d", True, 0),
            ("d/a b", False, 300_000),
            ("d/n", False, 0),
        ]
        assert [it.path for it in await files.entries("v", "", contents="a*")] == ["d"]
        [found] = await files.entries("v", "d/a b", contents="a*")
        assert len(found[4]) == 64
        await files.get("v", [FileCopy(tmp_path / "b", "d/a b", 300_000)], tell=lambda _: None)
        assert (tmp_path / "b").read_bytes() == b"x" * 300_000
        assert await files.size("v") == 300_000
        os.symlink("/etc", world.root / "volumes" / "v" / "out")
        with pytest.raises(Refused):
            await files.entries("v", "out/passwd")
        await files.remove("v", "d", recursive=True)
        assert [it.path for it in await files.entries("v", "")] == ["out"]
        with pytest.raises(NotFound):
            await files.entries("v", "d")

    play(tmp_path, server, tale, ShellWorld)


def test_orphans_of_any_store_are_found_claimed_and_removed(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: ShellWorld) -> None:
        ref = await world.start(script(WAITS))
        await world.alive(ref)
        orphans = SshOrphans(world.directory / "home", account_of(world))
        [orphan] = await orphans.find_all()
        assert (orphan.store, orphan.job, orphan.run) == ("store-a", "batchjob/suite", "run-0")
        await orphans.claim(orphan, "store-b", "uid-2")
        assert list(await world.provider.owned()) == []
        [orphan] = await orphans.find_all()
        assert (orphan.store, orphan.uid) == ("store-b", "uid-2")
        await orphans.remove(orphan)
        assert await orphans.find_all() == []
        await orphans.close()

    play(tmp_path, server, tale, ShellWorld)


# What it cannot do


def test_work_that_needs_python_goes_to_a_host_that_has_it_or_is_refused(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: SshWorld) -> None:
        with pytest.raises(Refused) as caught:
            await world.provider.start(world.order(python("print(1)")))
        assert "it has no Python 3.9 or later, which `python` needs" in str(caught.value)
        assert "install Python 3.9 or later on a host" in caught.value.hint
        template = python("print(1)")
        [never] = [it async for it in world.provider.foresee(template, account_of(world))]
        assert never.where == ("python",)
        assert never.what == "`python` needs Python 3.9 or later, and no host of `ssh` has it"
        assert "run `fleetctl doctor`" in never.fix
        assert [it async for it in world.provider.foresee(script("true"), account_of(world))] == []
        with SshServer(tmp_path / "beside") as beside:
            home = str(tmp_path / "whole")
            world.settings["hosts"].append({**beside.host, "directory": home})  # type: ignore[attr-defined]
            # One configuration leads to both.
            server.known.write_text(server.known.read_text() + beside.known.read_text())
            keys = (server.directory / "client_key.pub").read_text()
            (beside.directory / "authorized_keys").write_text(keys)
            ref = await world.start(python("print('by python')"), run="run-1")
            assert str(beside.port) in ref.handle
            assert (await world.ended(ref)).ok

    play(tmp_path, server, tale)


@pytest.mark.parametrize("verb", ["validate", "plan", "apply"])
def test_work_that_no_host_can_do_is_refused_before_it_is_stored(
    tmp_path: Path, server: SshServer, verb: str
) -> None:
    (tmp_path / "life").mkdir()
    life = ShellLife(tmp_path / "life", Random(1), server)
    file = tmp_path / "job.yaml"
    try:
        life.declare()
        assert "guest: shell" in life.command("doctor").stdout
        file.write_text(JOB.format(work="script: echo hi"))
        done = life.command("validate", "-f", str(file))
        assert done.returncode == 0, done.stderr
        file.write_text(JOB.format(work="python: print(1)"))
        done = life.command(verb, "-f", str(file))
        assert done.returncode != 0
        told = done.stdout + done.stderr
        assert f"{file}:7:13: spec.template.python: " in told, told
        assert "needs Python 3.9 or later, and no host of `own` has it" in told
        assert "run `fleetctl doctor`" in told
        assert life.command("get", "job/tried").returncode != 0
    finally:
        assert life.end() == []
