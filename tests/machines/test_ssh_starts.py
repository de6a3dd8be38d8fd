"""A task's start and end on a host of provider `ssh`: how few processes it is, what is searched for
after it, and when its slot is free.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.guest.remote.place import EMPTY
from tests.contracts.provider_worlds import eventually, python, script
from tests.contracts.ssh_worlds import SshWorld
from tests.living import alive
from tests.machines.ssh_server import SshServer
from tests.machines.test_ssh_hosts import is_of, play

pytestmark = pytest.mark.needs("sshd")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with SshServer(tmp_path / "server") as one:
        yield one


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def processes_below(pid: int) -> set[int]:
    every = map(int, filter(str.isdigit, os.listdir("/proc")))
    return {it for it in every if alive(it) and it != pid and is_of(it, pid)}


@pytest.mark.parametrize("reusable", [False, True])
def test_a_running_task_is_two_processes_of_its_host(
    tmp_path: Path, server: SshServer, reusable: bool
) -> None:
    async def tale(world: SshWorld) -> None:
        text = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
        ref = await world.start(python(text), reusable=reusable)
        await world.log_holds(ref, b"begun")
        supervisor = world.supervisor(ref)
        [task] = processes_below(supervisor)
        assert processes_below(parent_of(supervisor)) == {supervisor, task}

    play(tmp_path, server, tale)


def test_one_supervisor_serves_the_tasks_of_a_sandbox_and_outlives_lines(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: SshWorld) -> None:
        text = "import os\nSUBMIT(parent=os.getppid(), me=os.getpid())"
        first = await world.start(python(text), reusable=True)
        seen = [(await world.ended(first)).result]
        supervisor = world.supervisor(first)
        for number in range(1, 4):
            server.cut()
            ref = await world.start(
                python(text),
                run=f"run-{number}",
                sandbox="run-0",
                handle=first.handle,
                reusable=number < 3,
            )
            seen.append((await world.ended(ref)).result)
        assert set(seen) == {seen[0]}
        assert f'"parent":{supervisor}' in str(seen[0])

    play(tmp_path, server, tale)


def test_what_a_task_leaves_behind_ends_with_its_sandbox(tmp_path: Path, server: SshServer) -> None:
    async def tale(world: SshWorld) -> None:
        note = tmp_path / "pid"
        left = f"echo $$ >{note}.new; mv {note}.new {note}; exec sleep 987"
        text = f"setsid sh -c '{left}' <&- >/dev/null 2>&1 & while [ ! -e {note} ]; do :; done"
        assert (await world.run(script(text))).ok
        assert not alive(int(note.read_text()))
        assert (await world.run(script("true"), run="run-1")).ok
        ended = [it for it in (world.root / "boxes").iterdir() if it.name.endswith(".gone")]
        # The supervisor of the second one knows that nobody is left, and of the first one not.
        assert sum((it / "state" / EMPTY).exists() for it in ended) == len(ended) - 1 == 1

    play(tmp_path, server, tale)


def test_a_slot_is_free_once_its_task_has_ended_whether_or_not_anybody_reads(
    tmp_path: Path, server: SshServer
) -> None:
    async def tale(world: SshWorld) -> None:
        go = tmp_path / "go"
        text = f"echo begun; while [ ! -e {go} ]; do sleep 0.1; done; echo done"
        ref = await world.start(script(text))
        await world.log_holds(ref, b"begun")
        supervisor = world.supervisor(ref)
        await world.provider.close()
        go.touch()

        async def gone() -> bool:
            return not alive(supervisor)

        await eventually(gone, "its supervisor has ended")
        other = world.again("store-b")
        assert await other.start(world.order(script("sleep 600"), run="run-b"))
        world.provider = world.again()
        seen = await world.ended(ref)
        assert seen.ok
        assert await world.log(ref) == b"begun\ndone\n"

    play(tmp_path, server, tale, slots=1)
