"""`wait --for`: when a goal is met, when it can no longer be met, and when to go on waiting."""

from __future__ import annotations

import json

import pytest

from fleetctl.common.errors import UsageError
from fleetctl.stores.read.rows import ResourceRow
from fleetctl.views.goals import GoalOutcome, GoalStatus, WaitGoal, check_goal, parse_goal
from fleetctl.views.objects import View, build_view


def seen(*, deleted: bool = False, generation: int = 1, **status: object) -> View:
    row = ResourceRow(
        uid="u", kind="BatchJob", name="x", generation=generation, version=1, created_at_s=0.0,
        deleted_at_s=1.0 if deleted else None, labels={}, annotations={},
        status=json.dumps({"observedGeneration": 1, **status}),
    )  # fmt: skip
    return build_view(row, lambda: "{}")


def outcome(word: str, now: View | None) -> GoalOutcome:
    return check_goal(parse_goal(word), now).outcome


@pytest.mark.parametrize(
    ("word", "phase", "expected"),
    [
        ("complete", "Succeeded", GoalOutcome.MET),
        ("complete", "Failed", GoalOutcome.IMPOSSIBLE),
        ("succeeded", "Succeeded", GoalOutcome.MET),
        ("succeeded", "Failed", GoalOutcome.IMPOSSIBLE),
        ("failed", "Failed", GoalOutcome.MET),
        ("failed", "Succeeded", GoalOutcome.IMPOSSIBLE),
        ("finished", "Succeeded", GoalOutcome.MET),
        ("finished", "Failed", GoalOutcome.MET),
        ("first-result", "Failed", GoalOutcome.IMPOSSIBLE),
        ("complete", "Running", GoalOutcome.WAITING),
        ("failed", "Suspended", GoalOutcome.WAITING),
        ("delete", "Succeeded", GoalOutcome.WAITING),
    ],
)
def test_a_goal_is_met_impossible_or_waited_for(
    word: str, phase: str, expected: GoalOutcome
) -> None:
    assert outcome(word, seen(phase=phase)) is expected


def test_a_first_result_is_enough_while_the_rest_still_runs() -> None:
    assert outcome("first-result", seen(phase="Running", succeeded=1)) is GoalOutcome.MET


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("complete", GoalOutcome.IMPOSSIBLE),
        ("succeeded", GoalOutcome.IMPOSSIBLE),
        ("failed", GoalOutcome.WAITING),
        ("finished", GoalOutcome.WAITING),
        ("first-result", GoalOutcome.WAITING),
    ],
)
def test_success_is_given_up_while_the_rest_still_runs(word: str, expected: GoalOutcome) -> None:
    now = seen(phase="Running", failed=1, cannotSucceed="1 of 2 tasks failed")
    assert outcome(word, now) is expected


def test_gone_meets_a_deletion_and_ends_every_other_goal() -> None:
    assert outcome("delete", None) is GoalOutcome.MET
    assert outcome("succeeded", None) is GoalOutcome.IMPOSSIBLE
    assert outcome("succeeded", seen(deleted=True, phase="Running")) is GoalOutcome.IMPOSSIBLE


def test_the_status_of_an_older_spec_answers_nothing() -> None:
    assert outcome("succeeded", seen(generation=2, phase="Succeeded")) is GoalOutcome.WAITING
    assert outcome("succeeded", seen(generation=2, phase="Failed")) is GoalOutcome.WAITING


def test_an_object_that_nobody_has_looked_at_is_waited_for() -> None:
    row = seen().resource._replace(status="")
    assert outcome("complete", build_view(row, lambda: "{}")) is GoalOutcome.WAITING


def test_the_reason_of_a_failure_is_part_of_the_answer() -> None:
    failed = seen(phase="Failed", reason="MaxFailedIndexesExceeded", message="4 tasks failed")
    told = check_goal(WaitGoal("succeeded"), failed)
    assert told == GoalStatus(GoalOutcome.IMPOSSIBLE, "MaxFailedIndexesExceeded: 4 tasks failed")


def condition(status: str) -> dict[str, object]:
    return {"type": "Complete", "status": status, "reason": "Completed"}


@pytest.mark.parametrize(
    ("word", "status", "phase", "expected"),
    [
        ("condition=Complete", "True", "Succeeded", GoalOutcome.MET),
        ("condition=complete", "True", "Succeeded", GoalOutcome.MET),
        ("condition=Complete=False", "False", "Running", GoalOutcome.MET),
        ("condition=Complete", "False", "Running", GoalOutcome.WAITING),
        ("condition=Complete", "False", "Failed", GoalOutcome.IMPOSSIBLE),
        ("condition=Other", "True", "Running", GoalOutcome.WAITING),
        ("condition=Other", "True", "Failed", GoalOutcome.IMPOSSIBLE),
        ("condition=Other=False", "True", "Failed", GoalOutcome.MET),
    ],
)
def test_a_condition_is_compared_with_its_wished_status(
    word: str, status: str, phase: str, expected: GoalOutcome
) -> None:
    assert outcome(word, seen(phase=phase, conditions=[condition(status)])) is expected


@pytest.mark.parametrize("text", ["", "condition=", "succeded", "Complete", "for ever"])
def test_what_is_no_goal_is_refused_with_the_nearest(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_goal(text)
    assert caught.value.hint
