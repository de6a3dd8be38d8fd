"""Finds the event in a change of a status that subscribers of notices receive. Pure; called for
each status that is written, in its transaction.

A kind with an event of its own adds a rule to RULES, and the word to specs/blocks/notify.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fleetctl.controllers.planning.plan import TERMINAL_PHASES

Status = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class NoticeEvent:
    """event: a word of `notify.when`. occasion: distinguishes the event from the same event at
    another time; a function of the status alone.
    """

    event: str
    occasion: str


def _find_end(before: Status, after: Status) -> NoticeEvent | None:
    """Reports an object that finished, or finished again after a retry or a change. Where no run
    started since and the work is the same, such as after a change of `notify`, it returns no event.
    """
    phase = after.get("phase")
    at = after.get("completionTime")
    if phase not in TERMINAL_PHASES or at is None:
        return None
    if all(before.get(it) == after.get(it) for it in ("phase", "contents")):
        return None
    return NoticeEvent(str(phase), f"{at}")


def _find_low_budget(before: Status, after: Status) -> NoticeEvent | None:
    """Reports a Budget that crossed a level of its `warnAt`, in this period and with this cap."""
    level = after.get("warned")
    same = all(before.get(it) == after.get(it) for it in ("since", "maxCost", "warned"))
    if not level or same:
        return None
    return NoticeEvent("BudgetLow", f"{after.get('since')}/{after.get('maxCost')}/{level}")


def _own_low(before: Status, after: Status) -> NoticeEvent | None:
    """Reports the same for an object's own `budget`."""
    own = after.get("budget")
    own_before = before.get("budget")
    if not isinstance(own, Mapping):
        return None
    told = own_before if isinstance(own_before, Mapping) else {}
    return _find_low_budget(told, own)


def _find_source_failure(before: Status, after: Status) -> NoticeEvent | None:
    """Reports a Source that begins to fail, or fails at another revision. An unreachable repository
    is not reported: its objects go on, and each gap of a network would be a notice.
    """
    if not after.get("lastError") or after.get("reason") == "SourceUnreachable":
        return None
    failed = before.get("lastError") and before.get("reason") != "SourceUnreachable"
    if failed and before.get("attemptedRevision") == after.get("attemptedRevision"):
        return None
    return NoticeEvent(
        "SourceFailed", f"{after.get('failingSince')}/{after.get('attemptedRevision')}"
    )


def _find_applied_event(before: Status, after: Status) -> NoticeEvent | None:
    """Returns an event if a Source applied another commit, or its commit again after a failure."""
    if not after.get("appliedRevision") or after.get("reason") != "Ready":
        return None
    same = before.get("appliedRevision") == after.get("appliedRevision")
    if same and (before.get("reason") == "Ready" or not before.get("lastError")):
        return None
    return NoticeEvent("SourceApplied", f"{after.get('appliedAt')}/{after.get('appliedRevision')}")


RULES: Mapping[str, tuple[Callable[[Status, Status], NoticeEvent | None], ...]] = {
    "Budget": (_find_low_budget,),
    "Source": (_find_source_failure, _find_applied_event),
}
OF_WORK = (_find_end, _own_low)


def find_notice_events(
    kind: str,
    before: Status,
    after: Status,
    *,
    runs: bool,
) -> list[NoticeEvent]:
    """Returns the events of a status change. runs: the kind does work."""
    rules = OF_WORK if runs else RULES.get(kind, ())
    found = (rule(before, after) for rule in rules)
    return [it for it in found if it is not None]
