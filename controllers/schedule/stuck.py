"""Whether anything that is on its way can still get an object on. Told in its status, for who waits
with `apply --wait`. Pure; called by controllers/status.py.
"""

from __future__ import annotations

from enum import StrEnum

from fleetctl.controllers.history.history import History
from fleetctl.controllers.money.budget import TOO_SMALL
from fleetctl.controllers.planning.plan import Phase, Plan
from fleetctl.controllers.schedule.capacity import spills_at_s
from fleetctl.controllers.schedule.desired import Desired
from fleetctl.specs.values.hints import parted


class Lack(StrEnum):
    """What only somebody outside can change."""

    MISSING = "missing"  # an object, a variable or a key that is not there
    CAPACITY = "capacity"  # no machine of the kind
    ACCOUNT = "account"  # the service's own word on the account, which may be an odd answer
    MONEY = "money"
    PLACE = "place"


_OF_WAITS = {
    "SecretMissing": Lack.MISSING,
    "FunctionMissing": Lack.MISSING,
    "EndpointMissing": Lack.MISSING,
    "KeyMissing": Lack.MISSING,
    "AccountNotReady": Lack.MISSING,
    "DependencyMissing": Lack.MISSING,
    "NoProvider": Lack.MISSING,
    "QueueMissing": Lack.MISSING,
    "QueueSuspended": Lack.PLACE,
    "QueueTooSmall": Lack.PLACE,
    "NoSuchMachine": Lack.CAPACITY,
    "NoPlace": Lack.PLACE,
    "KeyRefused": Lack.ACCOUNT,
    "AccessDenied": Lack.ACCOUNT,
    "SpendLimit": Lack.ACCOUNT,
    "Suspended": Lack.ACCOUNT,
}
_OF_MONEY = frozenset({TOO_SMALL, "PriceUnknown", "NoTimeLimit"})


def stuck(plan: Plan, desired: Desired, history: History, now_s: float) -> dict[str, str] | None:
    """`{lack, reason, message, hint}`; None while something gets on, or will by itself."""
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
        return _told(_OF_WAITS[first.reason], first.reason, first.message)
    denied = plan.denied
    if denied is not None:
        # What others hold comes free when they end.
        ended = denied.for_good or denied.reason in _OF_MONEY
        return _told(Lack.MONEY, denied.reason, denied.message) if ended else None
    if plan.reason not in _OF_WAITS:
        return None
    return _told(_OF_WAITS[plan.reason], plan.reason, plan.message)


def _told(lack: Lack, reason: str, text: str) -> dict[str, str]:
    message, hint = parted(text)
    return {"lack": lack.value, "reason": reason, "message": message, "hint": hint}
