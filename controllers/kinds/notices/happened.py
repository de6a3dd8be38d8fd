"""What a change of a status tells people who asked for notices. Pure; called for each status that
is written, in its transaction.

A kind with an event of its own adds a rule to RULES, and the word to specs/blocks/notify.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fleetctl.controllers.planning.plan import TERMINAL_PHASES

Status = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Happened:
    """event: a word of `notify.on`. occasion: tells it from the same event at another time; a
    function of the status alone.
    """

    event: str
    occasion: str


def _end(before: Status, after: Status) -> Happened | None:
    """It is over, or over once more after a retry or a change. Where nothing ran since and the
    work is the same, such as after a change of `notify`, there is nothing to tell.
    """
    phase, at = after.get("phase"), after.get("completionTime")
    if phase not in TERMINAL_PHASES or at is None:
        return None
    if all(before.get(it) == after.get(it) for it in ("phase", "contents")):
        return None
    return Happened(str(phase), f"{at}")


def _low(before: Status, after: Status) -> Happened | None:
    """A Budget has crossed a level of its `warnAt`, in this period and with this cap."""
    level = after.get("warned")
    same = all(before.get(it) == after.get(it) for it in ("since", "maxCost", "warned"))
    if not level or same:
        return None
    return Happened("BudgetLow", f"{after.get('since')}/{after.get('maxCost')}/{level}")


def _own_low(before: Status, after: Status) -> Happened | None:
    """The same of an object's own `budget`."""
    own, own_before = after.get("budget"), before.get("budget")
    if not isinstance(own, Mapping):
        return None
    told = own_before if isinstance(own_before, Mapping) else {}
    return _low(told, own)


def _source(before: Status, after: Status) -> Happened | None:
    """A Source begins to fail, or fails at another revision. Of a repository that is only away
    nothing is told: what is there goes on, and each gap of a network would be a notice.
    """
    if not after.get("lastError") or after.get("reason") == "SourceUnreachable":
        return None
    failed = before.get("lastError") and before.get("reason") != "SourceUnreachable"
    if failed and before.get("attemptedRevision") == after.get("attemptedRevision"):
        return None
    return Happened("SourceFailed", f"{after.get('failingSince')}/{after.get('attemptedRevision')}")


RULES: Mapping[str, tuple[Callable[[Status, Status], Happened | None], ...]] = {
    "Budget": (_low,),
    "Source": (_source,),
}
OF_WORK = (_end, _own_low)


def happened(kind: str, before: Status, after: Status, *, runs: bool) -> list[Happened]:
    """runs: it is of a kind that does work."""
    rules = OF_WORK if runs else RULES.get(kind, ())
    found = (rule(before, after) for rule in rules)
    return [it for it in found if it is not None]
