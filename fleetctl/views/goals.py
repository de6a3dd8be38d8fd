"""What `wait --for` waits for, as pure questions: is it met, and can it still be met?

Called by wait and apply --wait with a fresh view each time the store changed.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from fleetctl.common.errors import UsageError
from fleetctl.common.text import did_you_mean, safe
from fleetctl.views.objects import FAILED, SKIPPED, SUCCEEDED, View, why

WORDS = ("complete", "succeeded", "failed", "finished", "first-result", "delete")
CONDITION = "condition="


class Outcome(Enum):
    WAITING = "waiting"
    MET = "met"
    IMPOSSIBLE = "impossible"


class Answer(NamedTuple):
    """`because` is the rest of a sentence; empty while waiting."""

    outcome: Outcome
    because: str = ""


class Goal(NamedTuple):
    """`word` is one of WORDS or `condition`; the other two belong to `condition`."""

    word: str
    condition: str = ""
    status: str = "True"

    def __str__(self) -> str:
        if self.word != "condition":
            return self.word
        return f"{self.condition}={self.status}"


WAITING = Answer(Outcome.WAITING)


def goal(text: str) -> Goal:
    """The goal that a flag names. Raises UsageError with the nearest word."""
    if text in WORDS:
        return Goal(text)
    if text.startswith(CONDITION) and len(text) > len(CONDITION):
        kind, _, status = text.removeprefix(CONDITION).partition("=")
        return Goal("condition", kind, status or "True")
    near = did_you_mean(text, [*WORDS, CONDITION])
    raise UsageError(
        f"`{text}` is not a condition that can be waited for",
        hint=near or f"one of {', '.join(WORDS)} or condition=NAME",
    )


def answer(wanted: Goal, seen: View | None) -> Answer:
    """Where the goal stands, given the object as stored now, or None when it is gone."""
    if wanted.word == "delete":
        return Answer(Outcome.MET, "gone") if seen is None else WAITING
    if seen is None:
        return Answer(Outcome.IMPOSSIBLE, "it was deleted")
    if seen.resource.deleted_at_s is not None:
        return Answer(Outcome.IMPOSSIBLE, "it is being deleted")
    if not seen.current:
        return WAITING  # the status speaks of an older spec
    if wanted.word == "condition":
        return _condition(wanted, seen)
    return _phase(wanted, seen)


def _phase(wanted: Goal, seen: View) -> Answer:
    """`complete` is what Kubernetes means by it: the end, and a good one. `finished` is any end."""
    if wanted.word == "first-result" and seen.count("succeeded"):
        return Answer(Outcome.MET, "a first result is there")
    if not seen.over:
        lost = seen.text("cannotSucceed") if wanted.word in ("complete", "succeeded") else ""
        return Answer(Outcome.IMPOSSIBLE, lost) if lost else WAITING
    good = {
        "complete": (SUCCEEDED,),
        "succeeded": (SUCCEEDED,),
        "failed": (FAILED,),
        "finished": (SUCCEEDED, FAILED, SKIPPED),
    }.get(wanted.word, ())
    if seen.phase in good:
        return Answer(Outcome.MET, tally(seen))
    because = why(seen) if seen.phase in (FAILED, SKIPPED) else f"it succeeded ({tally(seen)})"
    return Answer(Outcome.IMPOSSIBLE, because or tally(seen))


def _condition(wanted: Goal, seen: View) -> Answer:
    for condition in seen.conditions:
        if str(condition.get("type", "")).lower() == wanted.condition.lower():
            if str(condition.get("status", "")).lower() == wanted.status.lower():
                return Answer(Outcome.MET, str(condition.get("reason") or ""))
            break
    else:
        if wanted.status.lower() == "false" and seen.over:
            return Answer(Outcome.MET, "never set")
    if seen.over:
        return Answer(Outcome.IMPOSSIBLE, f"it ended as {seen.phase} without that condition")
    return WAITING


def tally(seen: View) -> str:
    """`431/500 done, 44 active, 3 failed`: counts of zero are left out, save the first."""
    parts = [f"{seen.done} done"] if seen.kind.runs else [safe(seen.phase)]
    counts = (("active", seen.active), ("failed", seen.count("failed")))
    parts += [f"{count} {name}" for name, count in counts if count]
    return ", ".join(parts)
