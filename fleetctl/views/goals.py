"""The goals of `wait --for`, as pure questions: is it met, and can it still be met?

Called by wait and apply --wait with a fresh view each time the store changed.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from fleetctl.common.errors import UsageError
from fleetctl.common.text import did_you_mean, escape_line
from fleetctl.views.objects import FAILED, SKIPPED, SUCCEEDED, View, explain_status

WORDS = ("complete", "succeeded", "failed", "finished", "first-result", "delete")
CONDITION = "condition="


class GoalOutcome(Enum):
    WAITING = "waiting"
    MET = "met"
    IMPOSSIBLE = "impossible"


class GoalStatus(NamedTuple):
    """The state of a goal. `because` is the rest of a sentence; empty while waiting."""

    outcome: GoalOutcome
    because: str = ""


class WaitGoal(NamedTuple):
    """A goal. `word` is one of WORDS or `condition`; the other two belong to `condition`."""

    word: str
    condition: str = ""
    status: str = "True"

    def __str__(self) -> str:
        if self.word != "condition":
            return self.word
        return f"{self.condition}={self.status}"


WAITING = GoalStatus(GoalOutcome.WAITING)


def parse_goal(text: str) -> WaitGoal:
    """Returns the goal that a flag names. Raises UsageError with the nearest word."""
    if text in WORDS:
        return WaitGoal(text)
    if text.startswith(CONDITION) and len(text) > len(CONDITION):
        kind, _, status = text.removeprefix(CONDITION).partition("=")
        return WaitGoal("condition", kind, status or "True")
    near = did_you_mean(text, [*WORDS, CONDITION])
    raise UsageError(
        f"`{text}` is not a condition that can be waited for",
        hint=near or f"one of {', '.join(WORDS)} or condition=NAME",
    )


def check_goal(wanted: WaitGoal, seen: View | None) -> GoalStatus:
    """Returns the state of the goal, given the object as stored now, or None when it is gone."""
    if wanted.word == "delete":
        if seen is None:
            return GoalStatus(GoalOutcome.MET, "gone")
        return WAITING
    if seen is None:
        return GoalStatus(GoalOutcome.IMPOSSIBLE, "it was deleted")
    if seen.resource.deleted_at_s is not None:
        return GoalStatus(GoalOutcome.IMPOSSIBLE, "it is being deleted")
    if not seen.current:
        return WAITING  # the status is of an older spec
    if wanted.word == "condition":
        return _check_condition(wanted, seen)
    return _check_phase(wanted, seen)


def _check_phase(wanted: WaitGoal, seen: View) -> GoalStatus:
    """Compares the phase. `complete` is as in Kubernetes: the end, and a good one. `finished` is
    any end."""
    if wanted.word == "first-result" and seen.count("succeeded"):
        return GoalStatus(GoalOutcome.MET, "a first result is there")
    if not seen.over:
        lost = seen.text("cannotSucceed") if wanted.word in ("complete", "succeeded") else ""
        if lost:
            return GoalStatus(GoalOutcome.IMPOSSIBLE, lost)
        return WAITING
    good = {
        "complete": (SUCCEEDED,),
        "succeeded": (SUCCEEDED,),
        "failed": (FAILED,),
        "finished": (SUCCEEDED, FAILED, SKIPPED),
    }.get(wanted.word, ())
    if seen.phase in good:
        return GoalStatus(GoalOutcome.MET, format_tally(seen))
    because = (
        explain_status(seen)
        if seen.phase in (FAILED, SKIPPED)
        else f"it succeeded ({format_tally(seen)})"
    )
    return GoalStatus(GoalOutcome.IMPOSSIBLE, because or format_tally(seen))


def _check_condition(wanted: WaitGoal, seen: View) -> GoalStatus:
    for condition in seen.conditions:
        if str(condition.get("type", "")).lower() == wanted.condition.lower():
            if str(condition.get("status", "")).lower() == wanted.status.lower():
                return GoalStatus(GoalOutcome.MET, str(condition.get("reason") or ""))
            break
    else:
        if wanted.status.lower() == "false" and seen.over:
            return GoalStatus(GoalOutcome.MET, "never set")
    if seen.over:
        return GoalStatus(
            GoalOutcome.IMPOSSIBLE, f"it ended as {seen.phase} without that condition"
        )
    return WAITING


def format_tally(seen: View) -> str:
    """Returns `431/500 done, 44 active, 3 failed`: counts of zero are left out, save the first."""
    parts = [f"{seen.done} done"] if seen.kind.runs else [escape_line(seen.phase)]
    counts = (("active", seen.active), ("failed", seen.count("failed")))
    parts += [f"{count} {name}" for name, count in counts if count]
    return ", ".join(parts)
