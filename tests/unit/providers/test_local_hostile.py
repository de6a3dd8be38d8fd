"""Tasks that misbehave, in both tiers: nothing of them is left, and nothing of ours is fooled."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from fleetctl.controllers.model import Alive
from fleetctl.providers.local.runs import supervisor_messages
from tests.contracts.local_worlds import LocalWorld, processes_of, supervisor_pid
from tests.contracts.provider_worlds import World, eventually, python, script, story

HIDES = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if kind == "exec":
            os.execve(sys.executable, [sys.executable, "-c", SLEEPS], {})
        os.environ.clear()
        while True:
            time.sleep(1)
    os._exit(0)
os.wait()
time.sleep(0.2)
"""
SLEEPS = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


class Hostile:
    tier = ""

    @pytest.fixture(autouse=True)
    def _tier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETCTL_LOCAL_TIER", self.tier)

    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)

    @pytest.mark.parametrize("kind", ["fork", "exec"])
    @pytest.mark.parametrize("ending", ["by itself", "stopped", "timeout"])
    def test_what_forks_twice_and_hides_is_gone_when_its_run_has_ended(
        self, tmp_path: Path, kind: str, ending: str
    ) -> None:
        async def told(_: object, world: World) -> None:
            code = HIDES + (
                "" if ending == "by itself" else "print('hid', flush=True)\ntime.sleep(600)"
            )
            fields = {"timeoutSeconds": 1} if ending == "timeout" else {}
            ref = await world.start(
                python(code, terminationGracePeriodSeconds=0.1, **fields),
                params={"kind": kind, "SLEEPS": SLEEPS},
            )
            if ending == "stopped":
                await world.log_holds(ref, b"hid")
                await world.provider.stop(ref, grace_s=0.1)
            seen = await world.ended(ref)
            assert seen.ok == (ending == "by itself")
            assert _strangers(world) == []

        story(told)(self, tmp_path)

    @story
    async def test_a_background_process_may_live_as_long_as_its_run(self, world: World) -> None:
        text = "setsid sleep 600 & echo $! > pid; sleep 0.5; kill -0 $(cat pid) && echo alive"
        other = await world.start(script("sleep 0.2"), run="other")
        ref = await world.start(script(text), run="run-1", template_hash="hash-1")
        await world.ended(other)
        await world.ended(ref)
        assert b"alive" in await world.log(ref)
        assert _strangers(world) == []

    @story
    async def test_a_storm_of_forks_ends_with_its_run(self, world: World) -> None:
        one = "(setsid sh -c 'sleep 600 & sleep 600' &)"
        text = f"i=0; while [ $i -lt 150 ]; do {one}; i=$((i+1)); done"
        ref = await world.start(script(text))
        await world.ended(ref)
        assert _strangers(world) == []

    @story
    async def test_what_ignores_term_is_killed_after_the_grace(self, world: World) -> None:
        ref = await world.start(script("trap '' TERM; echo begun; while :; do sleep 1; done"))
        await world.log_holds(ref, b"begun")
        await world.provider.stop(ref, grace_s=0.3)
        seen = await world.ended(ref)
        assert (seen.ok, seen.reason, seen.exit_code) == (False, "Stopped", 128 + 9)
        assert _strangers(world) == []

    @story
    async def test_nothing_is_left_when_the_supervisor_is_killed(self, world: World) -> None:
        ref = await world.start(
            python(HIDES + "print('hid', flush=True)\ntime.sleep(600)"),
            params={"kind": "exec", "SLEEPS": SLEEPS},
        )
        await world.log_holds(ref, b"hid")
        assert _strangers(world) != []
        await world.lose(ref)
        await world.lost(ref)
        assert _strangers(world) == []

    @story
    async def test_a_supervisor_that_is_asked_to_end_records_it_as_no_fault_of_the_run(
        self, world: LocalWorld
    ) -> None:
        ref = await world.start(python("import time; time.sleep(600)"))
        await world.alive(ref)
        os.kill(supervisor_pid(world.directory / "home", ref), signal.SIGTERM)
        seen = await world.ended(ref)
        assert (seen.ok, seen.infrastructure, seen.reason) == (False, True, "KeeperEnded")

    @story
    async def test_more_memory_than_asked_for_ends_the_run_with_its_reason(
        self, world: World
    ) -> None:
        slowly = "import time\nheld = []\nwhile True:\n    held.append(bytearray(8_000_000))"
        slowly += "\n    time.sleep(0.05)"
        seen = await world.run(python(slowly, resources={"memory": "128Mi"}))
        assert (seen.ok, seen.reason) == (False, "OOMKilled")
        assert re.fullmatch(
            r"its processes used [0-9]+Mi of memory; resources.memory is 128Mi", seen.message
        )
        at_once = python("held = bytearray(4_000_000_000)", resources={"memory": "128Mi"})
        seen = await world.run(at_once, run="run-1", template_hash="hash-2")
        assert (seen.ok, seen.reason) == (False, "OOMKilled")
        assert re.search(
            r"MemoryError \(it held [0-9]+Mi before\); resources.memory is 128Mi$", seen.message
        )

    @story
    async def test_memory_is_counted_over_all_processes_of_a_run(self, world: World) -> None:
        code = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(60_000_000)
        time.sleep(600)
time.sleep(600)
"""
        seen = await world.run(python(code, resources={"memory": "150Mi"}))
        assert (seen.ok, seen.reason) == (False, "OOMKilled")

    @story
    async def test_output_without_end_and_without_lines_is_capped(self, world: LocalWorld) -> None:
        size = 1 << 28
        text = f"printf first; head -c {size} /dev/zero | tr '\\0' x; printf last"
        ref = await world.start(script(text))
        assert (await world.ended(ref)).ok
        parts = list((world.directory / "home" / "local").glob("jobs/*/runs/*.log"))
        assert sum(part.stat().st_size for part in parts) <= LOG_BYTES_MAX
        chunks = [chunk async for chunk in world.provider.logs(ref)]
        log = b"".join(chunk.data for chunk in chunks)
        assert log.startswith(b"firstxxx")
        assert log.endswith(b"xxxlast")
        assert log.count(b"bytes of output were dropped") == 1
        assert chunks[-1].next_offset == len("first") + size + len("last")
        offsets = [chunk.next_offset for chunk in chunks]
        assert offsets == sorted(offsets)
        assert _peak_bytes(supervisor_pid(world.directory / "home", ref)) < 60_000_000

    @pytest.fixture(autouse=True)
    def _small_logs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETCTL_LOCAL_LOG_BYTES_MAX", str(LOG_BYTES_MAX))

    @pytest.mark.parametrize(
        "trick",
        [
            "ln -s /etc/passwd $FLEETCTL_RESULT",
            "mkfifo $FLEETCTL_RESULT",
            "mkdir $FLEETCTL_RESULT",
            "mkdir o; echo '{\"a\": 1}' > o/result.json; rm -r .fleetctl; ln -s o .fleetctl",
            "rm -r .fleetctl; mkfifo .fleetctl",
            "ln -s /dev/zero $FLEETCTL_METRICS",
        ],
    )
    def test_a_result_is_never_read_through_what_a_task_swapped(
        self, tmp_path: Path, trick: str
    ) -> None:
        async def told(_: object, world: World) -> None:
            seen = await world.run(script(trick))
            assert seen.ok
            assert seen.result is None
            assert seen.metrics == ()

        story(told)(self, tmp_path)

    @story
    async def test_noise_on_the_channel_harms_only_its_own_run(self, world: World) -> None:
        code = "import os\nos.write(3, b'\\xff\\xfe{[}\\n' + b'x' * 3_000_000)"
        seen = await world.run(python(code))
        assert (seen.ok, seen.reason) == (False, "ResultInvalid")
        assert (
            await world.run(python(code.replace("write(3", "write(1")), run="run-1")
        ).ok is False

    @story
    async def test_a_task_cannot_forge_its_end(self, world: World) -> None:
        code = """
import os
for line in (b'{"e": "ended", "ok": true}', b'{"e": "done", "exit": 0}', b'{"e": "error"}'):
    os.write(3, line + b"\\n")
os._exit(4)
"""
        seen = await world.run(python(code))
        assert (seen.ok, seen.reason) == (False, "ExitCode:4")

    @story
    async def test_directories_without_permissions_are_removed_too(self, world: LocalWorld) -> None:
        text = "mkdir -p a/b/c; echo x > a/b/c/d; chmod 000 a/b/c a/b a"
        assert (await world.run(script(text))).ok
        work = world.directory / "home" / "local" / "jobs" / "uid-1" / "work"

        async def tidy() -> bool:
            # Not by listing each: a directory may go between two looks.
            return not list(work.glob("*/a"))

        await eventually(tidy, "the work directory was emptied")

    @story
    async def test_a_stop_does_not_wait_for_other_runs(self, world: World) -> None:
        refs = [
            await world.start(python("import time; time.sleep(600)"), run=f"r{n}") for n in range(3)
        ]
        await world.provider.stop(refs[1], grace_s=0)
        await world.ended(refs[1])
        assert isinstance(await world.see(refs[0]), Alive)
        assert isinstance(await world.see(refs[2]), Alive)


class TestHostileInNamespaces(Hostile):
    tier = "namespaces"

    @story
    async def test_a_bomb_of_processes_is_stopped_by_their_number(self, world: World) -> None:
        text = "i=0; while [ $i -lt 300 ]; do sleep 600 & i=$((i+1)); done; wait"
        seen = await world.run(script(text))
        assert not seen.ok
        # The kernel's own limit does not hold for root, so there the supervisor counts.
        assert seen.reason == ("TooManyProcesses" if os.getuid() == 0 else "ExitCode:2")
        assert _strangers(world) == []

    @pytest.fixture(autouse=True)
    def _few_processes(
        self, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
    ) -> None:
        if "bomb" in request.node.name:
            monkeypatch.setattr(supervisor_messages, "PROCESSES_MAX", 100)

    @story
    async def test_a_task_cannot_kill_its_supervisor(self, world: World) -> None:
        ref = await world.start(
            script("kill -9 1; kill -TERM 1; kill -INT 1; sleep 0.2; echo still")
        )
        await world.ended(ref)
        assert b"still" in await world.log(ref)
        assert (await world.run(script("true"), run="run-1")).ok


class TestHostileInProcessTier(Hostile):
    tier = "process"


LOG_BYTES_MAX = 1024 * 1024


def _strangers(world: World) -> list[int]:
    """Processes of runs that are still there."""
    return processes_of(world.directory / "home")


def _peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"{pid} has no peak")
