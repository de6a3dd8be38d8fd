"""What has happened to the units of one resource."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.controllers.history.history import History, ReplayedRun, replay_runs
from fleetctl.controllers.history.retry_limits import MAX_LIFETIME, RetryLimits
from fleetctl.controllers.model import Run, RunState

RUN = Run("r0", "u", 0, 1, RunState.STARTING, "local", "r0", "t", "{}", "p", 10.0)


def run(index: int, attempt: int = 1, state: RunState = RunState.STARTING, **more: object) -> Run:
    name = f"r{index}-{attempt}"
    made = replace(RUN, name=name, sandbox=name, index=index, attempt=attempt, state=state)
    return replace(made, **more)  # type: ignore[arg-type]


def ended(index: int, state: RunState, attempt: int = 1, at_s: float = 20.0) -> Run:
    return run(index, attempt, state, ended_at_s=at_s, reason="x")


def history(*, backoff_limit_per_index: int = 0, max_infra_retries: int = 5) -> History:
    return History(RetryLimits(backoff_limit_per_index, max_infra_retries))


def test_two_live_runs_of_one_unit_are_a_bug_that_shows_itself() -> None:
    found = history()
    found.began(run(0))
    with pytest.raises(AssertionError, match="two live runs of index 0"):
        found.began(run(0, 2))


def test_a_unit_that_succeeds_twice_is_a_bug_that_shows_itself() -> None:
    found = history()
    replay_runs(found, [ReplayedRun(ended(0, RunState.SUCCEEDED))])
    found.began(run(0, 2))
    with pytest.raises(AssertionError, match="succeeded twice"):
        found.ended(ended(0, RunState.SUCCEEDED, 2))


def test_a_run_that_its_sandboxs_age_ended_goes_on_however_often_and_counts_as_no_failure() -> None:
    found = history()
    aged = replace(ended(0, RunState.LOST), reason=MAX_LIFETIME, started_at_s=10.0)
    old = [replace(aged, attempt=attempt, name=f"r{attempt}") for attempt in range(1, 40)]
    replay_runs(found, [ReplayedRun(run, step=run.attempt) for run in old])
    assert (list(found.waiting.due(20.0)), found.infra_failures, found.next_attempt(0)) == (
        [0],
        0,
        40,
    )
    found.began(run(0, 40))
    last = replace(ended(0, RunState.LOST, 40), reason=MAX_LIFETIME, started_at_s=10.0)
    found.ended(last, step=40)
    assert (list(found.waiting.due(20.0)), found.infra_failures) == ([0], 0)


def test_case_10_three_sandboxes_that_grow_too_old_without_a_new_step_make_the_next_wait() -> None:
    """Golden case 10."""
    found, waits = history(), []
    for attempt, step in enumerate([10, 20, 20, 15, None, 20, 20, 30, 30], start=1):
        found.began(run(0, attempt))
        aged = ended(0, RunState.LOST, attempt, at_s=400.0 * attempt)
        aged = replace(aged, reason=MAX_LIFETIME, started_at_s=400.0 * attempt - 310)
        found.ended(aged, step=step)
        waits.append(found.unfinished[0].due_at_s - 400.0 * attempt)
    assert waits[:4] == [0.0] * 4
    assert 0.5 <= waits[4] <= 1.0 <= waits[5] <= 2.0 <= waits[6] <= 4.0
    assert waits[7:] == [0.0] * 2
    assert (found.infra_failures, found.failures) == (0, 0)


def test_attempts_that_hardly_begin_before_their_sandbox_is_too_old_wait_ever_longer() -> None:
    def rolled(attempt: int, at_s: float, lasted_s: float) -> Run:
        found = replace(ended(0, RunState.LOST, attempt, at_s=at_s), reason=MAX_LIFETIME)
        return replace(found, started_at_s=at_s - lasted_s)

    short = [ReplayedRun(rolled(attempt, 100.0 * attempt, 1.3)) for attempt in range(1, 10)]
    waits = []
    for count in range(1, 10):
        found = history(max_infra_retries=20)
        replay_runs(found, short[:count])
        waits.append(found.unfinished[0].due_at_s - 100.0 * count)
    assert 0.5 <= waits[0] < waits[2] < waits[5] < waits[8] <= 300.0
    assert found.infra_failures == 0
    found.began(run(0, 10))
    found.ended(rolled(10, 1000.0, 10.0), step=1)
    assert found.unfinished[0].due_at_s == 1000.0


def test_lives_that_bring_nothing_are_bounded_and_those_between_progress_are_not() -> None:
    def aged(attempt: int) -> Run:
        lost = ended(0, RunState.LOST, attempt, at_s=400.0 * attempt)
        return replace(lost, reason=MAX_LIFETIME, started_at_s=400.0 * attempt - 310)

    rows = [ReplayedRun(aged(attempt), step=attempt // 3 * 3) for attempt in range(3, 40)]
    found = history(max_infra_retries=2)
    replay_runs(found, rows)
    assert (len(found.failed), found.infra_failures) == (0, 0)
    for attempt in (40, 41, 42):
        found.began(run(0, attempt))
        found.ended(aged(attempt), step=39)
    assert (list(found.failed), found.infra_failures, found.retries) == ([0], 1, 0)
    assert found.last_failure == aged(42)
    again = history(max_infra_retries=2)
    replay_runs(again, [*rows, *(ReplayedRun(aged(attempt), step=39) for attempt in (40, 41, 42))])
    assert (list(again.failed), again.infra_failures) == ([0], 1)


def test_units_are_due_the_longest_waiting_first() -> None:
    found = history(backoff_limit_per_index=3)
    replay_runs(
        found,
        [
            ReplayedRun(ended(0, RunState.LOST, at_s=30.0)),
            ReplayedRun(ended(1, RunState.LOST, at_s=10.0)),
            ReplayedRun(ended(2, RunState.LOST, at_s=50.0)),
        ],
    )
    assert list(found.waiting.due(40.0)) == [1, 0]
    assert found.waiting.next_due_at_s(40.0) == 50.0
    assert found.waiting.backing_off(40.0) == ((50.0, 2),)


def test_a_unit_that_starts_again_is_due_no_more() -> None:
    found = history()
    replay_runs(found, [ReplayedRun(ended(0, RunState.LOST))])
    found.began(run(0, 2))
    assert list(found.waiting.due(1e9)) == []
    assert found.next_attempt(0) == 3


def test_the_last_failure_is_the_latest_in_time_whatever_the_order_of_rows() -> None:
    late, early = ended(0, RunState.FAILED, at_s=90.0), ended(1, RunState.FAILED, at_s=20.0)
    found = history()
    replay_runs(found, [ReplayedRun(late), ReplayedRun(early)])
    assert found.last_failure == late


def test_the_first_result_is_the_earliest_success() -> None:
    found = history()
    replay_runs(
        found,
        [
            ReplayedRun(ended(0, RunState.SUCCEEDED, at_s=90.0)),
            ReplayedRun(ended(1, RunState.FAILED, at_s=5.0)),
            ReplayedRun(ended(2, RunState.SUCCEEDED, at_s=20.0)),
        ],
    )
    assert found.first_result_at_s == 20.0


def test_scores_know_their_least_and_greatest_and_the_earliest_of_equals() -> None:
    found = history()
    scores = (0.5, 0.1, 0.9, 0.1, 0.9)
    replay_runs(
        found,
        [
            ReplayedRun(ended(index, RunState.SUCCEEDED), score)
            for index, score in enumerate(scores)
        ],
    )
    assert found.lowest == (0.1, 1)
    assert found.highest == (-0.9, 2)


def test_an_attempt_under_an_older_wish_cuts_off_what_came_before_it() -> None:
    found = history(backoff_limit_per_index=1)
    replay_runs(
        found,
        [
            ReplayedRun(ended(0, RunState.FAILED, 1)),
            ReplayedRun(ended(0, RunState.FAILED, 2), superseded=True),
            ReplayedRun(ended(0, RunState.FAILED, 3)),
        ],
    )
    assert 0 not in found.failed
    assert found.next_attempt(0) == 4
    assert found.failures == 1


def test_rows_of_units_that_are_not_wanted_tell_of_open_sandboxes_and_no_more() -> None:
    found = history()
    box = replace(ended(7, RunState.SUCCEEDED), sandbox_open=True)
    replay_runs(found, [ReplayedRun(box, wanted=False)])
    assert len(found.succeeded) == 0
    assert list(found.fresh(7, 8)) == [7]
    assert list(found.sandboxes) == [box.sandbox]
    assert found.providers == {"local"}
