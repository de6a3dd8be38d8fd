"""The engine against a provider with a ground truth: what it does, and what it survives."""

from __future__ import annotations

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Metric, RunState
from tests.unit.engine.fake_world import HANG, SECOND_LOOK_S, Fleet, tasks


async def test_a_job_runs_to_its_end_within_its_parallelism() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(5, parallelism=2))
        assert fleet.local.working() == [0, 1]
        assert fleet.status("job")["phase"] == "Running"
        for index in range(5):
            assert len(fleet.local.working()) <= 2
            fleet.local.finish(index)
            await fleet.settle()
        status = fleet.status("job")
        assert (status["phase"], status["succeeded"], status["active"]) == ("Succeeded", 5, 0)
        assert status["completedIndexes"] == "0-4"
        assert [run.state for run in fleet.runs("job")] == [RunState.SUCCEEDED] * 5


async def test_applying_the_same_twice_changes_nothing() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        before = fleet.row("job")
        await fleet.apply("BatchJob", "job", tasks(1))
        assert fleet.row("job") == before


async def test_the_intent_is_durable_before_the_provider_hears_of_it() -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [HANG]
        await fleet.apply("BatchJob", "job", tasks(1))
        assert fleet.local.orders == {}
        assert [run.state for run in fleet.runs("job")] == [RunState.STARTING]


async def test_a_lost_reply_is_asked_for_again_and_the_work_begins_once() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        [run] = fleet.runs("job")
        await fleet.crash()
        fleet.local.finish(0)
        await fleet.settle()
        assert [it.name for it in fleet.runs("job")] == [run.name]
        assert fleet.status("job")["phase"] == "Succeeded"


async def test_a_crash_in_the_middle_of_a_start_adopts_what_was_begun() -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [HANG]
        await fleet.apply("BatchJob", "job", tasks(1))
        await fleet.crash()
        await fleet.settle()
        assert fleet.local.working() == [0]
        assert len(fleet.runs("job")) == 1


async def test_what_ended_while_the_controller_was_away_is_taken_in() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(3))
        for index in range(3):
            fleet.local.finish(index)
        await fleet.crash()
        await fleet.settle()
        assert fleet.status("job")["phase"] == "Succeeded"


async def test_a_start_that_breaks_is_asked_for_again_later() -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [RuntimeError("a bug of the provider")]
        await fleet.apply("BatchJob", "job", tasks(1))
        assert fleet.status("job")["reason"] == "StartUnknown"
        assert fleet.local.working() == []
        await fleet.later(2)
        assert fleet.local.working() == [0]
        assert fleet.runs("job")[0].attempt == 1


async def test_an_unavailable_provider_is_waited_for_and_costs_no_attempt() -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [Unavailable("no room", retry_after_s=40, reason="NoRoom")]
        await fleet.apply("BatchJob", "job", tasks(1))
        status = fleet.status("job")
        assert (status["phase"], status["reason"], status["message"]) == (
            "Pending",
            "NoRoom",
            "no room",
        )
        await fleet.later(39)
        assert fleet.local.working() == []
        await fleet.later(2)
        assert fleet.local.working() == [0]
        assert fleet.runs("job")[0].attempt == 1


async def test_a_refusal_fails_the_job_with_its_words_and_is_not_retried() -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [Refused("there is no Python 3.99", hint="use 3.12")] * 2
        await fleet.apply("BatchJob", "job", tasks(1))
        await fleet.later(SECOND_LOOK_S)
        status = fleet.status("job")
        assert (status["phase"], status["reason"]) == ("Failed", "Refused")
        assert (status["message"], status["hint"]) == ("there is no Python 3.99", "use 3.12")
        await fleet.later(1e5)
        assert fleet.local.orders == {}


async def test_a_failed_task_is_retried_after_its_backoff() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1, backoffLimitPerIndex=1))
        fleet.local.finish(0, ok=False)
        await fleet.settle()
        assert fleet.local.working() == []
        await fleet.later(2)
        assert fleet.local.working() == [0]
        fleet.local.finish(0)
        await fleet.settle()
        status = fleet.status("job")
        assert (status["phase"], status["retries"]) == ("Succeeded", 1)


async def test_a_run_that_vanished_is_lost_and_starts_again_at_once() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        name = fleet.local.run(0)
        fleet.local.boxes[name].alive = False
        fleet.local.boxes[name].working = ""
        fleet.engine.notify(name)
        await fleet.settle()
        assert [run.state for run in fleet.runs("job")] == [RunState.LOST, RunState.RUNNING]


async def test_a_push_about_an_unknown_run_is_ignored() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        fleet.engine.notify("nobody")
        await fleet.settle()
        assert fleet.local.working() == [0]


async def test_metrics_are_kept_once_however_often_they_are_seen() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        name = fleet.local.run(0)
        fleet.local.metrics[name] = [Metric(0, 0, "loss", 0.5, 1.0)]
        for _ in range(3):
            fleet.engine.notify(name)
            await fleet.settle()
        fleet.local.finish(
            0, metrics=(Metric(0, 0, "loss", 0.5, 1.0), Metric(1, 1, "loss", 0.2, 2))
        )
        await fleet.settle()
        assert [metric.value for metric in fleet.store.runs.metrics_of(name)] == [0.5, 0.2]


async def test_a_sweep_takes_its_metric_from_reports_across_a_crash() -> None:
    search = {
        "method": "grid",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"x": {"values": [1, 2]}},
    }
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "sw", {"template": {"python": "pass"}, "search": search})
        for index, value in enumerate((0.5, 0.2)):
            name = fleet.local.run(index)
            fleet.local.metrics[name] = [Metric(0, 0, "loss", value, 1.0)]
            fleet.engine.notify(name)
        await fleet.settle()
        await fleet.crash()
        for index in range(2):
            fleet.local.finish(index)
        await fleet.settle()
        assert fleet.status("sw")["best"]["metric"]["value"] == 0.2


# -- stopping and deleting -------------------------------------------------------------------------


async def test_deleted_means_confirmed_gone() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(2))
        fleet.local.deaf = True
        await fleet.delete("BatchJob", "job")
        assert len(fleet.local.working()) == 2
        assert fleet.status("job")["phase"] == "Deleting"
        fleet.local.deaf = False
        await fleet.later(60)
        fleet.engine.notify(fleet.local.run(0))
        await fleet.settle()
        assert fleet.local.working() == []
        assert fleet.names() == []
        assert [keep_logs for _, keep_logs in fleet.local.freed] == [False]


async def test_a_stop_that_fails_is_asked_for_again() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        fleet.local.script["stop"] = [ConnectionError("reset"), Unavailable("busy")]
        await fleet.delete("BatchJob", "job")
        assert fleet.local.working() == [0]
        for _ in range(4):
            await fleet.later(5)
        assert fleet.names() == []


async def test_deleting_while_a_start_is_under_way_leaves_nothing() -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [HANG]
        await fleet.apply("BatchJob", "job", tasks(1))
        await fleet.delete("BatchJob", "job")
        assert fleet.names() == []
        assert fleet.local.working() == []


async def test_suspending_while_a_start_is_under_way_and_resuming_begins_it_once() -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [HANG]
        await fleet.apply("BatchJob", "job", tasks(1))
        await fleet.apply("BatchJob", "job", tasks(1, suspend=True))
        assert fleet.status("job")["phase"] == "Suspended"
        assert fleet.runs("job")[0].state is RunState.STOPPED
        await fleet.apply("BatchJob", "job", tasks(1))
        assert fleet.local.working() == [0]
        assert [run.attempt for run in fleet.runs("job")] == [1, 2]


async def test_a_name_that_is_applied_again_is_another_object() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        old = fleet.row("job").uid
        fleet.local.deaf = True
        await fleet.delete("BatchJob", "job")
        await fleet.apply("BatchJob", "job", tasks(1))
        assert fleet.row("job").uid != old
        assert len(fleet.local.working()) == 2
        fleet.local.deaf = False
        await fleet.later(60)
        fleet.engine.notify(fleet.local.stops[0])
        await fleet.settle()
        assert [box.uid for box in fleet.local.boxes.values() if box.alive] == [
            fleet.row("job").uid
        ]


async def test_an_object_whose_provider_is_not_used_is_deleted_although_another_is_away() -> None:
    async with Fleet(("local", "mars")) as fleet:
        fleet.providers["mars"].script["remove_scratch"] = [ConnectionError("away")] * 100
        await fleet.apply("BatchJob", "job", tasks(1))
        await fleet.delete("BatchJob", "job")
        assert fleet.names() == []


async def test_scratch_is_freed_after_its_time_across_a_restart_and_only_once() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1, ttlSecondsAfterFinished=100))
        fleet.local.finish(0)
        await fleet.settle()
        await fleet.later(50)
        await fleet.crash()
        await fleet.later(49)
        assert fleet.local.freed == []
        await fleet.later(2)
        assert fleet.local.freed == [(fleet.row("job").uid, True)]
        await fleet.crash()
        await fleet.later(1_000)
        assert len(fleet.local.freed) == 1
        assert fleet.status("job")["phase"] == "Succeeded"


async def test_a_deadline_falls_without_any_event() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1, parallelism=0, activeDeadlineSeconds=60))
        await fleet.later(61)
        assert fleet.status("job")["reason"] == "DeadlineExceeded"


# -- sandboxes that are used again -----------------------------------------------------------------


async def test_tasks_share_a_sandbox_and_it_is_closed_after_the_last() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(3, parallelism=1, sandbox={"reuse": "all"}))
        for index in range(3):
            assert fleet.local.working() == [index]
            fleet.local.finish(index)
            await fleet.settle()
        assert len(fleet.local.boxes) == 1
        assert not any(box.alive for box in fleet.local.boxes.values())
        assert fleet.status("job")["phase"] == "Succeeded"


async def test_a_refusal_in_an_open_sandbox_leaves_no_sandbox_behind() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(2, parallelism=1, sandbox={"reuse": "all"}))
        fleet.local.script["start"] = [Refused("there is no such user")] * 2
        fleet.local.finish(0)
        await fleet.settle()
        await fleet.later(SECOND_LOOK_S)
        await fleet.later(100)
        assert not any(box.alive for box in fleet.local.boxes.values())
        assert fleet.status("job")["reason"] == "Refused"


async def test_an_open_sandbox_is_closed_when_the_job_is_deleted() -> None:
    async with Fleet() as fleet:
        spec = tasks(2, parallelism=1, backoffLimitPerIndex=1, sandbox={"reuse": "all"})
        await fleet.apply("BatchJob", "job", spec)
        fleet.local.finish(0)
        await fleet.settle()
        await fleet.delete("BatchJob", "job")
        assert not any(box.alive for box in fleet.local.boxes.values())
        assert fleet.names() == []
