"""What a run sees and may touch, and what it is told about that."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Alive, Gone
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.local import supervisor_locks
from fleetctl.providers.local.runs.supervisor_messages import CPU_HEADROOM_S
from tests.contracts.local_worlds import LocalWorld, stop_supervisors
from tests.contracts.provider_worlds import World, command, eventually, python, script, story

ABSENT = "/fleetctl-test-of-mounts"  # at the top of the tree, where only root could make it


class InNamespaces:
    @pytest.fixture(autouse=True)
    def _tier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETCTL_LOCAL_TIER", "namespaces")

    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)


def volume(path: str, **fields: object) -> list[dict[str, object]]:
    return [{"name": "shared", "mountPath": path, **fields}]


class TestVolumes(InNamespaces):
    @pytest.mark.parametrize("path", [ABSENT, "/home/fleetctl-test/memory", "/root/fleetctl-data"])
    def test_a_volume_is_at_its_path_and_links_lead_there_and_the_host_has_neither(
        self, tmp_path: Path, path: str
    ) -> None:
        async def told(_: object, world: World) -> None:
            link = "/home/fleetctl-ray/data"
            code = "open(path + '/a', 'w').write('x')\nSUBMIT(open(link + '/a').read(), )"
            template = python(code, volumes=volume(path, links=[link]))
            seen = await world.run(template, params={"path": path, "link": link})
            assert seen.result == '{"output":"x"}'
            stored = world.directory / "home" / "local" / "volumes" / "shared" / "a"
            assert stored.read_text() == "x"
            assert not os.path.lexists(path)
            assert not os.path.lexists("/home/fleetctl-ray")

        story(told)(self, tmp_path)

    @story
    async def test_other_entries_of_a_shadowed_directory_stay_visible(self, world: World) -> None:
        inside = script("ls -A /usr", volumes=volume("/usr/fleetctl-test"))
        ref = await world.start(inside)
        await world.ended(ref)
        seen = (await world.log(ref)).decode().split()
        assert sorted(seen) == sorted([*os.listdir("/usr"), "fleetctl-test"])

    @story
    async def test_a_read_only_volume_refuses_writes(self, world: World) -> None:
        seen = await world.run(
            script(f"echo x > {ABSENT}/a", volumes=volume(ABSENT, readOnly=True))
        )
        assert not seen.ok
        assert not (world.directory / "home" / "local" / "volumes" / "shared" / "a").exists()

    @story
    async def test_the_volume_is_also_named_by_a_variable(self, world: World) -> None:
        text = 'echo "$FLEETCTL_VOLUME_MY_DATA"'
        volumes = [{"name": "my-data", "mountPath": ABSENT}]
        ref = await world.start(script(text, volumes=volumes))
        await world.ended(ref)
        assert await world.log(ref) == f"{ABSENT}\n".encode()

    @story
    async def test_a_path_that_cannot_be_made_is_refused_when_the_tier_is_asked_for(
        self, world: World
    ) -> None:
        with pytest.raises(Refused, match="namespaces"):
            await world.start(script("true", volumes=volume("/etc/passwd/fleetctl-test")))


class TestView(InNamespaces):
    @story
    async def test_the_tier_is_told_with_every_observation(self, world: World) -> None:
        ref = await world.start(script("sleep 600"))
        assert (await world.alive(ref)).note.startswith("namespaces")
        await world.provider.stop(ref, grace_s=0)
        assert (await world.ended(ref)).note.startswith("namespaces")

    @story
    async def test_a_run_sees_no_journal_no_log_and_no_other_job(self, world: World) -> None:
        other = await world.start(script("sleep 600"), run="other", uid="uid-2")
        await world.alive(other)
        local = world.directory / "home" / "local"
        ref = await world.start(script(f"find {local} | grep -v -e /work -e /envs"))
        await world.ended(ref)
        job = local / "jobs" / "uid-1"
        assert (await world.log(ref)).decode().split() == [
            str(one) for one in (local, local / "jobs", job, job / "inputs")
        ]

    @story
    async def test_a_run_sees_no_process_but_those_of_its_job(self, world: World) -> None:
        ref = await world.start(
            script(f"ls -d /proc/{os.getpid()}; cat /proc/1/comm; kill -0 1 && echo")
        )
        await world.ended(ref)
        log = await world.log(ref)
        assert b"No such file" in log
        assert b"python" in log

    @story
    async def test_temporary_files_are_private_and_work_is_the_only_home(
        self, world: World
    ) -> None:
        with tempfile.NamedTemporaryFile(dir="/tmp", prefix="of-the-host-") as host:
            text = f"test -e {host.name} || echo private; test -e /etc/passwd && echo seen"
            ref = await world.start(script(text + "; cd; pwd; readlink -f $TMPDIR"))
            await world.ended(ref)
        private, seen, *lines = (await world.log(ref)).decode().split()
        work = world.directory / "home" / "local" / "jobs" / "uid-1" / "work"
        assert (private, seen) == ("private", "seen")
        assert Path(lines[0]).parent == work.resolve()
        assert Path(lines[1]).is_relative_to(lines[0])

    @pytest.mark.parametrize("place", ["/etc", "/usr", "/var/tmp", "/root", "/"])
    def test_nothing_of_the_host_can_be_written(self, tmp_path: Path, place: str) -> None:
        async def told(_: object, world: World) -> None:
            path = f"{place}/fleetctl-test-of-writes"
            seen = await world.run(script(f"echo x > {path} || mkdir {path}"))
            assert not seen.ok
            assert not os.path.lexists(path)

        story(told)(self, tmp_path)

    @story
    async def test_a_run_has_no_capability_and_can_get_none(self, world: World) -> None:
        ref = await world.start(script("grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status"))
        await world.ended(ref)
        told = dict(line.split() for line in (await world.log(ref)).decode().splitlines())
        assert told == {"CapEff:": "0" * 16, "CapBnd:": "0" * 16, "NoNewPrivs:": "1"}


class TestEnvironment(InNamespaces):
    @story
    async def test_nothing_of_the_controllers_environment_reaches_a_task(
        self, world: World
    ) -> None:
        os.environ["FLEETCTL_TEST_TOKEN"] = "secret-of-the-controller"
        try:
            ref = await world.start(script("env; cat /proc/self/environ /proc/1/environ"))
            await world.ended(ref)
        finally:
            del os.environ["FLEETCTL_TEST_TOKEN"]
        assert b"secret-of-the-controller" not in await world.log(ref)

    @story
    async def test_the_environment_is_the_image_then_the_template_then_the_secrets(
        self, world: World
    ) -> None:
        template = script(
            "echo $A $B $C $FLEETCTL_ATTEMPT [$CUDA_VISIBLE_DEVICES]",
            image={"env": {"A": "image", "B": "image", "C": "image"}},
            env={"B": "template", "C": "template"},
        )
        ref = await world.start(template, secrets={"C": "kept"}, attempt=3)
        await world.ended(ref)
        assert await world.log(ref) == b"image template kept 3 []\n"

    @story
    async def test_a_secret_is_in_no_file_of_ours(self, world: World) -> None:
        ref = await world.start(script("sleep 600"), secrets={"TOKEN": "canary-4711"})
        await world.alive(ref)
        for path in (world.directory / "home").rglob("*"):
            if path.is_file():
                assert b"canary-4711" not in path.read_bytes(), path

    @story
    async def test_limits_hold_for_files_cores_and_descriptors(self, world: World) -> None:
        text = "ulimit -c; ulimit -f; ulimit -n; dd if=/dev/zero of=big bs=1M count=3 2>/dev/null"
        seen = await world.run(script(text, resources={"disk": "1Mi"}))
        assert not seen.ok
        ref = RunRef("run-0", "run-0", seen.handle, 0, "uid-1")
        core, blocks, files = (await world.log(ref)).decode().split()[:3]
        assert (core, blocks) == ("0", "2048")
        assert int(files) <= 65536

    @story
    async def test_cpu_time_is_limited_by_the_timeout_times_the_cores(self, world: World) -> None:
        seen = await world.run(script("ulimit -t", resources={"cpu": 3}, timeoutSeconds=100))
        ref = RunRef("run-0", "run-0", seen.handle, 0, "uid-1")
        assert await world.log(ref) == f"{3 * 100 + CPU_HEADROOM_S}\n".encode()

    @story
    async def test_a_module_of_the_task_may_be_called_like_one_of_ours(self, world: World) -> None:
        code = "open('supervisor.py', 'w').write('x = 5')\nimport supervisor\nSUBMIT(supervisor.x)"
        assert (await world.run(python(code))).result == '{"output":5}'

    @story
    async def test_what_a_task_imports_is_imported_ahead_and_shared(self, world: World) -> None:
        code = "import sys\nbefore = 'wave' in sys.modules\nimport wave\nSUBMIT(before)"
        assert (await world.run(python(code))).result == '{"output":true}'

    @story
    async def test_random_numbers_differ_between_runs(self, world: World) -> None:
        template = python("import random\nSUBMIT(random.random())")
        results = {(await world.run(template, run=f"run-{n}")).result for n in range(3)}
        assert len(results) == 3


class TestWork(InNamespaces):
    @story
    async def test_the_work_of_a_failed_run_is_kept_and_that_of_a_good_one_is_not(
        self, world: World
    ) -> None:
        work = world.directory / "home" / "local" / "jobs" / "uid-1" / "work"
        template = script("echo x > made; exit $TASK_CODE")
        assert (await world.run(template, params={"code": 0})).ok
        assert not (await world.run(template, run="run-1", params={"code": 1})).ok
        await _until_one(work)
        assert [path.read_text() for path in work.glob("*/made")] == ["x\n"]
        await world.provider.remove_scratch("uid-1", keep_logs=False)
        assert not work.exists()

    @story
    async def test_a_task_finds_nothing_of_the_one_before(self, world: World) -> None:
        template = script("ls -A . .fleetctl/tmp; touch a .fleetctl/tmp/b $FLEETCTL_METRICS")
        for number in range(3):
            ref = await world.start(template, run=f"run-{number}")
            assert (await world.ended(ref)).ok
            assert b"a\n" not in await world.log(ref)
            assert b"b\n" not in await world.log(ref)

    @story
    async def test_workdir_is_where_the_task_starts(self, world: World) -> None:
        seen = await world.run(command("pwd", workdir="/usr/share"))
        ref = RunRef("run-0", "run-0", seen.handle, 0, "uid-1")
        assert await world.log(ref) == b"/usr/share\n"


class TestPowerCut(InNamespaces):
    @story
    async def test_a_run_that_began_before_a_power_cut_does_not_begin_again(
        self, world: World
    ) -> None:
        order = world.order(script("echo begun"), run="run-7")
        await world.run(script("true"), run="other")  # so that the supervisor's directory exists
        supervisor = world.directory / "home" / "local" / "keepers" / "uid-1.hash-1"
        stop_supervisors(world.directory / "home")
        await eventually(_free(supervisor), "the supervisor left")
        # The journal of the run was still in memory when the power went; the list was on the disk.
        (supervisor / "begun").write_text("boot an-earlier-one\nrun-7\n")
        world.provider = world.again()
        ref = RunRef("run-7", "run-7", await world.provider.start(order), 0, order.uid)
        assert isinstance(await world.see(ref), Gone)
        assert await world.log(ref) == b""
        assert (await world.run(script("true"), run="run-8")).ok


class TestProcessTier:
    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)

    @pytest.fixture(autouse=True)
    def _tier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETCTL_LOCAL_TIER", "process")

    @story
    async def test_a_volume_is_linked_where_that_can_be_made_and_the_link_goes_again(
        self, world: World
    ) -> None:
        path = world.directory / "elsewhere" / "data"
        ref = await world.start(script(f"echo x > {path}/a; sleep 600", volumes=volume(str(path))))
        await world.alive(ref)
        assert path.is_symlink()
        await world.provider.stop(ref, grace_s=0)
        await world.ended(ref)
        await world.provider.remove_scratch("uid-1", keep_logs=False)
        assert not path.is_symlink()

    @story
    async def test_a_path_that_cannot_be_made_is_told_in_log_and_note(self, world: World) -> None:
        taken = world.directory / "taken"
        taken.mkdir()
        code = "SUBMIT(save_to_volume('a.txt', 'x'))"
        seen = await world.run(python(code, volumes=volume(str(taken))))
        assert seen.ok
        assert "FLEETCTL_VOLUME_SHARED" in seen.note
        ref = RunRef("run-0", "run-0", seen.handle, 0, "uid-1")
        assert str(taken).encode() in await world.log(ref)
        assert (world.directory / "home" / "local" / "volumes" / "shared" / "a.txt").exists()


class TestTiers:
    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)

    @story
    async def test_the_tier_is_lowered_only_aloud(self, world: World) -> None:
        ref = await world.start(script("true", volumes=volume("/etc/passwd/fleetctl-test")))
        seen = await world.ended(ref)
        assert seen.note.startswith("process (")
        assert "fleetctl-test" in seen.note

    @story
    async def test_an_unknown_tier_is_refused(self, world: World) -> None:
        os.environ["FLEETCTL_LOCAL_TIER"] = "strongest"
        try:
            world.provider = world.again()
            with pytest.raises(Refused, match="strongest"):
                await world.start(script("true"))
        finally:
            del os.environ["FLEETCTL_LOCAL_TIER"]


class TestGpus(InNamespaces):
    @pytest.fixture(autouse=True)
    def _gpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETCTL_LOCAL_GPUS", "NVIDIA A100-SXM4:2, T4")

    @story
    async def test_a_run_sees_the_devices_it_got_and_no_other_run_gets_them(
        self, world: World
    ) -> None:
        text = "echo [$CUDA_VISIBLE_DEVICES]; sleep 600"
        first = await world.start(script(text, resources={"gpu": "A100:2"}))
        await world.log_holds(first, b"[0,1]")
        with pytest.raises(Unavailable, match="needs 1 x A100, this machine has 2, 0 of them free"):
            await world.start(
                script(text, resources={"gpu": "A100"}), run="run-1", template_hash="h2"
            )
        other = await world.start(
            script(text, resources={"gpu": "any:1"}), run="run-2", template_hash="h3"
        )
        await world.log_holds(other, b"[2]")

    @story
    async def test_the_next_controller_gives_no_device_twice_and_takes_back_what_is_free(
        self, world: World
    ) -> None:
        template = script("sleep 600", resources={"gpu": "T4"})
        first = await world.start(template)
        await world.alive(first)
        world.provider = world.again()
        with pytest.raises(Unavailable) as caught:
            await world.start(template, run="run-1")
        assert caught.value.reason == "NoCapacity"
        await world.provider.stop(first, grace_s=0)
        await world.ended(first)
        second = await world.start(template, run="run-1")
        assert isinstance(await world.alive(second), Alive)

    @story
    async def test_a_run_tells_which_of_a_list_it_got(self, world: World) -> None:
        first = script("sleep 600", runtime="function", resources={"gpu": ["A100:2", "T4"]})
        seen = await world.alive(await world.start(first))
        assert seen.gpus == ("NVIDIA A100-SXM4", "NVIDIA A100-SXM4")
        second = script("true", runtime="function", resources={"gpu": ["A100", "T4"]})
        ended = await world.ended(await world.start(second, run="run-1", template_hash="h2"))
        assert ended.gpus == ("T4",)
        alone = script("true", resources={"gpu": "any:1"})
        ended = await world.ended(await world.start(alone, run="run-2", template_hash="h3"))
        assert ended.gpus == ()

    @story
    async def test_a_machine_without_gpus_says_so(self, world: World) -> None:
        os.environ["FLEETCTL_LOCAL_GPUS"] = ""
        with pytest.raises(Unavailable, match="needs 4 x A100, this machine has 0"):
            await world.start(script("true", resources={"gpu": "A100:4"}))


def _free(supervisor: Path) -> Callable[[], Awaitable[bool]]:
    async def free() -> bool:
        return supervisor_locks.lock_is_free(supervisor)

    return free


async def _until_one(work: Path) -> None:
    async def one() -> bool:
        return len(list(work.glob("*/made"))) == 1

    await eventually(one, "one work directory was left")


class TestPath(InNamespaces):
    @story
    async def test_a_task_finds_its_own_modules_and_none_of_the_supervisor(
        self, world: World
    ) -> None:
        code = """
import os, sys
from pathlib import Path
Path("mine.py").write_text("word = 'mine'")
import mine
try:
    import supervise
except ModuleNotFoundError:
    SUBMIT(word=mine.word, first=sys.path[:2], argv=sys.argv)
"""
        seen = await world.run(python(code, env={"PYTHONPATH": "/of/the/template"}))
        assert seen.result is not None, seen.message
        document = json.loads(seen.result)
        assert document == {"word": "mine", "first": ["", "/of/the/template"], "argv": ["<task>"]}
