"""Reports money to users: the status of a Budget, and warnings, each sent once.

Called by decide/passes.py. The charges against a Budget are in budgets.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleetctl.controllers.money import budget
from fleetctl.controllers.money.budget import Allowance, BudgetAccount
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.specs.kinds.budget import BudgetSpec

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import Track


def budget_status(
    state: EngineState,
    track: Track,
    account: BudgetAccount,
    now_s: float,
) -> Status:
    """Returns the status of a Budget; emits warnings, each once a period and a cap.

    account: the charges against it in this tick.
    """
    assert isinstance(track.spec, BudgetSpec)
    since_s, until_s = budget.period_of(track.spec.period, now_s)
    if until_s is not None:
        state.queue.add(track.resource.uid, until_s)
    before = track.status
    same = before.get("since") == since_s and before.get("maxCost") == account.cap.max_usd
    value = before.get("warned") if same else 0
    warned = max(value if isinstance(value, int) else 0, account.warned)
    if warned and warned != value:
        _record_warning(state, track, account, warned)
    return {
        "phase": "Ready",
        "reason": "Ready",
        "message": "",
        "waitingOn": [],
        "observedGeneration": track.resource.generation,
        **format_account(account),
        "since": since_s,
        "until": until_s,
        "warned": warned,
    }


def format_account(account: BudgetAccount) -> Status:
    """Returns the figures. JSON knows no infinity: reserved is None while a live run has no limit
    of time.
    """
    endless = account.reserved_usd == float("inf")
    left_usd = 0.0 if endless else account.left_usd
    used_up = left_usd <= budget.TINY_USD
    state = "Exhausted" if used_up else "Warning" if account.warned else "OK"
    return {
        "used": round(account.charged_usd, 6),
        "reserved": None if endless else round(account.reserved_usd, 6),
        "left": round(left_usd, 6),
        "maxCost": account.cap.max_usd,
        "state": state,
        "unpricedSeconds": round(account.unpriced_s, 3),
    }


def say_money(
    state: EngineState,
    track: Track,
    allowance: Allowance,
    after: Mapping[str, object],
) -> None:
    """Warnings of an object whose status becomes `after`, each once: a level of its own budget
    is crossed, or money is what it lacks.
    """
    level = _read_warned(after)
    level_before = _read_warned(track.status)
    if allowance.own is not None and level > level_before:
        _record_warning(state, track, allowance.own, level)
    lacks = _read_lacking(after)
    lacked = _read_lacking(track.status)
    if lacks[0] and lacks[0] != lacked[0]:
        state.say(track.resource.uid, lacks[0], lacks[1], kind="Warning")


def _record_warning(
    state: EngineState,
    track: Track,
    account: BudgetAccount,
    level: int,
) -> None:
    cap = account.cap
    spent_usd = account.charged_usd + account.accrued_usd
    parts = f"{budget.format_usd(spent_usd)} of {budget.format_usd(cap.max_usd)}"
    text = f"{parts} is used, which is {level}% or more"
    state.say(track.resource.uid, "BudgetWarning", text, kind="Warning")


def _read_warned(status: Mapping[str, object]) -> int:
    own = status.get("budget")
    level = own.get("warned") if isinstance(own, dict) else 0
    if isinstance(level, int):
        return level
    return 0


def _read_lacking(status: Mapping[str, object]) -> tuple[str, str]:
    """Returns reason and sentence of the condition BudgetOK while it is False; else both empty."""
    conditions = status.get("conditions")
    for found in conditions if isinstance(conditions, list) else ():
        if found["type"] == "BudgetOK" and found["status"] == "False":
            return str(found["reason"]), str(found["message"])
    return "", ""
