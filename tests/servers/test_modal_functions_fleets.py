"""Functions on Modal as a whole: warm containers, GPUs that fall back, deployments that are shared,
changed and removed, and controllers that die in between.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from fleetctl.providers.modal.connection.modal_connection import ModalSettings
from fleetctl.specs.blocks.template import Template
from tests.emulators.modal.running import ModalEmulator
from tests.servers.modal_calling import Truth, called, dropped, until
from tests.servers.modal_fleet import Fleet, Play, Tally, begins, played

WAITS = "\nimport time\ntime.sleep(600)\n"
TASKS, AT_ONCE = 300, 40
PLACED = {"placement": {"provider": "modal"}}


def calling(code: str, name: str = "embedder", **fields: Any) -> dict[str, Any]:
    return {"python": code, "function": name, **fields}


# -- containers ------------------------------------------------------------------------------------


def test_hundreds_of_tasks_run_in_a_few_warm_containers(
    tmp_path: Path, modal_emulator: ModalEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply_kind("Function", "embedder", {"provider": "modal", "maxContainers": 4})
        code = "import os; SUBMIT(square=int(os.environ['JOB_COMPLETION_INDEX']) ** 2)"
        # So many that none waits for its turn as long as a question takes, on a busy machine too.
        fleet.apply(calling(code), tasks={"completions": TASKS}, parallelism=AT_ONCE)
        await fleet.phase("Succeeded")
        assert fleet.results() == {n: {"square": n * n} for n in range(TASKS)}
        truth = Truth(fleet)
        assert 1 <= len(truth.containers()) <= 4
        assert [len(one["began"]) for one in truth.inputs()] == [1] * TASKS
        rpcs = fleet.emulator.rpcs()
        # A call, its latch and its answer, and few questions in between: each call that is not
        # over is asked about again after a while, on a busy machine.
        again = AT_ONCE * (time.monotonic() - began_s) / ModalSettings().call_wait_s
        asked = ("FunctionMap", "DictUpdate", "DictGet", "FunctionGetOutputs")
        assert sum(rpcs.get(name, 0) - before.get(name, 0) for name in asked) <= 3.2 * TASKS + again

    before, began_s = modal_emulator.rpcs(), time.monotonic()
    with played(tmp_path / "home", modal_emulator) as play:  # at its own pace
        play(tale)


def test_tasks_of_one_container_share_nothing_unless_the_sandbox_is_reused(
    calls_on_modal: Play,
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply_kind("Function", "embedder", {"provider": "modal", "maxContainers": 1})
        code = "seen = globals().get('seen', 0) + 1\nSUBMIT(seen=seen)"
        job = {"tasks": {"completions": 4}, "parallelism": 1}
        fleet.apply(calling(code), name="apart", **job)
        await fleet.phase("Succeeded", "apart")
        assert [it["seen"] for it in fleet.results("apart").values()] == [1, 1, 1, 1]
        fleet.apply(calling(code), name="together", sandbox={"reuse": "all"}, **job)
        await fleet.phase("Succeeded", "together")
        assert [it["seen"] for it in fleet.results("together").values()] == [1, 2, 3, 4]
        fleet.apply(calling(code), name="others", sandbox={"reuse": "all"}, **job)
        await fleet.phase("Succeeded", "others")
        assert [it["seen"] for it in fleet.results("others").values()] == [1, 2, 3, 4]
        assert len(Truth(fleet).containers()) == 1

    calls_on_modal(tale)


def test_a_row_in_a_warm_container_has_its_own_parameters_alone(calls_on_modal: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply_kind("Function", "embedder", {"provider": "modal", "maxContainers": 1})
        code = (
            "import os\nseen = globals().get('seen', 0) + 1\n"
            "limits = globals().get('limit', 100), os.environ.get('TASK_LIMIT')\n"
            "here = os.path.basename(os.getcwd())\nos.mkdir(str(seen)); os.chdir(str(seen))\n"
            "SUBMIT(seen=seen, limits=limits, moved=here.isdigit())"
        )
        rows = {"tasks": {"items": [{"limit": 5}, {"scale": 2}, {"limit": 7}, {"scale": 3}]}}
        shared = {"sandbox": {"reuse": "all"}, "parallelism": 1}
        fleet.apply(calling(code), name="rows", **rows, **shared)
        await fleet.phase("Succeeded", "rows")
        found = fleet.results("rows").values()
        assert [it["seen"] for it in found] == [1, 2, 3, 4]
        assert [it["limits"] for it in found] == [[5, "5"], [100, None], [7, "7"], [100, None]]
        assert not any(it["moved"] for it in found)

    calls_on_modal(tale)


def test_what_a_task_leaves_running_does_not_meet_the_next_one(calls_on_modal: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply_kind("Function", "embedder", {"provider": "modal", "maxContainers": 1})
        code = (
            "import os, subprocess\n"
            "left = subprocess.run(['pgrep', '-f', 'sleep 4321'], capture_output=True).stdout\n"
            "subprocess.Popen('setsid sleep 4321 >/dev/null 2>&1 &', shell=True)\n"
            "SUBMIT(left=len(left.split()))"
        )
        fleet.apply(calling(code), tasks={"completions": 3}, parallelism=1)
        await fleet.phase("Succeeded")
        assert [it["left"] for it in fleet.results().values()] == [0, 0, 0]

    calls_on_modal(tale)


def test_a_list_of_gpus_falls_back_to_the_next_that_is_free(calls_on_modal: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("settings", gpu_capacity={"H100": 0, "A100-80GB": 1})
        fleet.apply(called("pass", resources={"gpu": ["H100:2", "A100-80GB"]}))
        await fleet.phase("Succeeded")
        assert [one["gpu"] for one in Truth(fleet).containers()] == ["A100-80GB"]
        (run,) = fleet.runs()
        assert run.usd_per_s is not None

    calls_on_modal(tale)


def test_a_run_is_charged_what_it_got_of_a_list_of_gpus(calls_on_modal: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        gpus = ["T4", "H100", "H200:2"]
        # Of another size, so that no container of the one before is warm for it.
        for cpu, got in enumerate(gpus, 1):
            fleet.emulator.do("settings", gpu_capacity=dict.fromkeys(("T4", "H100")[: cpu - 1], 0))
            name = f"job-{cpu}"
            work = called(f"SUBMIT(cpu={cpu})", resources={"gpu": gpus, "cpu": cpu})
            fleet.apply(work, name=name)
            await fleet.phase("Succeeded", name)
            assert {one["gpu"] for one in Truth(fleet).containers()} == set(gpus[:cpu])
            (run,) = fleet.runs(name)
            assert run.usd_per_s == pytest.approx(usd_per_s(fleet, got, cpu=cpu), rel=0.01)

    calls_on_modal(tale)


def test_under_a_budget_the_dearest_of_a_list_is_set_aside_and_what_came_is_charged(
    calls_on_modal: Play,
) -> None:
    async def tale(fleet: Fleet) -> None:
        dear, cheap = usd_per_s(fleet, "H100:8"), usd_per_s(fleet, "T4")
        work = called(
            "import time; time.sleep(1)",
            resources={"gpu": ["T4", "H100:8"]},
            timeoutSeconds=200,
            terminationGracePeriodSeconds=1,
        )
        # The first does not fit although it would run on a T4, and costs many times less there.
        fleet.apply(work, budget={"maxCost": 150 * dear})
        status = await fleet.waits("BudgetTooSmall")
        assert status["active"] == 0
        assert not Truth(fleet).inputs()
        fleet.apply(work, budget={"maxCost": 400 * dear}, tasks={"completions": 5}, parallelism=1)
        await fleet.phase("Succeeded")
        runs = fleet.runs()
        assert [run.usd_per_s for run in runs] == [pytest.approx(cheap, rel=0.01)] * 5
        assert all(run.usd is not None and run.usd < 200 * cheap for run in runs)

    calls_on_modal(tale)


def usd_per_s(fleet: Fleet, gpu: str, **resources: Any) -> float:
    template = Template.model_validate(called("pass", resources={"gpu": gpu, **resources}))
    price = fleet.provider.usd_per_s(template)
    assert price
    return price


def test_calls_that_wait_for_a_gpu_say_so_and_go_on_when_there_is_one(
    calls_on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("settings", gpu_capacity={"H100": 0, "L4": 0})
        gpu = {"gpu": ["H100", "L4"]}
        fleet.apply(called(tally.python(), resources=gpu), tasks={"completions": 2})
        status = await fleet.waits("Queued")
        assert status["phase"] == "Pending"
        assert "waiting for H100:1 or L4:1 since" in status["message"]
        assert len(Truth(fleet).inputs()) == 2
        fleet.emulator.do("settings", gpu_capacity={"H100": 0, "L4": 1})
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1, "1/1": 1}
        assert len(Truth(fleet).inputs()) == 2

    calls_on_modal(tale)


# -- deployments -----------------------------------------------------------------------------------


def test_a_function_keeps_containers_ready_before_anybody_calls_it_and_none_when_it_is_gone(
    calls_on_modal: Play,
) -> None:
    async def tale(fleet: Fleet) -> None:
        truth = Truth(fleet)
        fleet.apply_kind("Function", "embedder", {"provider": "modal", "minContainers": 2})
        await until(lambda: len(truth.containers(live=True)) == 2, "two were ready")
        remove(fleet, "embedder")
        await dropped(fleet)
        assert (truth.apps(), truth.containers(live=True)) == ([], [])

    calls_on_modal(tale)


def test_jobs_of_one_function_share_its_containers_and_a_changed_one_has_others(
    calls_on_modal: Play,
) -> None:
    async def tale(fleet: Fleet) -> None:
        truth = Truth(fleet)
        spec = {"provider": "modal", "minContainers": 1, "maxContainers": 1}
        spec["scaledownSeconds"] = 2
        fleet.apply_kind("Function", "embedder", spec)
        for name in ("a", "b"):
            fleet.apply(calling("pass", env={"JOB": name}), name=name)
            await fleet.phase("Succeeded", name)
        assert len(truth.apps()) == 1
        assert [one["inputs_taken"] for one in truth.containers()] == [2]
        fleet.apply_kind("Function", "embedder", {**spec, "resources": {"cpu": 2}})
        await until(lambda: len(truth.apps()) == 2, "the new one was deployed")
        fleet.apply(calling("pass"), name="c")
        await fleet.phase("Succeeded", "c")
        # Nobody pays for containers of what the function was before.
        await until(lambda: len(truth.containers(live=True)) == 1, "only the new one was warm")
        for name in "abc":
            fleet.delete(name)
        await until(lambda: len(truth.apps()) == 1, "the old one was gone with its last job")

    calls_on_modal(tale)


def test_a_function_goes_after_the_job_that_calls_it(calls_on_modal: Play, tally: Tally) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply_kind("Function", "embedder", {"provider": "modal"})
        fleet.apply(calling(tally.python(WAITS)))
        await begins(tally)
        remove(fleet, "embedder")
        await until(lambda: "still used by" in message(fleet, "Function"), "it waited")
        assert len(Truth(fleet).apps()) == 1
        fleet.delete()
        await dropped(fleet)
        assert (Truth(fleet).apps(), Truth(fleet).containers(live=True)) == ([], [])

    calls_on_modal(tale)


def test_an_app_whose_stop_failed_is_stopped_later(calls_on_modal: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply(called("pass"))
        await fleet.phase("Succeeded")
        fleet.emulator.do("fault", rpc="AppStop", status="UNAVAILABLE", count=12)
        fleet.delete()
        await dropped(fleet)
        assert Truth(fleet).apps() == []

    calls_on_modal(tale)


def test_the_tasks_of_a_function_see_its_volumes_secrets_and_source(
    calls_on_modal: Play, tmp_path: Path, modal_emulator: ModalEmulator
) -> None:
    async def tale(fleet: Fleet) -> None:
        code = tmp_path / "code"
        code.mkdir()
        (code / "helper.py").write_text("WORD = 'helped'\n")
        spec = {
            "provider": "modal",
            "source": {"path": str(code)},
            "volumes": [{"name": "shared", "mountPath": "/data", "links": ["/root/alias"]}],
            "image": {"env": {"BAKED": "in"}},
            "env": {"OF_FUNCTION": "1", "BOTH": "function"},
        }
        fleet.apply_kind("Function", "embedder", spec)
        work = (
            "import os, helper\n"
            "save_to_volume(f'{os.environ[\"JOB_COMPLETION_INDEX\"]}.txt', helper.WORD)\n"
            "there = os.path.exists('/root/alias/0.txt')\n"
            "SUBMIT(env=[os.environ[n] for n in ('BAKED', 'OF_FUNCTION', 'BOTH')], there=there)"
        )
        fleet.apply(
            calling(work, env={"BOTH": "template"}), tasks={"completions": 2}, parallelism=1
        )
        await fleet.phase("Succeeded")
        assert fleet.results()[1] == {"env": ["in", "1", "template"], "there": True}

    calls_on_modal(tale)


# -- controllers that die --------------------------------------------------------------------------


def test_the_next_controller_follows_the_calls_of_the_one_before(
    calls_on_modal: Play, tally: Tally
) -> None:
    async def first(fleet: Fleet) -> None:
        code = (
            "\nimport time\nprint('half', flush=True)\ntime.sleep(2)\nprint('whole')\nSUBMIT(n=1)"
        )
        fleet.apply(called(tally.python(code)), tasks={"completions": 3}, parallelism=3)
        await begins(tally, 3)

    async def second(fleet: Fleet) -> None:
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1, "1/1": 1, "2/1": 1}
        assert len(Truth(fleet).inputs()) == 3
        assert fleet.results() == {0: {"n": 1}, 1: {"n": 1}, 2: {"n": 1}}

    calls_on_modal(first)
    calls_on_modal(second)


def test_price_and_state_are_those_of_functions(calls_on_modal: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        await fleet.provider._rates.refresh()
        sandbox = Template.model_validate({"python": "x", "resources": {"cpu": 4}})
        function = sandbox.model_copy(update={"runtime": "function"})
        dear, cheap = fleet.provider.usd_per_s(sandbox), fleet.provider.usd_per_s(function)
        assert dear is not None and cheap is not None
        assert fleet.provider._rates.table.updated == "live"
        assert 2.5 < dear / cheap < 3.5

    calls_on_modal(tale)


def remove(fleet: Fleet, name: str) -> None:
    from fleetctl.apply.write import commit

    uid = commit.delete_object(fleet.store, "Function", name, fleet.engine.state.clock.now_s())
    fleet.engine.state.poke(uid)


def message(fleet: Fleet, kind: str) -> str:
    import json

    rows = [row for row in fleet.store.resources.list() if row.kind == kind]
    return str(json.loads(rows[0].status or "{}").get("message")) if rows else ""
