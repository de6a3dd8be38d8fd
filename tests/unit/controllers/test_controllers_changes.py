"""A spec that changes on a live object, and sandboxes that are used again."""

from __future__ import annotations

from fleetctl.controllers.model import RunState
from fleetctl.controllers.planning.plan import CloseSandbox, Phase, Start, Stop
from tests.unit.controllers.play import Play, job

OTHER = {"python": "SUBMIT(ok=False)"}
ROOMY = {**job()["template"], "resources": {"memory": "1Gi"}}  # another sandbox, the same work


def items(*values: object) -> dict[str, object]:
    return {"items": [{"x": value} for value in values]}


def tasks(*values: object, **fields: object) -> dict[str, object]:
    spec = job(tasks=items(*values), **fields)
    del spec["completions"]
    return spec


def starts(play: Play) -> list[int]:
    return [a.index for a in play.turn().actions if isinstance(a, Start)]


def stops(play: Play) -> list[str]:
    return [a.reason for a in play.turn().actions if isinstance(a, Stop)]


def test_more_parallelism_starts_more_at_once() -> None:
    play = Play(job(completions=8, parallelism=2))
    play.turn()
    play.change(parallelism=5)
    assert starts(play) == [2, 3, 4]


def test_less_parallelism_stops_the_youngest_and_they_run_again_later() -> None:
    play = Play(job(completions=5, parallelism=1, backoffLimitPerIndex=0))
    play.turn()
    play.now_s += 1
    play.change(parallelism=4)
    play.turn()
    play.change(parallelism=2)
    assert stops(play) == ["ScaledDown", "ScaledDown"]
    assert play.live(0).state is not RunState.STOPPING
    play.confirm()
    assert len(play.active) == 2
    play.succeed(*play.active)
    assert starts(play) == [2, 3]
    assert play.live(2).attempt == 2


def test_the_youngest_are_the_same_after_a_restart() -> None:
    play = Play(job(completions=3, parallelism=2, backoffLimitPerIndex=5))
    play.turn()
    play.fail(0)
    play.now_s += 10
    play.turn()
    play.restart()
    play.change(parallelism=1)
    play.turn()
    assert play.live(0).state is RunState.STOPPING
    assert play.live(1).state is not RunState.STOPPING


def test_parallelism_down_to_zero_and_up_again_ends_as_if_nothing_had_been() -> None:
    play = Play(job(completions=4, parallelism=4))
    play.turn()
    play.change(parallelism=0)
    play.turn()
    play.confirm()
    assert play.turn().message == "spec.parallelism is 0"
    play.change(parallelism=4)
    assert starts(play) == [0, 1, 2, 3]


def test_more_tasks_keep_what_is_done() -> None:
    play = Play(job(completions=2))
    play.turn()
    play.succeed(0, 1)
    assert play.turn().phase is Phase.SUCCEEDED
    play.change(completions=4)
    assert starts(play) == [2, 3]
    play.succeed(2, 3)
    assert play.turn().message == "4 of 4 tasks succeeded"


def test_more_tasks_on_a_finished_job_get_a_deadline_of_their_own() -> None:
    play = Play(job(completions=1, activeDeadlineSeconds=60))
    play.turn()
    play.succeed(0)
    play.turn()
    play.now_s += 10_000
    play.change(completions=2)
    assert starts(play) == [1]
    play.now_s += 59
    assert play.turn().reason == "InProgress"


def test_a_job_that_was_too_late_goes_on_when_its_deadline_is_raised() -> None:
    play = Play(job(completions=1, activeDeadlineSeconds=60))
    play.turn()
    play.now_s += 60
    play.settle()
    assert play.status["phase"] == "Failed"
    play.change(activeDeadlineSeconds=120)
    assert starts(play) == [0]


def test_fewer_tasks_stop_what_is_no_longer_wanted_and_forget_it() -> None:
    play = Play(job(completions=4, parallelism=4))
    play.turn()
    play.succeed(0)
    play.change(completions=2)
    assert stops(play) == ["NoLongerWanted", "NoLongerWanted"]
    play.confirm()
    play.turn()
    assert play.active == [1]
    play.succeed(1)
    plan = play.turn()
    assert (plan.phase, plan.message) == (Phase.SUCCEEDED, "2 of 2 tasks succeeded")


def test_a_success_outside_of_the_wish_does_not_count() -> None:
    play = Play(job(completions=4, parallelism=4))
    play.turn()
    play.succeed(3)
    play.change(completions=3)
    assert len(play.history.succeeded) == 0
    play.succeed(0, 1)
    assert play.turn().phase is not Phase.SUCCEEDED


def test_tasks_that_come_back_into_the_wish_are_not_run_twice() -> None:
    play = Play(job(completions=3))
    play.turn()
    play.succeed(2)
    play.change(completions=2)
    play.change(completions=3)
    assert 2 in play.history.succeeded
    assert starts(play) == []


def test_a_changed_item_runs_again_and_the_others_do_not() -> None:
    play = Play(tasks(1, 2, 3))
    play.turn()
    play.succeed(0, 1, 2)
    play.turn()
    play.change(tasks=items(1, 20, 3))
    assert starts(play) == [1]
    assert play.live(1).attempt == 2
    assert play.live(1).params == '{"x":20}'


def test_a_live_run_of_a_changed_item_is_replaced_under_either_rollout() -> None:
    for rollout in ("Replace", "FinishRunning"):
        play = Play(tasks(1, 2, rollout=rollout))
        play.turn()
        play.change(tasks=items(1, 20))
        assert stops(play) == ["Superseded"]
        play.confirm()
        assert starts(play) == [1]


def test_a_changed_template_keeps_finished_tasks_and_replaces_live_ones() -> None:
    play = Play(job(completions=3))
    play.turn()
    play.succeed(0)
    play.change(template=OTHER)
    assert stops(play) == ["Superseded", "Superseded"]
    play.confirm()
    assert starts(play) == [1, 2]
    assert {play.live(1).attempt, play.live(2).attempt} == {2}


def test_finish_running_leaves_live_runs_alone_and_starts_the_rest_anew() -> None:
    play = Play(job(completions=3, parallelism=2, rollout="FinishRunning"))
    play.turn()
    before = play.live(0).template_hash
    play.change(template=OTHER)
    assert stops(play) == []
    play.succeed(0)
    assert starts(play) == [2]
    assert play.live(2).template_hash != before


def test_the_failure_of_an_older_template_does_not_count_against_the_new_one() -> None:
    play = Play(job(completions=1, rollout="FinishRunning"))
    play.turn()
    play.change(template=OTHER)
    play.fail(0)
    assert len(play.history.failed) == 0
    assert starts(play) == [0]
    play.fail(0)
    assert play.turn().phase is Phase.FAILED


def test_a_failed_job_runs_its_failed_tasks_again_with_more_memory() -> None:
    play = Play(job(completions=2))
    play.turn()
    play.succeed(0)
    play.fail(1)
    assert play.turn().phase is Phase.FAILED
    play.change(template=ROOMY)
    assert starts(play) == [1]


def test_another_program_runs_finished_tasks_again_and_counts_them_as_outdated() -> None:
    play = Play(job(completions=3, parallelism=2))
    play.turn()
    play.succeed(0, 1)
    assert starts(play) == [2]
    play.change(template=OTHER)
    assert (len(play.history.succeeded), sorted(play.history.outdated)) == (0, [0, 1])
    assert stops(play) == ["Superseded"]
    play.confirm()
    assert (starts(play), play.active) == ([1], [0, 1])
    assert play.status["outdated"] == 2
    play.succeed(0)
    assert sorted(play.history.outdated) == [1]
    play.restart()
    assert (sorted(play.history.outdated), str(play.history.succeeded)) == ([1], "0")


def test_an_edit_that_is_taken_back_runs_again_what_ran_in_between() -> None:
    play = Play(job(completions=2))
    play.turn()
    play.succeed(0, 1)
    play.change(template=OTHER)
    play.turn()
    play.succeed(0, 1)
    assert play.turn().phase is Phase.SUCCEEDED
    play.change(template=job()["template"])
    assert starts(play) == [0, 1]


def test_on_change_keep_counts_outdated_tasks_and_says_how_many() -> None:
    play = Play(job(completions=3, parallelism=2, onChange="Keep"))
    play.turn()
    play.succeed(0)
    play.change(template=OTHER)
    play.settle()
    play.succeed(*play.active)
    play.settle()
    assert (play.status["phase"], play.status["outdated"]) == ("Succeeded", 1)
    play.change(onChange="Rerun")
    assert starts(play) == [0]


def test_work_that_was_let_end_counts_until_the_program_changes_again() -> None:
    play = Play(job(completions=2, rollout="FinishRunning"))
    play.turn()
    play.change(template=OTHER)
    play.succeed(0, 1)
    play.settle()
    assert (play.status["phase"], play.status["outdated"]) == ("Succeeded", 2)
    play.change(parallelism=1)
    assert play.settle().phase is Phase.SUCCEEDED
    play.now_s += 1
    play.change(template={"python": "SUBMIT(ok=2)"})
    assert starts(play) == [0]


def test_a_longer_timeout_replaces_nothing() -> None:
    play = Play(job(completions=1))
    play.turn()
    play.change(template={**job()["template"], "timeoutSeconds": 600})
    assert play.turn().actions == ()


def test_higher_limits_give_a_failed_task_another_attempt() -> None:
    play = Play(job(completions=1))
    play.turn()
    play.fail(0)
    assert play.turn().phase is Phase.FAILED
    play.change(backoffLimitPerIndex=1)
    play.now_s += 10
    assert starts(play) == [0]
    assert play.live(0).attempt == 2


def test_lower_limits_give_up_what_has_used_them_up() -> None:
    play = Play(job(completions=1, backoffLimitPerIndex=5))
    play.turn()
    play.fail(0)
    play.change(backoffLimitPerIndex=0)
    assert play.turn().phase is Phase.FAILED


# -- sandboxes that are used again -----------------------------------------------------------------


def test_a_sandbox_is_used_again_as_often_as_allowed_and_then_replaced() -> None:
    play = Play(job(completions=3, parallelism=1, sandbox={"reuse": 2}))
    play.turn()
    play.succeed(0, sandbox_open=True)
    play.turn()
    assert play.live(1).sandbox == "run-0-1"
    play.succeed(1, sandbox_open=True)
    plan = play.turn()
    assert [a.sandbox for a in plan.actions if isinstance(a, CloseSandbox)] == ["run-0-1"]
    assert play.active == []
    play.confirm()
    play.turn()
    assert play.live(2).sandbox == "run-2-1"


def test_the_last_task_of_a_sandbox_is_told_that_nobody_follows() -> None:
    play = Play(job(completions=3, parallelism=1, sandbox={"reuse": 2}))
    [first] = play.turn().actions
    assert isinstance(first, Start) and first.reusable
    play.succeed(0, sandbox_open=True)
    [second] = play.turn().actions
    assert isinstance(second, Start) and not second.reusable


def test_reuse_all_runs_everything_in_one_sandbox() -> None:
    play = Play(job(completions=20, parallelism=1, sandbox={"reuse": "all"}))
    for index in range(20):
        play.turn()
        assert play.live(index).sandbox == "run-0-1"
        play.succeed(index, sandbox_open=True)
    plan = play.turn()
    assert [type(action) for action in plan.actions] == [CloseSandbox]
    assert plan.phase is Phase.RUNNING
    play.confirm()
    assert play.turn().phase is Phase.SUCCEEDED


def test_a_new_template_gets_new_sandboxes() -> None:
    play = Play(job(completions=2, parallelism=1, sandbox={"reuse": "all"}))
    play.turn()
    play.succeed(0, sandbox_open=True)
    play.change(template=ROOMY)
    plan = play.turn()
    assert [type(action) for action in plan.actions] == [CloseSandbox]
    play.confirm()
    play.turn()
    assert play.live(1).sandbox == "run-1-1"


def test_idle_sandboxes_are_closed_when_there_is_no_task_for_them() -> None:
    play = Play(job(completions=3, parallelism=3, sandbox={"reuse": "all"}))
    play.turn()
    play.succeed(0, 1, sandbox_open=True)
    plan = play.turn()
    assert len([a for a in plan.actions if isinstance(a, CloseSandbox)]) == 2
    assert play.active == [2]


def test_idle_sandboxes_above_a_lowered_parallelism_are_closed() -> None:
    play = Play(job(completions=20, parallelism=8, sandbox={"reuse": "all"}))
    play.turn()
    play.succeed(*range(8), sandbox_open=True)
    play.change(parallelism=2)
    play.settle()
    assert len(play.active) == 2
    assert len(play.history.sandboxes) == 2


def test_a_sandbox_that_is_being_closed_takes_no_task() -> None:
    play = Play(
        job(
            completions=2,
            parallelism=2,
            backoffLimitPerIndex=1,
            sandbox={"reuse": "all"},
        )
    )
    play.turn()
    play.fail(0)
    play.succeed(1, sandbox_open=True)
    assert [type(a) for a in play.turn().actions] == [CloseSandbox]
    play.now_s += 10
    play.turn()
    assert play.live(0).sandbox == "run-0-2"


def test_the_open_sandbox_of_a_task_that_is_no_longer_wanted_is_closed() -> None:
    play = Play(job(completions=4, parallelism=4, sandbox={"reuse": "all"}))
    play.turn()
    play.succeed(3, sandbox_open=True)
    play.change(completions=3)
    plan = play.turn()
    assert [a.sandbox for a in plan.actions if isinstance(a, CloseSandbox)] == ["run-3-1"]


def test_a_restart_remembers_how_often_a_busy_sandbox_was_used() -> None:
    play = Play(job(completions=5, parallelism=1, sandbox={"reuse": 3}))
    play.turn()
    play.succeed(0, sandbox_open=True)
    play.turn()
    play.restart()
    play.succeed(1, sandbox_open=True)
    [start] = play.turn().actions
    assert isinstance(start, Start)
    assert (start.sandbox, start.reusable) == ("run-0-1", False)


def test_a_restart_closes_idle_sandboxes_whose_end_may_have_been_asked_for() -> None:
    play = Play(job(completions=2, parallelism=1, sandbox={"reuse": "all"}))
    play.turn()
    play.succeed(0, sandbox_open=True)
    play.restart()
    assert [type(action) for action in play.turn().actions] == [CloseSandbox]
    play.confirm()
    play.turn()
    assert play.live(1).sandbox == "run-1-1"


def test_a_task_refused_in_an_open_sandbox_leaves_none_behind() -> None:
    play = Play(job(completions=2, parallelism=1, sandbox={"reuse": "all"}))
    play.turn()
    play.succeed(0, sandbox_open=True)
    play.turn()
    play.refuse(1, "no such user")
    plan = play.turn()
    assert [a.sandbox for a in plan.actions if isinstance(a, CloseSandbox)] == ["run-0-1"]
    play.confirm()
    assert play.turn().reason == "Refused"
