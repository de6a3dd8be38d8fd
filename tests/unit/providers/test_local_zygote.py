"""Many jobs share one warm process, from which their supervisors are forked, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive, Ended, Gone
from fleetctl.guest.journal.masking import MASK
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.local import supervisor_locks
from fleetctl.providers.local.runs import supervisors
from fleetctl.providers.local.runs import supervisors as zygotes
from fleetctl.providers.local.runs.supervisor_link import SupervisorLink
from fleetctl.providers.local.runs.supervisors import BIRTHS_AT_ONCE, IDLE_MAX
from fleetctl.specs.blocks.template import Template
from tests.contracts.local_worlds import LocalWorld, stop_supervisors, supervisor_pid
from tests.contracts.provider_worlds import World, eventually, python, script, story

JOBS = 2 * IDLE_MAX


class InTier:
    tier = "namespaces"

    @pytest.fixture(autouse=True)
    def _tier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETCTL_LOCAL_TIER", self.tier)

    @pytest.fixture(autouse=True)
    def _nothing_left(self, tmp_path: Path) -> Iterator[None]:
        yield
        stop_supervisors(tmp_path / "home")

    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)


class TestManyJobs(InTier):
    @story
    async def test_all_jobs_of_a_python_share_one_zygote_and_few_supervisors_stay(
        self, world: World
    ) -> None:
        for number in range(JOBS):
            fields = {"run": f"run-{number}", "uid": f"uid-{number}"}
            assert (await world.run(python("SUBMIT(1)"), **fields)).ok
        assert len(_zygotes()) == 1

        async def few() -> bool:
            return len(_living(world)) <= IDLE_MAX

        await eventually(few, "no more keepers lived than may be idle")

    @story
    async def test_few_supervisors_stay_also_when_an_end_is_seen_before_its_start_returns(
        self, world: World
    ) -> None:
        start = SupervisorLink.start

        async def late(link: SupervisorLink, message: dict[str, Any]) -> dict[str, Any]:
            answer = await start(link, message)
            run = message["run"]
            await world.ended(RunRef(run, run, "", 0, run.replace("run", "uid")))
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SupervisorLink, "start", late)
            for number in range(JOBS):
                fields = {"run": f"run-{number}", "uid": f"uid-{number}"}
                await world.start(script("true"), **fields)

        async def few() -> bool:
            return len(_living(world)) <= IDLE_MAX

        await eventually(few, "no more keepers lived than may be idle")

    @story
    async def test_a_job_that_imports_for_long_holds_up_no_other(self, world: World) -> None:
        assert (await world.run(script("true"))).ok  # which makes the environment
        (packages,) = _packages(world)
        module = packages / "takes_long.py"
        module.write_text("import os, time\nwhile os.path.exists(__file__): time.sleep(0.01)\n")
        slow = [
            asyncio.ensure_future(
                world.start(python("import takes_long"), run=f"slow-{n}", uid=f"uid-slow-{n}")
            )
            for n in range(BIRTHS_AT_ONCE)
        ]
        await asyncio.sleep(0)  # so that they come first
        assert (await world.run(script("true"), run="quick", uid="uid-2")).ok
        assert not any(one.done() for one in slow)
        module.unlink()
        await asyncio.gather(*slow)

    @story
    async def test_a_supervisor_that_was_asked_to_leave_serves_what_comes_nonetheless(
        self, world: World
    ) -> None:
        for number in range(JOBS):
            fields = {"run": f"run-{number}", "uid": f"uid-{number}"}
            await world.run(script("true"), **fields)
        for number in range(JOBS):  # the first ones have left, or are just leaving
            fields = {"run": f"run-{number}-b", "uid": f"uid-{number}"}
            assert (await world.run(script("true"), **fields)).ok

    @story
    async def test_a_supervisor_with_a_run_is_never_asked_to_leave(self, world: World) -> None:
        long = await world.start(script("sleep 600"), run="long", uid="uid-long")
        for number in range(JOBS):
            fields = {"run": f"run-{number}", "uid": f"uid-{number}"}
            await world.run(script("true"), **fields)
        assert isinstance(await world.see(long), Alive)

    @story
    async def test_what_is_left_of_one_job_is_removed_while_others_run(self, world: World) -> None:
        jobs = world.directory / "home" / "local" / "jobs"
        other = await world.start(script("sleep 600"), run="other", uid="uid-2")
        assert not (await world.run(script("touch kept; exit 1"))).ok
        assert list((jobs / "uid-1" / "work").glob("*/kept"))
        await world.provider.remove_scratch("uid-1", keep_logs=False)
        assert not (jobs / "uid-1").exists()
        assert isinstance(await world.see(other), Alive)
        with pytest.raises(Unavailable, match="still runs something"):
            await _remove_soon(world, "uid-2")
        assert isinstance(await world.see(other), Alive)


class TestDeaths(InTier):
    @story
    async def test_killing_the_zygote_costs_no_run_and_the_next_job_brings_another(
        self, world: World
    ) -> None:
        running = await world.start(script("sleep 600"), run="running", uid="uid-1")
        await world.alive(running)
        (killed,) = _zygotes()
        os.kill(killed, signal.SIGKILL)
        assert (await world.run(script("true"), run="next", uid="uid-2")).ok
        assert isinstance(await world.see(running), Alive)
        assert killed not in _zygotes()

    @story
    async def test_a_zygote_that_is_stopped_is_left_for_another(self, world: World) -> None:
        assert (await world.run(script("true"))).ok
        (stopped,) = _zygotes()
        os.kill(stopped, signal.SIGSTOP)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(supervisors, "READY_S", 0.5)  # the other has as long, and is asked again
            await eventually(
                lambda: _started(world, script("true"), run="next", uid="uid-2"), "it started"
            )
        assert (await world.ended(RunRef("next", "next", "", 0, "uid-2"))).ok
        os.kill(stopped, signal.SIGCONT)  # it finds that nobody is there any more

    @story
    async def test_killing_the_supervisor_of_one_job_leaves_the_others_alone(
        self, world: World
    ) -> None:
        first = await world.start(script("sleep 600"), run="first", uid="uid-1")
        second = await world.start(script("sleep 600"), run="second", uid="uid-2")
        await world.alive(first)
        await world.alive(second)
        os.kill(supervisor_pid(world.directory / "home", first), signal.SIGKILL)
        assert isinstance(await world.lost(first), Gone)
        assert isinstance(await world.see(second), Alive)

    @story
    async def test_the_zygote_goes_with_its_controller_and_the_runs_stay(
        self, world: World
    ) -> None:
        running = await world.start(script("sleep 600"))
        await world.alive(running)
        await world.provider.close()
        assert _zygotes() == []
        world.provider = world.again()
        assert isinstance(await world.see(running), Alive)
        assert _zygotes() == []  # none is needed to look

    @story
    async def test_a_python_that_does_not_start_is_told_with_the_file_that_says_why(
        self, world: World
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(zygotes, "PACKAGE", world.directory / "nothing-here")
            with pytest.raises(Unavailable, match=r"did not start: .* \(see .*zygotes\.log\)"):
                await world.start(script("true"))
        log = world.directory / "home" / "local" / "zygotes.log"
        assert "nothing-here" in log.read_text()
        assert (await world.run(script("true"))).ok

    @story
    async def test_a_library_that_ends_its_process_on_import_does_so_in_the_task_alone(
        self, world: World
    ) -> None:
        assert (await world.run(script("true"))).ok  # which makes the environment
        (packages,) = _packages(world)
        (packages / "ends_its_process.py").write_text("import os\nos._exit(7)\n")
        code = "import ends_its_process\nSUBMIT(1)"
        seen = await world.run(python(code), run="run-1", uid="uid-2")
        assert (seen.ok, seen.exit_code) == (False, 7)
        assert (await world.run(python("SUBMIT(2)"), run="run-2", uid="uid-3")).ok


class TestBetweenJobs(InTier):
    """Two jobs, both of which live, started one after the other by one zygote."""

    @story
    async def test_neither_sees_the_others_processes_files_and_variables(
        self, world: World
    ) -> None:
        first = await world.start(
            script("echo own > mine; cat mine; sleep 600", env={"OF_FIRST": "canary-env"}),
            run="first",
            uid="uid-1",
            secrets={"TOKEN": "canary-secret"},
            params={"value": "canary-parameter"},
        )
        await world.log_holds(first, b"own")
        local = world.directory / "home" / "local"
        look = (
            "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; env;"
            f" find {local} /tmp /dev/shm; ls -d /proc/[0-9]* | wc -l; echo looked"
        )
        second = await world.start(script(look), run="second", uid="uid-2")
        assert (await world.ended(second)).ok
        message = (await world.log(second)).decode()
        assert "looked" in message
        assert "canary" not in message
        assert "sleep" not in message.replace(look, "")
        assert "uid-1" not in message
        assert isinstance(await world.see(first), Alive)

    @story
    async def test_neither_can_signal_the_other(self, world: World) -> None:
        first = await world.start(script("sleep 600"), run="first", uid="uid-1")
        await world.alive(first)
        await world.run(script("kill -9 -1"), run="second", uid="uid-2")
        assert isinstance(await world.see(first), Alive)

    @story
    async def test_each_has_its_own_limits_and_environment(self, world: World) -> None:
        text = "ulimit -f; echo [$ONLY]"
        one = script(text, resources={"disk": "1Mi"}, env={"ONLY": "one"})
        refs = [
            await world.start(one, run="first", uid="uid-1"),
            await world.start(script(text), run="second", uid="uid-2"),
        ]
        for ref in refs:
            await world.ended(ref)
        assert await world.log(refs[0]) == b"2048\n[one]\n"
        assert await world.log(refs[1]) == b"unlimited\n[]\n"

    @story
    async def test_what_one_imports_is_not_imported_in_the_other(self, world: World) -> None:
        code = "import wave, sys\nSUBMIT(1)"
        assert (await world.run(python(code))).ok
        look = python("import sys\nSUBMIT('wave' in sys.modules)")
        assert (await world.run(look, run="run-1", uid="uid-2")).result == '{"output":false}'


class TestMemory(InTier):
    tier = "process"  # where a process may always read its own memory

    @story
    async def test_no_word_of_a_job_is_in_the_memory_of_anothers_task(self, world: World) -> None:
        words = {name: "canary-" + secrets.token_hex(8) for name in ("secret", "env", "param")}
        first = python(
            f"# {'canary-' + secrets.token_hex(8)}\nimport time\ntime.sleep(600)",
            env={"OF_FIRST": words["env"]},
        )
        ref = await world.start(
            first,
            run="first",
            uid="uid-1",
            secrets={"TOKEN": words["secret"]},
            params={"value": words["param"]},
        )
        await world.alive(ref)
        own = "canary-" + secrets.token_hex(8)
        seen = await world.run(
            python(_SCAN), run="second", uid="uid-2", secrets={"TOKEN": own}, params={}
        )
        assert seen.result is not None, seen.message
        # So the look does find what is there; its own secret is masked in what it returns.
        assert json.loads(seen.result) == {"found": [MASK]}


_SCAN = """
import re
found = set()
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        if " rw" not in line or "[v" in line:
            continue
        low, high = (int(word, 16) for word in line.split()[0].split("-"))
        memory.seek(low)
        try:
            data = memory.read(high - low)
        except OSError:
            continue
        found |= set(re.findall(rb"canar[y]-[0-9a-f]{16}", data))
SUBMIT(found=sorted(word.decode() for word in found))
"""


class TestDurableNames(InTier):
    @story
    async def test_a_run_whose_name_the_disk_refuses_does_not_begin(self, world: World) -> None:
        """Else a power cut could let it begin twice: its journal may go with the power."""
        await world.run(script("true"), run="earlier")
        stop_supervisors(world.directory / "home")
        supervisor = world.directory / "home" / "local" / "keepers" / "uid-1.hash-1"

        async def free() -> bool:
            return supervisor_locks.lock_is_free(supervisor)

        await eventually(free, "the supervisor left")
        world.provider = world.again()
        with _files_of_at_most(64 * 1024, fill=supervisor / "begun"):
            template = script("touch $FLEETCTL_VOLUME_SHARED/begun", volumes=_VOLUME)
            for _ in range(3):
                with pytest.raises(Unavailable, match="cannot record a start"):
                    await world.start(template)
        home = world.directory / "home" / "local"
        assert not (home / "jobs" / "uid-1" / "runs" / "run-0.jsonl").exists()
        assert not (home / "volumes" / "shared" / "begun").exists()
        ref = RunRef("run-0", "run-0", "", 0, "uid-1")
        assert isinstance(await world.see(ref), Gone)

    @story
    async def test_the_name_of_a_run_is_on_the_disk_when_its_work_begins(
        self, world: World
    ) -> None:
        seen = await world.run(script("true"))
        assert isinstance(seen, Ended)
        supervisor = world.directory / "home" / "local" / "keepers" / "uid-1.hash-1"
        boot, run = (supervisor / "begun").read_text().splitlines()
        assert (boot, run) == (f"boot {supervisor_locks.boot_id()}", "run-0")


_VOLUME = [{"name": "shared", "mountPath": "/fleetctl-test-of-names"}]


class _files_of_at_most:  # noqa: N801 - reads as a sentence
    """While it holds, no process that we start makes a file larger; `fill` is as large already."""

    def __init__(self, limit: int, *, fill: Path) -> None:
        self._limit, self._fill = limit, fill

    def __enter__(self) -> None:
        with self._fill.open("ab") as file:
            file.write(b"x" * (self._limit - file.tell() - 1) + b"\n")
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._limit, self._before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


_WITHOUT_OURS = """
import importlib, os, sys
sys.path.insert(0, sys.argv[1])
starting = importlib.import_module("supervisor.starting")
reports = importlib.import_module("fleetctl.guest.reports")
record = importlib.import_module("fleetctl.guest.journal.record")
del sys.path[0]
starting.forget_own_modules()
os.makedirs(".fleetctl")
for name, text in (("metrics.jsonl", '{"loss": 1}'), ("result.json", '{"a": 1}'), ("a.jsonl", "")):
    with open(f".fleetctl/{name}", "w") as file:
        file.write(text)
runs = os.open(".", os.O_RDONLY)
files = reports.ReportFiles(".fleetctl", below=os.getcwd())
run = reports.RunReports(record.Journal(runs, "run"), print, files)
checkpoint = {"path": os.getcwd(), "mirror": "file:///x", "format": "auto"}
order = {"checkpoint": checkpoint, "library": {"fleetctl_mirror.py": ""}, "rank": 1}
metrics = {"from": "file", "path": f"{os.getcwd()}/.fleetctl/[a-c]*.jsonl", "metric": "x"}
run.follow_metrics(metrics, ".")
run.watch_checkpoints(order, os.getcwd(), dict)
run.sample_gpus([])
run.limit_stalls({"timeout_s": 60.0, "start_s": 60.0})
run.read(whole=True)
assert run.ends_in_s(list) is None
ended = {"ok": True, "reason": ""}
print(run.judge_result(ended), run.journal.step, "fleetctl" in sys.modules)
"""


def test_a_supervisor_reads_all_reports_without_importing_our_modules(tmp_path: Path) -> None:
    providers = Path(supervisors.__file__).parents[1]
    words = [sys.executable, "-I", "-S", "-c", _WITHOUT_OURS, str(providers)]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert '"bytes":7' in ran.stdout
    assert ran.stdout.split()[-2:] == ["0", "False"]


def _zygotes() -> list[int]:
    """Children of ours that are zygotes."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == os.getpid() and os.fsencode(zygotes.PACKAGE) in words:
            found.append(pid)
    return found


def _living(world: World) -> list[Path]:
    supervisors = world.directory / "home" / "local" / "keepers"
    return [one for one in supervisors.iterdir() if not supervisor_locks.lock_is_free(one)]


async def _started(world: World, template: Template, **fields: str) -> bool:
    try:
        await world.start(template, **fields)
    except Unavailable:
        return False
    return True


def _packages(world: World) -> list[Path]:
    """Where the environment of tasks without an image has its packages; once there is one."""
    envs = world.directory / "home" / "local" / "envs"
    return list(envs.glob("*/lib/python*/site-packages"))


async def _remove_soon(world: World, uid: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleetctl.providers.local.assets.local_volumes.LEAVE_S", 0.0)
        await world.provider.remove_scratch(uid, keep_logs=False)
