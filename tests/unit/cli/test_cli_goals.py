"""`wait --for`: when a goal is met, when it can no longer be met, and when to go on waiting."""

from __future__ import annotations

import json

import pytest

from fleetctl.common.errors import UsageError
from fleetctl.stores.read.rows import ResourceRow
from fleetctl.views.goals import Answer, Goal, Outcome, answer, goal
from fleetctl.views.objects import View, view


def seen(*, deleted: bool = False, generation: int = 1, **status: object) -> View:
    row = ResourceRow(
        uid="u", kind="BatchJob", name="x", generation=generation, version=1, created_at_s=0.0,
        deleted_at_s=1.0 if deleted else None, labels={}, annotations={},
        status=json.dumps({"observedGeneration": 1, **status}),
    )  # fmt: skip
    return view(row, lambda: "{}")


def outcome(word: str, now: View | None) -> Outcome:
    return answer(goal(word), now).outcome


@pytest.mark.parametrize(
    ("word", "phase", "expected"),
    [
        ("complete", "Succeeded", Outcome.MET),
        ("complete", "Failed", Outcome.IMPOSSIBLE),
        ("succeeded", "Succeeded", Outcome.MET),
        ("succeeded", "Failed", Outcome.IMPOSSIBLE),
        ("failed", "Failed", Outcome.MET),
        ("failed", "Succeeded", Outcome.IMPOSSIBLE),
        ("finished", "Succeeded", Outcome.MET),
        ("finished", "Failed", Outcome.MET),
        ("first-result", "Failed", Outcome.IMPOSSIBLE),
        ("complete", "Running", Outcome.WAITING),
        ("failed", "Suspended", Outcome.WAITING),
        ("delete", "Succeeded", Outcome.WAITING),
    ],
)
def test_a_goal_is_met_impossible_or_waited_for(word: str, phase: str, expected: Outcome) -> None:
    assert outcome(word, seen(phase=phase)) is expected


def test_a_first_result_is_enough_while_the_rest_still_runs() -> None:
    assert outcome("first-result", seen(phase="Running", succeeded=1)) is Outcome.MET


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("complete", Outcome.IMPOSSIBLE),
        ("succeeded", Outcome.IMPOSSIBLE),
        ("failed", Outcome.WAITING),
        ("finished", Outcome.WAITING),
        ("first-result", Outcome.WAITING),
    ],
)
def test_success_is_given_up_while_the_rest_still_runs(word: str, expected: Outcome) -> None:
    now = seen(phase="Running", failed=1, cannotSucceed="1 of 2 tasks failed")
    assert outcome(word, now) is expected


def test_gone_meets_a_deletion_and_ends_every_other_goal() -> None:
    assert outcome("delete", None) is Outcome.MET
    assert outcome("succeeded", None) is Outcome.IMPOSSIBLE
    assert outcome("succeeded", seen(deleted=True, phase="Running")) is Outcome.IMPOSSIBLE


def test_the_status_of_an_older_spec_answers_nothing() -> None:
    assert outcome("succeeded", seen(generation=2, phase="Succeeded")) is Outcome.WAITING
    assert outcome("succeeded", seen(generation=2, phase="Failed")) is Outcome.WAITING


def test_an_object_that_nobody_has_looked_at_is_waited_for() -> None:
    row = seen().resource._replace(status="")
    assert outcome("complete", view(row, lambda: "{}")) is Outcome.WAITING


def test_the_reason_of_a_failure_is_part_of_the_answer() -> None:
    failed = seen(phase="Failed", reason="MaxFailedIndexesExceeded", message="4 tasks failed")
    told = answer(Goal("succeeded"), failed)
    assert told == Answer(Outcome.IMPOSSIBLE, "MaxFailedIndexesExceeded: 4 tasks failed")


def condition(status: str) -> dict[str, object]:
    return {"type": "Complete", "status": status, "reason": "Completed"}


@pytest.mark.parametrize(
    ("word", "status", "phase", "expected"),
    [
        ("condition=Complete", "True", "Succeeded", Outcome.MET),
        ("condition=complete", "True", "Succeeded", Outcome.MET),
        ("condition=Complete=False", "False", "Running", Outcome.MET),
        ("condition=Complete", "False", "Running", Outcome.WAITING),
        ("condition=Complete", "False", "Failed", Outcome.IMPOSSIBLE),
        ("condition=Other", "True", "Running", Outcome.WAITING),
        ("condition=Other", "True", "Failed", Outcome.IMPOSSIBLE),
        ("condition=Other=False", "True", "Failed", Outcome.MET),
    ],
)
def test_a_condition_is_compared_with_its_wished_status(
    word: str, status: str, phase: str, expected: Outcome
) -> None:
    assert outcome(word, seen(phase=phase, conditions=[condition(status)])) is expected


@pytest.mark.parametrize("text", ["", "condition=", "succeded", "Complete", "for ever"])
def test_what_is_no_goal_is_refused_with_the_nearest(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        goal(text)
    assert caught.value.hint
