"""Tracks budgets over many objects: the charges against each now, the objects that wait for money,
Functions with warm containers among them, the status that users read, and warnings, each sent
once.

Counted again from live runs and from the ledger (both ledger.py), so that a crash, a deletion or a
new period cannot make it drift.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from fleetctl.controllers import budget
from fleetctl.controllers.budget import (
    Allowance,
    BudgetAccount,
    BudgetDenial,
    MoneyCap,
    OnExceeded,
)
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import EnsureFunction, Plan
from fleetctl.controllers.status_keys import Status
from fleetctl.engine.capacity.price_book import PriceBook
from fleetctl.engine.money import ledger
from fleetctl.engine.money.ledger import RunCharges
from fleetctl.engine.money.warm_functions import KIND, WarmFunctionCosts
from fleetctl.engine.shared.part import EnginePart, PartWiring, WorkDecision
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.kinds.budget import BudgetSpec
from fleetctl.specs.kinds.registry import KINDS, parse_spec

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import ResourceWork, Track


BUDGET = "Budget"


class Budgets(EnginePart):
    kind = BUDGET
    applies_at_once = True
    makes_passes = True
    rests = True
    field = "budget"

    def __init__(
        self,
        state: EngineState,
        *,
        market: PriceBook,
        charges: RunCharges,
    ) -> None:
        self._state = state
        self._charges = charges
        self.warming = WarmFunctionCosts(state, market=market, charges=charges)
        self._uids: dict[str, None] = {}  # of the Budgets, and of some that are gone
        self._accounts: dict[str, BudgetAccount] = {}  # uid of a Budget -> what counts against it
        self._seen: dict[str, tuple[object, ...]] = {}  # how each stood when it was counted last
        self._waiting: dict[str, None] = {}  # uids that wait for money, the longest waiting first

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state, market=wiring.get(PriceBook), charges=wiring.get(RunCharges))

    # -- ticks ---------------------------------------------------------------------------------

    def load(self) -> None:
        self._seen.clear()
        self._uids = {it.resource.uid: None for it in self._state.tracks.of_kind(BUDGET)}

    def take(self, uid: str) -> None:
        self._uids[uid] = None

    def begin_tick(self, now_s: float) -> list[str]:
        """Returns the uids that waited for money and may find some now."""
        self._accounts = {
            track.resource.uid: self._count_account(track, spec, now_s)
            for track, spec in self._budgets()
        }
        stands = {uid: _comparable_account(account) for uid, account in self._accounts.items()}
        before = self._seen
        self._seen = stands
        if stands == before or not self._waiting:
            return []
        woken = list(self._waiting)
        self._waiting.clear()
        return woken

    def end_tick(self) -> Iterator[str]:
        """Yields the Budgets whose status differs from their present figures, after the passes of a
        tick.
        """
        for uid, account in self._accounts.items():
            track = self._state.tracks.get(uid)
            figures: Mapping[str, object] = format_account(account)
            if track is not None and any(track.status.get(it) != figures[it] for it in figures):
                yield uid

    # -- passes --------------------------------------------------------------------------------

    def run_pass(self, track: Track, now_s: float) -> Status:
        assert isinstance(track.spec, BudgetSpec)
        account = self.account(track, track.spec, now_s)
        return budget_status(self._state, track, account, now_s)

    def list_inputs(self, work: ResourceWork, now_s: float) -> Mapping[str, Any]:
        return {"allowance": self.allowance(work, now_s)}

    def take_decision(self, decision: WorkDecision) -> None:
        if decision.plan.denied is not None:
            self.denied(decision.work.track)

    def allowance(self, work: ResourceWork, now_s: float) -> Allowance:
        """Returns the money that the next pass of this object may spend."""
        shared = self.shared(work.resource)
        own = self._find_own_account(work, now_s)
        accounts = [*([own] if own is not None else []), *shared]
        unit = KINDS[work.resource.kind].unit
        return Allowance(accounts, own, unit, _count_left(work))

    def shared(self, resource: Resource) -> list[BudgetAccount]:
        """Returns the accounts of the Budgets that select this object."""
        return [
            self._accounts[budget_.resource.uid]
            for budget_, spec in self._budgets()
            if budget_.resource.uid in self._accounts
            and budget_.resource.namespace == resource.namespace
            and budget.matches_labels(spec.selector, resource.labels)
        ]

    def account(
        self,
        track: Track,
        spec: BudgetSpec,
        now_s: float,
    ) -> BudgetAccount:
        """Returns the charges against this Budget in this tick."""
        return self._accounts.get(track.resource.uid) or self._count_account(track, spec, now_s)

    def denied(self, track: Track) -> None:
        """Records that a pass found too little money; its object is looked at again when there is
        more.
        """
        self._waiting.setdefault(track.resource.uid)

    def serving_denied(self, track: Track) -> BudgetDenial | None:
        """Returns why a Function's server must not be called, as of the last tick."""
        return self.warming.serving_denied(track, self.shared(track.resource))

    # -- counting ----------------------------------------------------------------------------------

    def _budgets(self) -> Iterator[tuple[Track, BudgetSpec]]:
        for uid in self._uids:
            track = self._state.tracks.get(uid)
            if track is None or track.resource.deleted_at_s is not None:
                continue
            if track.spec is None:
                try:
                    track.spec = parse_spec(BUDGET, track.resource.spec)
                except ValueError:
                    continue  # its pass raises the same, and reports it in its status
            assert isinstance(track.spec, BudgetSpec)
            yield track, track.spec

    def _count_account(
        self,
        track: Track,
        spec: BudgetSpec,
        now_s: float,
    ) -> BudgetAccount:
        start_s, until_s = budget.period_of(spec.period, now_s)
        cap = MoneyCap(
            owner=track.resource.key,
            raise_by=f"{track.resource.key} maxCost",
            max_usd=spec.max_cost,
            on_exceeded=OnExceeded(spec.on_exceeded),
            warn_at=spec.warn_at,
            until_s=until_s,
        )
        account = BudgetAccount(cap)
        first_day = budget.day_of(start_s)
        namespace = track.resource.namespace
        for entry in self._charges.entries():
            if entry.day < first_day or entry.namespace != namespace:
                continue
            if budget.matches_labels(spec.selector, entry.labels):
                account.charged_usd += entry.usd
                account.unpriced_s += entry.unpriced_s
        for other in self._state.tracks.values():
            about = other.resource
            if about.namespace != namespace or not budget.matches_labels(
                spec.selector, about.labels
            ):
                continue
            if KINDS[about.kind].runs:
                ledger.reserve_runs(self._state, account, other, now_s)
            else:
                self.warming.reserve(account, other, first_s=start_s, now_s=now_s)
        for uid, usd in self._state.calling_usd.items():
            caller = self._state.resource_of(uid)
            if caller is None or caller.namespace != namespace:
                continue
            if budget.matches_labels(spec.selector, caller.labels):
                ledger.reserve_calls(account, usd)
        return account

    def _find_own_account(self, work: ResourceWork, now_s: float) -> BudgetAccount | None:
        """Returns the account of the object's own budget; counts all that it ever ran."""
        spec = work.track.spec
        history = work.history
        wanted = spec.budget if isinstance(spec, WorkSpec) else None
        if wanted is None:
            return None
        cap = MoneyCap(
            owner="its budget",
            raise_by=f"{work.resource.key} budget.maxCost",
            max_usd=wanted.max_cost,
            on_exceeded=OnExceeded(wanted.on_exceeded),
            warn_at=wanted.warn_at,
        )
        account = BudgetAccount(cap, charged_usd=history.charged_usd, unpriced_s=history.unpriced_s)
        ledger.reserve_runs(self._state, account, work.track, now_s)
        calling_usd = self._state.calling_usd.get(work.resource.uid, 0.0)
        ledger.reserve_calls(account, calling_usd)
        return account


def _comparable_account(account: BudgetAccount) -> tuple[object, ...]:
    # The charged amount is separate: a reservation that was charged whole frees no money, and
    # waiting objects learn that none will come free.
    money = round(account.committed_usd, 6), round(account.charged_usd, 6)
    return account.cap, *money, account.unpriced_live, account.unpriced_s


def _count_left(work: ResourceWork) -> int:
    """Units that have not ended and do not run; at least one."""
    total = work.controller.total
    history = work.history
    if total is None:
        return 1
    return max(1, total - history.done - len(history.failed) - len(history.live))


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


class FunctionObjects(EnginePart):
    kind = KIND

    def __init__(self, state: EngineState, budgets: Budgets) -> None:
        self._state = state
        self._budgets = budgets

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state, wiring.get(Budgets))

    def limit_asset(self, track: Track, plan: Plan) -> Plan:
        if not any(isinstance(action, EnsureFunction) for action in plan.actions):
            return plan
        budgets = self._budgets
        denied = budgets.warming.denied(track, budgets.shared(track.resource))
        if denied is None:
            return plan
        budgets.denied(track)
        if denied.until_s is not None:
            self._state.queue.add(track.resource.uid, denied.until_s)
        return Plan(
            (),
            plan.phase,
            denied.reason,
            denied.message,
            (denied.message,),
        )

    def add_status(
        self,
        track: Track,
        status: Status,
        now_s: float,
    ) -> Status:
        accounts = self._budgets.shared(track.resource)
        status |= self._budgets.warming.status(track, accounts, now_s)
        address = track.asset.address
        url = address.url if address is not None else str(track.status.get("url") or "")
        if url and getattr(track.spec, "port", None) is not None:
            status["url"] = url
        if track.asset.warning:
            status["warning"] = track.asset.warning
        return status

    def dropped(self, track: Track) -> None:
        if "warm" in track.status:
            self._budgets.warming.gone(track, self._budgets.shared(track.resource))
