"""BatchJob: its tasks, and when the whole is over."""

from __future__ import annotations

from typing import Any

from fleetctl.controllers.planning.plan import Phase, Plan, Start, Stop
from tests.unit.controllers.play import Play, job


def ended(play: Play) -> Plan:
    """The plan that ends the whole, once everything that runs was stopped."""
    plan = play.turn()
    if not play.confirm():
        return plan
    return play.turn()


def policy(action: str, **match: Any) -> dict[str, Any]:
    return {"rules": [{"action": action, **match}]}


def codes(*values: int, operator: str = "In") -> dict[str, Any]:
    return {"onExitCodes": {"operator": operator, "values": list(values)}}


def test_a_task_gets_its_own_parameters_by_index() -> None:
    play = Play(
        {
            "template": {"python": "SUBMIT(ok=True)"},
            "tasks": {"matrix": {"a": [1, 2], "b": ["x", "y"]}},
        }
    )
    starts = [action for action in play.turn().actions if isinstance(action, Start)]
    assert [dict(start.params) for start in starts] == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_tasks_run_to_the_end_although_some_fail() -> None:
    play = Play(job(completions=3))
    play.turn()
    play.fail(0)
    play.succeed(1)
    assert play.turn().phase is not Phase.FAILED
    play.succeed(2)
    plan = play.turn()
    assert (plan.phase, plan.reason) == (Phase.FAILED, "FailedIndexes")


def test_a_job_that_can_only_fail_says_so_while_it_runs() -> None:
    play = Play(job(completions=3, backoffLimitPerIndex=1))
    play.turn()
    play.fail(0)
    assert "cannotSucceed" not in play.turn().extra
    play.now_s += 1000.0
    play.turn()
    play.fail(0)
    assert play.turn().extra["cannotSucceed"] == "1 of 3 tasks failed"


def test_a_job_with_a_success_policy_may_still_succeed_after_a_failure() -> None:
    play = Play(job(completions=3, successPolicy={"rules": [{"succeededCount": 2}]}))
    play.turn()
    play.fail(0)
    assert "cannotSucceed" not in play.turn().extra


def test_too_many_failed_tasks_end_the_job_and_stop_the_rest() -> None:
    play = Play(job(completions=8, parallelism=4, maxFailedIndexes=1))
    play.turn()
    play.fail(0)
    assert not [action for action in play.turn().actions if isinstance(action, Stop)]
    play.fail(1)
    plan = ended(play)
    assert (plan.phase, plan.reason) == (Phase.FAILED, "MaxFailedIndexesExceeded")
    assert plan.message == "2 tasks failed, more than maxFailedIndexes 1"
    assert play.active == []


def test_the_backoff_limit_counts_failures_of_all_tasks_together() -> None:
    play = Play(job(completions=4, backoffLimitPerIndex=5, backoffLimit=2))
    play.turn()
    play.fail(0, 1)
    assert play.turn().phase is not Phase.FAILED
    play.fail(2)
    plan = ended(play)
    assert (plan.phase, plan.reason) == (Phase.FAILED, "BackoffLimitExceeded")
    assert plan.message == "3 failures, more than backoffLimit 2"


def test_lost_runs_do_not_count_against_the_backoff_limit() -> None:
    play = Play(job(completions=1, backoffLimit=0))
    for _ in range(3):
        play.turn()
        play.lose(0)
    play.turn()
    assert play.active == [0]


def test_fail_job_ends_everything_at_the_first_match() -> None:
    play = Play(job(backoffLimitPerIndex=5, failurePolicy=policy("FailJob", **codes(42))))
    play.turn()
    play.fail(1, reason="ExitCode:42", exit_code=42)
    plan = ended(play)
    assert (plan.phase, plan.reason) == (Phase.FAILED, "FailureRule")
    assert plan.message == "task 1 failed with ExitCode:42"


def test_fail_index_gives_up_the_task_without_a_retry() -> None:
    play = Play(
        job(completions=2, backoffLimitPerIndex=5, failurePolicy=policy("FailIndex", **codes(3)))
    )
    play.turn()
    play.fail(0, reason="ExitCode:3", exit_code=3)
    play.now_s += 1_000
    play.turn()
    assert play.active == [1]
    assert 0 in play.history.failed


def test_a_rule_for_all_other_codes_leaves_the_named_ones_alone() -> None:
    play = Play(
        job(
            completions=2,
            backoffLimitPerIndex=1,
            failurePolicy=policy("FailIndex", **codes(75, operator="NotIn")),
        )
    )
    play.turn()
    play.fail(0, reason="ExitCode:75", exit_code=75)
    play.fail(1, reason="ExitCode:1", exit_code=1)
    assert str(play.history.failed) == "1"


def test_an_ignored_failure_is_retried_and_counts_against_no_limit_but_the_cap() -> None:
    play = Play(
        job(
            completions=1,
            backoffLimit=0,
            maxInfraRetries=3,
            failurePolicy=policy("Ignore", onReasons=["OOMKilled"]),
        )
    )
    for attempt in range(1, 5):
        play.turn()
        assert play.live(0).attempt == attempt
        play.fail(0, reason="OOMKilled", exit_code=None)
    assert play.turn().phase is Phase.FAILED
    assert play.history.failures == 0


def test_a_timeout_is_matched_by_its_reason() -> None:
    play = Play(job(completions=1, failurePolicy=policy("FailJob", onReasons=["Timeout"])))
    play.turn()
    play.fail(0, reason="Timeout", exit_code=None)
    assert ended(play).reason == "FailureRule"


def test_enough_successes_end_the_job_early_and_stop_the_rest() -> None:
    play = Play(job(completions=9, successPolicy={"rules": [{"succeededCount": 2}]}))
    play.turn()
    play.succeed(0)
    assert play.turn().phase is not Phase.SUCCEEDED
    play.succeed(2)
    plan = ended(play)
    assert (plan.phase, plan.reason) == (Phase.SUCCEEDED, "SuccessPolicy")
    assert plan.message == "2 tasks succeeded, enough for successPolicy"


def test_success_may_depend_on_certain_tasks() -> None:
    rules = {"rules": [{"succeededIndexes": "0,2"}]}
    play = Play(job(completions=4, successPolicy=rules))
    play.turn()
    play.succeed(0, 1, 3)
    assert play.turn().phase is not Phase.SUCCEEDED
    play.succeed(2)
    assert play.turn().phase is Phase.SUCCEEDED


def test_success_may_depend_on_some_of_certain_tasks() -> None:
    rules = {"rules": [{"succeededIndexes": "0-2", "succeededCount": 2}]}
    play = Play(job(completions=4, successPolicy=rules))
    play.turn()
    play.succeed(3, 1)
    assert play.turn().phase is not Phase.SUCCEEDED
    play.succeed(0)
    assert ended(play).phase is Phase.SUCCEEDED


def test_any_rule_of_a_success_policy_is_enough() -> None:
    rules = {"rules": [{"succeededCount": 4}, {"succeededIndexes": "1"}]}
    play = Play(job(completions=4, successPolicy=rules))
    play.turn()
    play.succeed(1)
    assert ended(play).reason == "SuccessPolicy"


def test_an_early_failure_is_looked_at_before_an_early_success() -> None:
    play = Play(
        job(
            maxFailedIndexes=0,
            successPolicy={"rules": [{"succeededCount": 1}]},
        )
    )
    play.turn()
    play.succeed(0)
    play.fail(1)
    assert ended(play).reason == "MaxFailedIndexesExceeded"
