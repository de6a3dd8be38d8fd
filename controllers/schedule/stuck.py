"""Decides if any pending event can still advance an object. Reported in its status, for `apply
--wait`. Pure; called by controllers/status.py.
"""

from __future__ import annotations

from enum import StrEnum

from fleetctl.controllers.history.history import History
from fleetctl.controllers.money.budget import TOO_SMALL, BudgetDenial
from fleetctl.controllers.planning.plan import Phase, Plan
from fleetctl.controllers.schedule.capacity import spills_at_s
from fleetctl.controllers.schedule.desired import DesiredObject, StartWait


class StuckCause(StrEnum):
    """The missing thing that only a user can provide."""

    MISSING = "missing"  # an object, a variable or a key that is not there
    CAPACITY = "capacity"  # no machine of the kind
    ACCOUNT = "account"  # the service's reason about the account, which may be an odd reply
    MONEY = "money"
    PLACE = "place"


_OF_WAITS = {
    "SecretMissing": StuckCause.MISSING,
    "FunctionMissing": StuckCause.MISSING,
    "EndpointMissing": StuckCause.MISSING,
    "KeyMissing": StuckCause.MISSING,
    "AccountNotReady": StuckCause.MISSING,
    "DependencyMissing": StuckCause.MISSING,
    "NoProvider": StuckCause.MISSING,
    "QueueMissing": StuckCause.MISSING,
    "QueueSuspended": StuckCause.PLACE,
    "QueueTooSmall": StuckCause.PLACE,
    "NoSuchMachine": StuckCause.CAPACITY,
    "NoPlace": StuckCause.PLACE,
    "KeyRefused": StuckCause.ACCOUNT,
    "HostKeyUnknown": StuckCause.ACCOUNT,
    "HostKeyChanged": StuckCause.ACCOUNT,
    "NoPython": StuckCause.ACCOUNT,
    "WrongConfig": StuckCause.ACCOUNT,
    "AccessDenied": StuckCause.ACCOUNT,
    "SpendLimit": StuckCause.ACCOUNT,
    "Suspended": StuckCause.ACCOUNT,
}
_OF_MONEY = frozenset({TOO_SMALL, "PriceUnknown", "NoTimeLimit"})


def explain_stuck(
    plan: Plan,
    desired: DesiredObject,
    history: History,
    now_s: float,
) -> dict[str, str] | None:
    """Returns `{lack, reason, message, hint}`; None while the object progresses, or will by
    itself.
    """
    if plan.phase is not Phase.PENDING or plan.active:
        return None
    if history.waiting.next_due_at_s(now_s) is not None:
        return None
    if spills_at_s(desired, history, now_s) is not None:
        return None
    if history.live:
        waits = [desired.waits.get(name) for name in history.live]
        first = waits[0]
        if first is None or any(it is None or it.reason not in _OF_WAITS for it in waits):
            return None
        return _build_lack(_OF_WAITS[first.reason], first)
    denied = plan.denied
    if denied is not None:
        # Money that other objects hold is freed when they end.
        ended = denied.for_good or denied.reason in _OF_MONEY
        if ended:
            return _build_lack(StuckCause.MONEY, denied)
        return None
    if plan.reason not in _OF_WAITS:
        return None
    return _build_lack(_OF_WAITS[plan.reason], plan)


def _build_lack(lack: StuckCause, why: StartWait | BudgetDenial | Plan) -> dict[str, str]:
    return {"lack": lack.value, "reason": why.reason, "message": why.message, "hint": why.hint}
