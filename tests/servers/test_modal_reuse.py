"""Tasks that take turns in an open sandbox at Modal: what each further one costs, and what becomes
of it when its stream or its sandbox is lost. The real engine, provider and SDK.
"""

from __future__ import annotations

import asyncio
from textwrap import indent
from typing import Any

import pytest

from tests.contracts.provider_worlds import eventually
from tests.emulators.driving.gates import Gate, gate
from tests.servers.modal_fleet import Fleet, Play, Tally, begins
from tests.servers.modal_volumes import committed, made, put

IN_TURN = {"parallelism": 1, "sandbox": {"reuse": "all"}}
NO_RETRY = {"backoffLimitPerIndex": 0, "maxInfraRetries": 0}
COUNTS = "\nseen = globals().get('seen', 0) + 1\nprint('task', seen)\nSUBMIT(seen=seen)"
WAITS = "\nimport os, time\nif os.environ['JOB_COMPLETION_INDEX'] == '1': time.sleep(1.5)"


def test_a_further_task_of_an_open_sandbox_costs_one_call(on_modal: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        before = fleet.emulator.rpcs()
        fleet.apply({"python": COUNTS}, tasks={"completions": 5}, **IN_TURN)
        await fleet.phase("Succeeded")
        assert [one["seen"] for one in fleet.results().values()] == [1, 2, 3, 4, 5]
        after = fleet.emulator.rpcs()
        spent = {name: count - before.get(name, 0) for name, count in after.items()}
        assert spent["SandboxCreateV2"] == spent["TaskExecStart"] == 1
        assert spent["TaskExecStdinWrite"] + spent.get("TaskExecStdinWriteStream", 0) == 4
        await fleet.nothing_lives()

    on_modal(tale)


def test_a_stream_lost_between_or_during_turns_repeats_and_loses_nothing(
    on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(WAITS + COUNTS)}, tasks={"completions": 4}, **IN_TURN)
        await begins(tally, 2)
        fleet.emulator.do("lose", endpoint="router", refuse_s=0.2)
        await fleet.phase("Succeeded")
        assert [one["seen"] for one in fleet.results().values()] == [1, 2, 3, 4]
        assert tally.begun == {f"{index}/1": 1 for index in range(4)}
        assert len(fleet.made()) == 1
        await fleet.nothing_lives()

    on_modal(tale)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_order_whose_answer_is_lost_is_worked_on_once(
    on_modal: Play, tally: Tally, when: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do(
            "fault", rpc="TaskExecStdinWrite*", status="INTERNAL", when=when, count=30
        )
        fleet.apply({"python": tally.python(COUNTS)}, tasks={"completions": 3}, **IN_TURN)
        await fleet.phase("Succeeded")
        assert tally.begun == {f"{index}/1": 1 for index in range(3)}
        assert sorted(fleet.results()) == [0, 1, 2]
        await fleet.nothing_lives()

    on_modal(tale)


def test_a_sandbox_that_ends_between_two_turns_costs_no_attempt(
    on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(COUNTS)}, tasks={"completions": 2}, **IN_TURN)
        # Only the second order goes over stdin; its sandbox is gone by then.
        fleet.emulator.do("fault", rpc="TaskExecStdinWrite*", delay_s=1.0, count=1)

        async def one_is_done() -> bool:
            return len(fleet.results()) == 1

        await eventually(one_is_done, "the first task gave its result")
        for box in fleet.live():
            fleet.emulator.do("end_sandbox", sandbox_id=box["sandbox_id"])
        await fleet.phase("Succeeded")
        assert {key.partition("/")[0] for key in tally.begun} == {"0", "1"}
        assert max(tally.begun.values()) == 1
        await fleet.nothing_lives()

    on_modal(tale)


def on_volume(code: str) -> dict[str, Any]:
    return {"python": code, "volumes": [{"name": "turns", "mountPath": "/data"}]}


WRITES = "\nsave_to_volume(os.environ['JOB_COMPLETION_INDEX'], 'kept')\nSUBMIT(ok=True)"
LISTS = "\nimport os\nSUBMIT(seen=sorted(os.listdir('/data')))"


def waits(index: int, door: Gate) -> str:
    return f"if os.environ['JOB_COMPLETION_INDEX'] == '{index}':\n" + indent(door.python(), "    ")


def test_a_further_task_sees_what_others_committed_to_its_volume(
    on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        with gate() as door:
            template = on_volume(tally.python(waits(0, door) + LISTS))
            fleet.apply(template, tasks={"completions": 2}, **IN_TURN)
            await begins(tally)
            await asyncio.to_thread(put, fleet, "turns", "new.txt")
            door.open()
            await fleet.phase("Succeeded")
        assert fleet.results() == {0: {"seen": []}, 1: {"seen": ["new.txt"]}}
        assert len(fleet.made()) == 1
        await fleet.nothing_lives()

    on_modal(tale)


def test_10_open_files_prevent_a_reload_and_the_further_task_gets_a_fresh_sandbox(
    on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        with gate() as door:
            opens = "kept = open('/data/' + os.environ['JOB_COMPLETION_INDEX'], 'w')\n"
            template = on_volume(tally.python(opens + waits(0, door) + LISTS))
            fleet.apply(template, tasks={"completions": 2}, **NO_RETRY, **IN_TURN)
            await begins(tally)
            await asyncio.to_thread(put, fleet, "turns", "new.txt")
            door.open()
            await fleet.phase("Succeeded")
        assert fleet.results()[1] == {"seen": ["0", "1", "new.txt"]}
        assert len(fleet.made()) == 2
        assert sorted(tally.begun.values()) == [1, 1]
        assert [run.reason for run in fleet.runs()] == ["Completed", "SandboxClosed", "Completed"]
        await fleet.nothing_lives()

    on_modal(tale)


@pytest.mark.parametrize("status", ["INTERNAL", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"])
def test_a_reload_that_modal_does_not_answer_costs_no_attempt(
    on_modal: Play, tally: Tally, status: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        fault = {"rpc": "TaskReloadVolumes", "status": status, "retry_after_s": 0.1, "count": 2}
        fleet.emulator.do("fault", **fault)
        template = on_volume(tally.python(LISTS))
        fleet.apply(template, tasks={"completions": 2}, **NO_RETRY, **IN_TURN)
        await fleet.phase("Succeeded")
        assert sorted(tally.begun.values()) == [1, 1]
        assert len(fleet.made()) == (2 if status == "FAILED_PRECONDITION" else 1)
        await fleet.nothing_lives()

    on_modal(tale)


def test_on_a_volume_of_version_1_each_task_has_a_sandbox_whose_end_commits_what_it_wrote(
    on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        await asyncio.to_thread(made, fleet, "turns", 1)
        with gate() as door:
            template = on_volume(tally.python(waits(1, door) + WRITES))
            fleet.apply(template, tasks={"completions": 2}, **NO_RETRY, **IN_TURN)
            await begins(tally, 2)
            assert committed(fleet, "turns") == {"0": "kept"}
            door.open()
            status = await fleet.phase("Succeeded")
        assert committed(fleet, "turns") == {"0": "kept", "1": "kept"}
        assert "of version 1, as `turns` is" in status["isolation"]
        assert tally.begun == {"0/1": 1, "1/1": 1}
        await fleet.nothing_lives()

    on_modal(tale)
