"""Calls of functions on Modal: begun at most once whatever is lost, ended as they are told to.

The real engine, store, provider and SDK against the emulator. What was called and what began is
asked of the emulator and of the tasks themselves, not of the store.
"""

from __future__ import annotations

import asyncio

import pytest

from fleetctl.controllers.model import RunState
from fleetctl.providers.modal.functions import plain_pickle
from tests.emulators.modal.running import ModalEmulator
from tests.servers.modal_calling import Truth, called, dropped, until
from tests.servers.modal_fleet import Fleet, Play, Tally, begins

WAITS = "\nimport time\nprint('begun', flush=True)\ntime.sleep(600)\n"


# -- beginning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_spawn_whose_answers_are_lost_begins_the_work_once(
    calls_on_modal: Play, tally: Tally, when: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        # One call and all that the SDK tries again by itself.
        fleet.emulator.do("fault", rpc="FunctionMap", status="UNAVAILABLE", when=when, count=4)
        fleet.apply(called(tally.python("SUBMIT(n=1)")))
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert fleet.results() == {0: {"n": 1}}
        assert len(Truth(fleet).inputs()) == (2 if when == "after" else 1)

    calls_on_modal(tale)


def test_of_two_calls_of_a_run_the_second_follows_the_first(
    calls_on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("fault", rpc="FunctionMap", status="UNAVAILABLE", when="after", count=4)
        fleet.apply(
            called(tally.python("\nimport time\ntime.sleep(1)\nprint('once')\nSUBMIT(n=1)"))
        )
        await fleet.phase("Succeeded")
        # Which was first at the latch is the machine's choice; the other may still be coming.
        truth = Truth(fleet)
        await until(lambda: all(one["outcome"] for one in truth.inputs()), "both had ended")
        assert [one["outcome"] for one in truth.inputs()] == ["success", "success"]
        assert tally.begun == {"0/1": 1}
        (run,) = fleet.runs()
        assert (run.attempt, run.reason) == (1, "Completed")

    calls_on_modal(tale)


def test_an_answer_of_the_latch_that_is_lost_does_not_stop_the_work(
    calls_on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("fault", rpc="DictUpdate", status="UNAVAILABLE", when="after")
        fleet.apply(called(tally.python()))
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}

    calls_on_modal(tale)


@pytest.mark.parametrize(
    ("rpc", "skip"),
    [("DictUpdate", 0), ("DictGetOrCreate", 1)],  # the first look-up is the controller's own
)
def test_a_latch_that_is_refused_before_effect_costs_no_attempt(
    calls_on_modal: Play, tally: Tally, rpc: str, skip: int
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("fault", rpc=rpc, status="FAILED_PRECONDITION", count=2, skip=skip)
        fleet.apply(called(tally.python()))
        await fleet.phase("Succeeded")
        (run,) = fleet.runs()
        assert (run.attempt, run.reason) == (1, "Completed")
        assert tally.begun == {"0/1": 1}
        assert fleet.emulator.state()["faults"][0]["count"] == 0

    calls_on_modal(tale)


def test_a_container_that_never_reaches_the_latch_says_so_and_begins_nothing(
    calls_on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        # Deleted by another hand while the call is under way.
        fleet.emulator.do("fault", rpc="DictUpdate", status="NOT_FOUND", count=None)
        fleet.apply(called(tally.python()), maxInfraRetries=0)
        await fleet.phase("Failed")
        (run,) = fleet.runs()
        assert (run.state, run.reason) == (RunState.LOST, "LatchFailed")
        assert "cannot ask whether the run may begin" in run.message
        assert not tally.begun

    calls_on_modal(tale)


def test_a_preempted_run_is_lost_once_and_our_next_attempt_runs_it(
    calls_on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        truth = Truth(fleet)
        code = "\nimport os, time\nif os.environ['FLEETCTL_ATTEMPT'] == '1': time.sleep(600)"
        fleet.apply(called(tally.python(code)))
        await begins(tally)
        (container,) = truth.containers(live=True)
        fleet.emulator.do("preempt_container", task_id=container["task_id"])
        await fleet.phase("Succeeded")
        assert [run.state.value for run in fleet.runs()] == ["Lost", "Succeeded"]
        assert fleet.runs()[0].reason == "Preempted"
        assert tally.begun == {"0/1": 1, "0/2": 1}
        # Modal did begin the first one again; the work did not.
        assert len(truth.inputs()[0]["began"]) == 2

    calls_on_modal(tale)


def test_a_task_on_a_machine_that_is_taken_away_saves_its_work_in_its_grace(
    calls_on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        code = (
            "\nimport os, pathlib, signal, sys, time\nkept = pathlib.Path('/kept/step')\n"
            "def leave(*_):\n    kept.write_text('7')\n    sys.exit(0)\n"
            "if os.environ['FLEETCTL_ATTEMPT'] == '1':\n"
            "    signal.signal(signal.SIGTERM, leave)\n    print('armed', flush=True)\n"
            "    time.sleep(600)\nSUBMIT(step=kept.read_text())"
        )
        volumes = [{"name": "kept", "mountPath": "/kept"}]
        template = called(tally.python(code), volumes=volumes, terminationGracePeriodSeconds=20)
        fleet.apply(template)
        await begins(tally)
        (run,) = fleet.runs()
        await until(lambda: b"armed" in _log(fleet, run.uid, run.name), "it said so")
        (container,) = Truth(fleet).containers(live=True)
        fleet.emulator.do("preempt_container", task_id=container["task_id"], notice_s=30.0)
        await fleet.phase("Succeeded")
        assert [run.reason for run in fleet.runs()][:1] == ["Preempted"]
        assert fleet.results() == {0: {"step": "7"}}

    calls_on_modal(tale)


# -- ending ----------------------------------------------------------------------------------------


def test_a_deleted_job_ends_its_calls_and_nothing_of_it_is_left(
    calls_on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        truth = Truth(fleet)
        fleet.apply(called(tally.python(WAITS)), tasks={"completions": 3}, parallelism=3)
        await begins(tally, 3)
        (uid,) = {run.uid for run in fleet.runs()}
        assert truth.latches(uid) > 0
        fleet.delete()
        await dropped(fleet)
        assert {one["state"] for one in truth.inputs()} == {"done"}
        assert (truth.apps(), truth.containers(live=True)) == ([], [])
        assert truth.latches(uid) == 0

    calls_on_modal(tale)


def test_a_stopped_run_may_save_its_work_in_its_grace(calls_on_modal: Play, tally: Tally) -> None:
    async def tale(fleet: Fleet) -> None:
        code = (
            "\nimport os, signal, sys, time\ndef leave(*_):\n    report(step=1, saved=1)\n"
            "    print('saved', flush=True)\n    sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, leave)\nprint('begun', flush=True)\ntime.sleep(600)"
        )
        fleet.apply(called(tally.python(code), terminationGracePeriodSeconds=60))
        await begins(tally)
        (run,) = fleet.runs()
        await until(lambda: b"begun" in _log(fleet, run.uid, run.name), "it said so")
        fleet.apply(called(tally.python(code), terminationGracePeriodSeconds=60), suspend=True)
        await fleet.phase("Suspended")
        await until(lambda: fleet.runs()[0].state.value == "Stopped", "it was stopped")
        assert _log(fleet, run.uid, run.name) == b"begun\nsaved\n"
        (one,) = Truth(fleet).inputs()
        assert one["outcome"] == "success"

    calls_on_modal(tale)


def test_a_stop_of_a_call_that_waits_takes_it_out_of_the_line(
    calls_on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("settings", gpu_capacity={"H100": 0})
        fleet.apply(called(tally.python(), resources={"gpu": "H100"}))
        status = await fleet.waits("Queued")
        assert "waiting for H100:1 since" in status["message"]
        fleet.delete()
        await dropped(fleet)
        fleet.emulator.do("settings", gpu_capacity={"H100": 1})
        assert [one["outcome"] for one in Truth(fleet).inputs()] == ["terminated"]
        assert not tally.begun

    calls_on_modal(tale)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os, signal; os.kill(int(os.popen('pgrep -o -f function_runner').read()), 9)", ""),
        ("import sys; sys.exit(3)", "ExitCode:3"),
        ("import os; os.kill(os.getpid(), 9)", "Signal:KILL"),
    ],
)
def test_a_failure_of_the_task_is_told_apart_from_one_of_its_container(
    calls_on_modal: Play, code: str, reason: str
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply(called(code), maxInfraRetries=0)
        await fleet.phase("Failed")
        (run,) = fleet.runs()
        if reason:
            assert (run.state.value, run.reason) == ("Failed", reason)
        else:
            # One that used up its memory would do so wherever it is begun again.
            ends = {"OOMKilled": "Failed", "ContainerFailed": "Lost"}
            assert run.state.value == ends[run.reason]
            assert "exit" in run.message

    calls_on_modal(tale)


def test_a_call_that_somebody_cancelled_is_lost_and_runs_again(
    calls_on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        truth = Truth(fleet)
        code = "\nimport os, time\nif os.environ['FLEETCTL_ATTEMPT'] == '1': time.sleep(600)"
        fleet.apply(called(tally.python(code)))
        await begins(tally)
        await asyncio.to_thread(_cancel, fleet.emulator, truth.inputs()[0]["call_id"])
        await fleet.phase("Succeeded")
        assert [run.reason for run in fleet.runs()] == ["Terminated", "Completed"]

    calls_on_modal(tale)


def test_outputs_that_expired_before_anybody_read_them_cost_an_attempt(
    calls_on_modal: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("fault", rpc="FunctionGetOutputs", status="UNAVAILABLE", count=None)
        fleet.apply(called(tally.python()))
        truth = Truth(fleet)
        await until(lambda: [one["state"] for one in truth.inputs()] == ["done"], "it ended")
        fleet.emulator.do("expire_call", call_id=truth.inputs()[0]["call_id"])
        fleet.emulator.do("clear_faults")
        await fleet.phase("Succeeded")
        assert [run.state.value for run in fleet.runs()] == ["Lost", "Succeeded"]

    calls_on_modal(tale)


# -- what comes back -------------------------------------------------------------------------------


def test_output_metrics_and_a_result_come_back_as_from_a_sandbox(calls_on_modal: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply(
            called(
                "for step in range(3):\n    report(step=step, loss=1 / (1 + step))\n"
                "print('x' * 100)\nSUBMIT(text='é' * 1000)"
            )
        )
        await fleet.phase("Succeeded")
        (run,) = fleet.runs()
        assert [it.value for it in fleet.store.runs.metrics_of(run.name)] == [1.0, 0.5, 1 / 3]
        assert fleet.results() == {0: {"text": "é" * 1000}}
        assert _log(fleet, run.uid, run.name) == b"x" * 100 + b"\n"

    calls_on_modal(tale)


def test_of_more_output_than_a_call_may_bring_the_beginning_and_the_end_are_kept(
    calls_on_modal: Play,
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply(
            called("print('first')\nfor _ in range(3000): print('y' * 9999)\nprint('last')")
        )
        await fleet.phase("Succeeded")
        (run,) = fleet.runs()
        log = _log(fleet, run.uid, run.name)
        assert log.startswith(b"first\n")
        assert log.endswith(b"last\n")
        assert 2_000_000 < len(log) < 12_600_000

    calls_on_modal(tale)


def test_a_result_above_the_limit_fails_and_names_volumes(calls_on_modal: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply(called("SUBMIT(text='x' * 300_000)"))
        await fleet.phase("Failed")
        (run,) = fleet.runs()
        assert run.reason == "ResultInvalid"
        assert "volume" in run.message

    calls_on_modal(tale)


class _Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit",))


def test_an_answer_that_holds_code_is_read_as_no_answer() -> None:
    import pickle

    assert plain_pickle.unpickle_frames(pickle.dumps(_Hostile())) is None
    assert plain_pickle.unpickle_frames(pickle.dumps(b"no frames")) is None
    with pytest.raises(plain_pickle.NotPlainData):
        plain_pickle.unpickle_plain(pickle.dumps(print))
    assert plain_pickle.unpickle_plain(pickle.dumps({"a": [1, b"x"]}, 4)) == {"a": [1, b"x"]}


def _cancel(emulator: ModalEmulator, call_id: str) -> None:
    """As somebody else of the same workspace."""
    import modal

    client = emulator.client()
    modal.FunctionCall.from_id(call_id, client=client).cancel()
    client.close()


def _log(fleet: Fleet, uid: str, run: str) -> bytes:
    """What is on the disk, as `fleetctl logs` reads it."""
    from fleetctl.providers.paths import runs_dir
    from fleetctl.providers.rundir.run_log_reader import RunLogReader

    reader = RunLogReader(runs_dir(fleet.provider._home, "modal", uid), run)
    found, offset = [], 0
    while data := reader.read(offset)[0]:
        found.append(data)
        offset = reader.read(offset)[1]
    return b"".join(found)
