"""When a failed unit runs again."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.controllers.history.retry_limits import (
    FailureAction,
    FailureRule,
    RetryLimits,
    are_retries_spent,
    due_at_s,
    failure_action,
)
from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.planning.kind_controller import limits_of
from fleetctl.specs.kinds.batchjob import BatchJobSpec

FAILED = Run(
    name="r",
    uid="u",
    index=3,
    attempt=1,
    state=RunState.FAILED,
    provider="local",
    sandbox="r",
    template_hash="t",
    params="{}",
    params_hash="p",
    created_at_s=0.0,
    ended_at_s=100.0,
    exit_code=2,
    reason="ExitCode:2",
)


def wait_s(limits: RetryLimits, app_failures: int, run: Run = FAILED) -> float:
    return due_at_s(limits, run, failures=app_failures) - 100.0


def test_the_wait_doubles_with_every_failure_within_its_jitter() -> None:
    limits = RetryLimits(backoff_initial_s=8.0, backoff_max_s=1e9)
    for failures in range(1, 10):
        assert 4.0 * 2 ** (failures - 1) <= wait_s(limits, failures) < 8.0 * 2 ** (failures - 1)


def test_the_wait_never_exceeds_its_maximum() -> None:
    limits = RetryLimits(backoff_initial_s=1.0, backoff_max_s=30.0)
    assert 15.0 <= wait_s(limits, 500) < 30.0


def test_the_same_seed_gives_the_same_wait_and_another_seed_another() -> None:
    waits = {wait_s(RetryLimits(seed=seed), 1) for seed in (1, 1, 2)}
    assert len(waits) == 2


def test_tasks_that_fail_together_do_not_return_together() -> None:
    waits = {wait_s(RetryLimits(), 1, replace(FAILED, index=index)) for index in range(20)}
    assert len(waits) == 20


def test_a_result_that_cannot_be_kept_is_not_tried_again_unless_a_rule_says_so() -> None:
    invalid = replace(FAILED, reason="ResultInvalid", exit_code=1)
    spec = BatchJobSpec.model_validate({"tasks": {"completions": 1}, "template": {"script": "x"}})
    assert failure_action(limits_of(spec), invalid) is FailureAction.FAIL_INDEX
    assert failure_action(limits_of(spec), FAILED) is FailureAction.COUNT
    rule = {"action": "Count", "onReasons": ["ResultInvalid"]}
    tolerant = spec.model_validate(
        {**spec.model_dump(by_alias=True, exclude_unset=True), "failurePolicy": {"rules": [rule]}}
    )
    assert failure_action(limits_of(tolerant), invalid) is FailureAction.COUNT


def test_a_lost_run_restarts_without_backoff() -> None:
    assert wait_s(RetryLimits(), 3, replace(FAILED, state=RunState.LOST)) == 0.0


def test_an_ignored_first_failure_restarts_without_backoff() -> None:
    assert wait_s(RetryLimits(), 0) == 0.0


def test_attempts_end_one_after_the_limit() -> None:
    limits = RetryLimits(backoff_limit_per_index=2, max_infra_retries=1)
    assert not are_retries_spent(limits, app_failures=2, infra_failures=1, idle_lives=1)
    assert are_retries_spent(limits, app_failures=3, infra_failures=0, idle_lives=0)
    assert are_retries_spent(limits, app_failures=0, infra_failures=2, idle_lives=0)
    assert are_retries_spent(limits, app_failures=0, infra_failures=0, idle_lives=2)


def rules(*found: FailureRule) -> RetryLimits:
    return RetryLimits(rules=found)


def test_without_a_rule_a_failure_counts() -> None:
    assert failure_action(RetryLimits(), FAILED) is FailureAction.COUNT


def test_the_first_rule_that_matches_decides() -> None:
    limits = rules(
        FailureRule("other", FailureAction.IGNORE, exit_codes=frozenset({9})),
        FailureRule("first", FailureAction.FAIL_INDEX, exit_codes=frozenset({2, 3})),
        FailureRule("second", FailureAction.FAIL_JOB, exit_codes=frozenset({2})),
    )
    assert failure_action(limits, FAILED) is FailureAction.FAIL_INDEX


def test_a_negated_rule_matches_every_other_code() -> None:
    limits = rules(FailureRule("n", FailureAction.FAIL_JOB, frozenset({2}), negated=True))
    assert failure_action(limits, FAILED) is FailureAction.COUNT
    assert failure_action(limits, replace(FAILED, exit_code=1)) is FailureAction.FAIL_JOB


def test_a_rule_on_exit_codes_never_matches_a_run_without_one() -> None:
    limits = rules(FailureRule("n", FailureAction.FAIL_JOB, frozenset({2}), negated=True))
    timed_out = replace(FAILED, exit_code=None, reason="Timeout")
    assert failure_action(limits, timed_out) is FailureAction.COUNT


def test_a_reason_matches_in_full_and_by_its_first_word() -> None:
    for reason in ("ExitCode", "ExitCode:2"):
        limits = rules(FailureRule("r", FailureAction.IGNORE, reasons=frozenset({reason})))
        assert failure_action(limits, FAILED) is FailureAction.IGNORE
    limits = rules(FailureRule("r", FailureAction.IGNORE, reasons=frozenset({"Timeout"})))
    assert failure_action(limits, FAILED) is FailureAction.COUNT
