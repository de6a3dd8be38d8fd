"""The pass: starting, waiting, ending. What changes on a live object is in the file beside this."""

from __future__ import annotations

import pytest

from fleetctl.controllers.history.retry_limits import MAX_LIFETIME
from fleetctl.controllers.model import RunState
from fleetctl.controllers.planning.plan import CloseSandbox, Drop, FreeScratch, Phase, Start, Stop
from fleetctl.controllers.schedule.desired import StartWait
from fleetctl.controllers.schedule.starts import STARTS_PER_PASS_MAX
from tests.unit.controllers.play import START_S, Play, job


def test_a_new_job_starts_its_tasks_in_order_up_to_parallelism() -> None:
    play = Play(job(completions=5, parallelism=2))
    plan = play.turn()
    assert [(a.index, a.attempt) for a in plan.actions if isinstance(a, Start)] == [(0, 1), (1, 1)]
    assert play.turn().actions == ()
    play.succeed(0)
    play.turn()
    assert play.active == [1, 2]


def test_without_parallelism_the_providers_default_holds() -> None:
    play = Play(job(completions=100))
    play.turn()
    assert play.active == [0, 1, 2, 3]


def test_a_start_says_why_it_starts() -> None:
    play = Play(job(backoffLimitPerIndex=1))
    assert {a.reason for a in play.turn().actions if isinstance(a, Start)} == {"it has not run yet"}
    play.fail(0)
    play.now_s += 2
    assert [a.reason for a in play.turn().actions if isinstance(a, Start)] == [
        "its next attempt is due"
    ]


def test_many_starts_are_spread_over_passes_that_follow_at_once() -> None:
    play = Play(job(completions=1_000, parallelism=600))
    plan = play.turn()
    assert len(plan.actions) == STARTS_PER_PASS_MAX
    assert plan.wake_at_s == play.now_s
    play.settle()
    assert len(play.active) == 600


def test_a_job_succeeds_when_every_task_did() -> None:
    play = Play(job())
    play.turn()
    play.succeed(0, 1, 2)
    plan = play.turn()
    assert (plan.phase, plan.reason) == (Phase.SUCCEEDED, "Completed")
    assert plan.message == "3 of 3 tasks succeeded"


def test_terminal_is_terminal() -> None:
    play = Play(job())
    play.turn()
    play.succeed(0, 1, 2)
    play.turn()
    for _ in range(3):
        play.now_s += 1e6
        plan = play.turn()
        assert (plan.phase, plan.actions, plan.final) == (Phase.SUCCEEDED, (), True)


def test_parallelism_zero_starts_nothing_and_says_so() -> None:
    plan = Play(job(parallelism=0)).turn()
    assert plan.actions == ()
    assert (plan.phase, plan.reason) == (Phase.PENDING, "Waiting")
    assert plan.message == "spec.parallelism is 0"


def test_a_placement_without_a_known_provider_waits_and_names_it() -> None:
    plan = Play(job(placement={"ordered": [{"provider": "mars"}]})).turn()
    assert (plan.phase, plan.reason) == (Phase.PENDING, "NoProvider")
    assert "mars" in plan.message


def test_the_first_known_provider_of_an_ordered_placement_is_taken() -> None:
    play = Play(job(placement={"ordered": [{"provider": "mars"}, {"provider": "local"}]}))
    play.turn()
    assert {run.provider for run in play.history.live.values()} == {"local"}


def test_a_start_that_waits_tells_the_providers_own_words() -> None:
    play = Play(job(completions=1))
    play.turn()
    name = play.live(0).name
    play.waits[name] = StartWait("NoCapacity", "no A100 is free", play.now_s + 30)
    plan = play.turn()
    assert (plan.phase, plan.reason, plan.message) == (
        Phase.PENDING,
        "NoCapacity",
        "no A100 is free",
    )
    assert plan.waiting_on == ("task 0: no A100 is free",)
    assert plan.wake_at_s == play.now_s + 30


def test_a_wait_does_not_hide_that_other_tasks_run() -> None:
    play = Play(job(completions=2))
    play.turn()
    play.waits[play.live(1).name] = StartWait("NoCapacity", "no A100 is free", play.now_s + 30)
    plan = play.turn()
    assert plan.reason == "InProgress"
    assert plan.waiting_on == ("task 1: no A100 is free",)


def test_a_wait_whose_time_has_come_wakes_nobody_again() -> None:
    play = Play(job(completions=1))
    play.turn()
    play.waits[play.live(0).name] = StartWait("NoCapacity", "no A100 is free", play.now_s)
    assert play.turn().wake_at_s is None


def test_a_failed_task_waits_for_its_backoff_and_says_how_long() -> None:
    play = Play(job(completions=1, backoffLimitPerIndex=3, retry={"backoff": {"initial": "40s"}}))
    play.turn()
    play.fail(0)
    plan = play.turn()
    assert plan.actions == ()
    assert plan.wake_at_s is not None
    assert play.now_s + 20 <= plan.wake_at_s < play.now_s + 40
    assert plan.reason == "Waiting"
    assert plan.message.startswith("task 0: backing off for ")
    assert plan.message.endswith(" s after ExitCode:1")
    play.now_s = plan.wake_at_s
    assert [a.attempt for a in play.turn().actions if isinstance(a, Start)] == [2]


def test_case_10_sandboxes_that_grow_too_old_without_progress_are_said_to_be_waited_after() -> None:
    """Golden case 10."""
    play = Play(job(completions=1))
    for _ in range(3):
        assert any(isinstance(one, Start) for one in play.turn().actions)
        play.confirm_starts()
        play.now_s += 310
        play.end(0, RunState.LOST, MAX_LIFETIME)
    plan = play.turn()
    assert (plan.actions, plan.reason) == ((), "Waiting")
    assert plan.message.endswith(
        " s after 3 sandboxes in a row that grew too old without a new step"
    )
    play.now_s += 1
    assert [one.attempt for one in play.turn().actions if isinstance(one, Start)] == [4]
    warned = play.turn()
    assert str(warned.extra["warning"]).startswith(
        "task 0: 3 of at most 6 sandboxes grew too old without a new step"
    )
    for _ in range(3):
        play.confirm_starts()
        play.now_s += 310
        play.end(0, RunState.LOST, MAX_LIFETIME)
        play.now_s += 60
        plan = play.turn()
    assert (plan.phase, plan.reason) == (Phase.FAILED, "FailedIndexes")
    assert play.status["lastFailure"]["reason"] == MAX_LIFETIME


def test_a_due_attempt_comes_before_a_fresh_task() -> None:
    play = Play(job(completions=10, parallelism=1, backoffLimitPerIndex=1))
    play.turn()
    play.fail(0)
    play.now_s += 10
    play.turn()
    assert play.active == [0]


def test_a_task_that_failed_too_often_is_given_up_and_the_others_go_on() -> None:
    play = Play(job(completions=3, parallelism=1, backoffLimitPerIndex=1))
    for _ in range(2):
        play.turn()
        play.fail(0)
        play.now_s += 10
    play.turn()
    assert play.active == [1]
    play.succeed(1)
    play.turn()
    play.succeed(2)
    plan = play.turn()
    assert (plan.phase, plan.reason) == (Phase.FAILED, "FailedIndexes")
    assert plan.message == "1 of 3 tasks failed"


def test_infrastructure_failures_have_a_count_and_a_cap_of_their_own() -> None:
    play = Play(job(completions=1, backoffLimitPerIndex=0, maxInfraRetries=2))
    for attempt in (1, 2, 3):
        play.turn()
        assert play.live(0).attempt == attempt
        play.lose(0)
    plan = play.turn()
    assert plan.phase is Phase.FAILED
    assert (play.history.infra_failures, play.history.failures) == (3, 0)


def test_a_stop_of_ours_consumes_no_attempt_of_either_sort() -> None:
    play = Play(job(completions=1, backoffLimitPerIndex=0, maxInfraRetries=0))
    for _ in range(5):
        play.turn()
        play.change(suspend=True)
        play.turn()
        play.confirm()
        play.change(suspend=None)
    play.turn()
    assert (play.active, play.live(0).attempt) == ([0], 6)


def test_the_deadline_ends_the_whole_and_stops_what_runs() -> None:
    play = Play(job(activeDeadlineSeconds=60))
    play.turn()
    play.now_s += 59
    assert play.turn().wake_at_s == START_S + 60
    play.now_s += 1
    plan = play.turn()
    assert {a.reason for a in plan.actions if isinstance(a, Stop)} == {"DeadlineExceeded"}
    assert (plan.phase, plan.reason) == (Phase.RUNNING, "Finishing")
    play.confirm()
    plan = play.turn()
    assert (plan.phase, plan.reason) == (Phase.FAILED, "DeadlineExceeded")
    assert plan.message == "activeDeadlineSeconds 60 has passed"


def test_the_first_pass_already_knows_when_the_deadline_comes() -> None:
    plan = Play(job(activeDeadlineSeconds=60, parallelism=0)).look()
    assert plan.wake_at_s == START_S + 60


def test_work_that_was_done_in_time_is_not_late_when_it_is_read_late() -> None:
    play = Play(job(activeDeadlineSeconds=60))
    play.turn()
    play.succeed(0, 1, 2)
    play.now_s += 3_600
    assert play.turn().phase is Phase.SUCCEEDED


def test_suspending_stops_the_deadlines_clock_and_resuming_starts_it_anew() -> None:
    play = Play(job(activeDeadlineSeconds=60))
    play.turn()
    play.now_s += 50
    play.change(suspend=True)
    play.turn()
    play.confirm()
    play.now_s += 1_000
    assert play.turn().phase is Phase.SUSPENDED
    play.change(suspend=None)
    play.turn()
    play.now_s += 59
    assert play.turn().phase is not Phase.FAILED
    play.now_s += 1
    play.turn()
    play.confirm()
    assert play.turn().reason == "DeadlineExceeded"


def test_a_deadline_does_not_fall_on_an_object_that_was_suspended_before_it() -> None:
    play = Play(job(activeDeadlineSeconds=60))
    play.turn()
    play.change(suspend=True)
    play.now_s += 1_000
    play.settle()
    assert play.turn().phase is Phase.SUSPENDED


def test_a_suspended_job_stops_its_runs_and_starts_none() -> None:
    play = Play(job(suspend=True))
    assert play.turn().actions == ()
    play.change(suspend=None)
    play.turn()
    play.change(suspend=True)
    plan = play.turn()
    assert {a.reason for a in plan.actions if isinstance(a, Stop)} == {"Suspended"}
    assert play.turn().waiting_on == ("3 runs are being stopped",)
    play.confirm()
    assert play.turn().actions == ()
    assert play.active == []


def test_a_job_that_was_over_when_it_was_suspended_is_over() -> None:
    play = Play(job())
    play.turn()
    play.succeed(0, 1, 2)
    play.change(suspend=True)
    assert play.turn().phase is Phase.SUCCEEDED


def test_what_runs_left_behind_is_freed_after_the_time_to_live() -> None:
    play = Play(job(completions=1, ttlSecondsAfterFinished=100))
    play.turn()
    play.succeed(0)
    play.turn()
    assert play.turn().wake_at_s == START_S + 100
    play.now_s += 100
    assert play.turn().actions == (FreeScratch("u1", True, "ttlSecondsAfterFinished has passed"),)
    play.status["scratchFreed"] = True
    plan = play.turn()
    assert (plan.actions, plan.wake_at_s) == ((), None)


def test_a_restart_neither_shortens_nor_prolongs_the_time_to_live() -> None:
    play = Play(job(completions=1, ttlSecondsAfterFinished=100))
    play.turn()
    play.succeed(0)
    play.turn()
    play.now_s += 60
    play.restart()
    assert play.turn().wake_at_s == START_S + 100


def test_a_refusal_ends_the_whole_with_the_providers_words() -> None:
    play = Play(job())
    play.turn()
    play.refuse(1, "there is no Python 3.99")
    play.settle()
    plan = play.look()
    assert (plan.phase, play.status["reason"]) == (Phase.FAILED, "Refused")
    assert play.status["message"] == "there is no Python 3.99"
    assert play.active == []


def test_a_refused_job_runs_again_once_its_template_is_changed() -> None:
    play = Play(job(completions=1))
    play.turn()
    play.refuse(0, "there is no Python 3.99")
    play.settle()
    play.change(parallelism=2)
    assert play.settle().phase is Phase.FAILED
    play.change(template={"python": "SUBMIT(ok=False)"})
    play.turn()
    assert (play.active, play.live(0).attempt) == ([0], 2)


def test_deleting_stops_everything_frees_the_scratch_and_then_drops_the_row() -> None:
    play = Play(job())
    play.turn()
    play.deleted = True
    plan = play.turn()
    assert {type(action) for action in plan.actions} == {Stop}
    assert play.turn().waiting_on == ("3 runs are being stopped",)
    play.confirm()
    assert play.turn().actions == (FreeScratch("u1", False, "deleted"),)
    play.swept = True
    assert [type(action) for action in play.turn().actions] == [Drop]


@pytest.mark.parametrize("moment", ["new", "starting", "running", "failed", "over", "suspended"])
def test_deletion_leads_to_a_drop_from_every_moment(moment: str) -> None:
    play = Play(job(backoffLimitPerIndex=1, suspend=moment == "suspended"))
    if moment != "new":
        play.turn()
    if moment == "running":
        play.confirm_starts()
    if moment == "failed":
        play.fail(0)
    if moment == "over":
        play.succeed(0, 1, 2)
        play.turn()
    play.deleted = True
    play.turn()
    play.confirm()
    assert play.turn().actions == (FreeScratch("u1", False, "deleted"),)
    play.swept = True
    assert [type(action) for action in play.turn().actions] == [Drop]
    assert play.history.live == {}


def test_a_deleted_job_is_not_dropped_while_a_sandbox_of_it_is_open() -> None:
    play = Play(job(sandbox={"reuse": "all"}))
    play.turn()
    play.succeed(0, sandbox_open=True)
    play.deleted, play.swept = True, True
    plan = play.turn()
    assert "run-0-1" in {a.sandbox for a in plan.actions if isinstance(a, CloseSandbox)}
    play.confirm()
    assert [type(action) for action in play.turn().actions] == [Drop]


def test_a_deleted_job_with_nothing_but_an_open_sandbox_waits_for_its_end() -> None:
    play = Play(job(completions=2, parallelism=1, sandbox={"reuse": "all"}))
    play.turn()
    play.succeed(0, sandbox_open=True)
    play.deleted, play.swept = True, True
    for _ in range(2):
        assert {type(action) for action in play.turn().actions} == {CloseSandbox}
    play.confirm()
    assert [type(action) for action in play.turn().actions] == [Drop]


@pytest.mark.parametrize(
    ("fields", "events"),
    [
        ({}, ()),
        ({"suspend": True}, ()),
        ({"parallelism": 0}, ()),
        ({"placement": {"provider": "mars"}}, ()),
        ({"backoffLimitPerIndex": 9, "completions": 1}, ("fail",)),
        ({"completions": 1}, ("succeed",)),
        ({"completions": 1, "ttlSecondsAfterFinished": 5}, ("succeed",)),
    ],
)
def test_every_plan_that_does_nothing_says_why(
    fields: dict[str, object], events: tuple[str, ...]
) -> None:
    play = Play(job(**fields))
    play.turn()
    for event in events:
        getattr(play, event)(0)
    for _ in range(3):
        plan = play.turn()
    assert plan.actions == ()
    assert plan.reason
    assert plan.message or plan.waiting_on or play.active


def test_a_run_that_is_being_stopped_still_counts_against_parallelism() -> None:
    play = Play(job(completions=4, parallelism=2))
    play.turn()
    play.change(template={"python": "SUBMIT(ok=False)"})
    plan = play.turn()
    assert [type(action) for action in plan.actions] == [Stop, Stop]
    assert play.turn().actions == ()
    play.confirm()
    assert len([a for a in play.turn().actions if isinstance(a, Start)]) == 2


def test_the_phase_is_pending_until_the_first_run_is_confirmed() -> None:
    play = Play(job())
    assert play.turn().phase is Phase.PENDING
    play.confirm_starts()
    assert play.turn().phase is Phase.RUNNING
    assert all(run.state is RunState.RUNNING for run in play.history.live.values())
