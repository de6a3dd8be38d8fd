"""Limits that an edit changes without a new program: each run has those of the present spec."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from fleetctl.providers.local.runs.supervisor_messages import CPU_HEADROOM_S
from tests.contracts.local_worlds import LocalWorld
from tests.contracts.provider_worlds import World, python, script, story


def test_a_hard_limit_of_open_files_below_ours_is_taken_as_it_is() -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (512, 1024))\n"
    code += "from fleetctl.providers.local.supervisor.starting import _clean_environment\n"
    code += "_clean_environment({}); print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1024", "1024"]


class TestLimits:
    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)

    @story
    async def test_the_next_run_has_the_timeout_of_the_present_spec(self, world: World) -> None:
        work = "echo begun; sleep 600"
        first = await world.start(script(work, timeoutSeconds=7200))
        await world.log_holds(first, b"begun")
        second = await world.run(script(work, timeoutSeconds=0.3), run="run-1")
        assert (second.ok, second.reason) == (False, "Timeout")
        assert "which is 0.3" in second.message

    @story
    async def test_the_next_run_has_the_grace_of_the_present_spec(self, world: World) -> None:
        saves = "trap 'sleep 0.5; echo saved; exit' TERM; echo begun; while :; do sleep 0.05; done"
        first = await world.start(script(saves, terminationGracePeriodSeconds=0))
        await world.log_holds(first, b"begun")
        # Before its limit the shell has set its trap, also on a busy machine.
        limits = {"timeoutSeconds": 10, "terminationGracePeriodSeconds": 300}
        second = await world.start(script(saves, **limits), run="run-1")
        assert not (await world.ended(second)).ok
        assert b"saved" in await world.log(second)

    @story
    async def test_each_task_of_a_worker_has_the_cpu_time_of_its_own_limit(
        self, world: World
    ) -> None:
        code = "import resource; SUBMIT(soft=resource.getrlimit(resource.RLIMIT_CPU)[0])"
        found = []
        for number, timeout_s in enumerate((100, 1000)):
            template = python(code, timeoutSeconds=timeout_s, resources={"cpu": 1})
            changes = {"sandbox": "run-0", "reusable": True, "run": f"run-{number}"}
            seen = await world.run(template, **changes)
            assert seen.result is not None, seen
            found.append(json.loads(seen.result)["soft"] - timeout_s - CPU_HEADROOM_S)
        assert all(0 <= used_s <= 10 for used_s in found), found
