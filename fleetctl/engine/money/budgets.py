"""Budgets over many objects: what counts against each now, and who waits for money.

Called by the loop in every tick and by its passes. Counted anew from what is live (reservations.py)
and from the ledger (ledger.py), so that a crash, a deletion or a new period cannot make it
drift. How a Budget stands is told in budget_status.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fleetctl.controllers.model import Resource
from fleetctl.controllers.money import budget
from fleetctl.controllers.money.budget import Account, Allowance, Cap, Denied, OnExceeded
from fleetctl.engine.money import reservations
from fleetctl.engine.money.budget_status import numbers
from fleetctl.engine.money.warm_functions import KIND as FUNCTION
from fleetctl.engine.money.warm_functions import Warming
from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.kinds.budget import BudgetSpec
from fleetctl.specs.kinds.registry import KINDS, parse_spec

if TYPE_CHECKING:
    from fleetctl.engine.capacity.prices import Market
    from fleetctl.engine.money.ledger import Charges
    from fleetctl.engine.shared.state import State
    from fleetctl.tracking.track import Track, Work

BUDGET = "Budget"


class Budgets:
    def __init__(self, state: State, *, market: Market, charges: Charges) -> None:
        self._state = state
        self._charges = charges
        self.warming = Warming(state, market=market, charges=charges)
        self._uids: dict[str, None] = {}  # of the Budgets, and of some that are gone
        self._accounts: dict[str, Account] = {}  # uid of a Budget -> what counts against it
        self._seen: dict[str, tuple[object, ...]] = {}  # how each stood when it was counted last
        self._waiting: dict[str, None] = {}  # uids that wait for money, the longest waiting first

    def load(self) -> None:
        """Which Budgets there are, once the tracks are there."""
        self._seen.clear()
        tracks = self._state.tracks.assets.values()
        self._uids = {it.resource.uid: None for it in tracks if it.resource.kind == BUDGET}

    def take(self, uid: str) -> None:
        """A Budget holds from the tick in which it is heard of, whose pass comes first or last."""
        self._uids[uid] = None

    def count(self, now_s: float) -> list[str]:
        """Begin a tick; the uids that waited for money and may find some now."""
        self._accounts = {
            track.resource.uid: self._counted(track, spec, now_s) for track, spec in self._budgets()
        }
        stands = {uid: _stand(account) for uid, account in self._accounts.items()}
        before, self._seen = self._seen, stands
        if stands == before or not self._waiting:
            return []
        woken = list(self._waiting)
        self._waiting.clear()
        return woken

    def changed(self) -> Iterator[str]:
        """The Budgets whose status is not what they stand at, after the passes of a tick."""
        for uid, account in self._accounts.items():
            track = self._state.tracks.get(uid)
            figures: Mapping[str, object] = numbers(account)
            if track is not None and any(track.status.get(it) != figures[it] for it in figures):
                yield uid

    def allowance(self, work: Work, now_s: float) -> Allowance:
        """What the next pass of this object may spend."""
        shared = self.shared(work.resource)
        own = self._own(work, now_s)
        accounts = [*([own] if own is not None else []), *shared]
        unit = KINDS[work.resource.kind].unit
        return Allowance(accounts, own, unit, _left(work))

    def shared(self, resource: Resource) -> list[Account]:
        """The accounts of the Budgets that select this object."""
        return [
            self._accounts[budget_.resource.uid]
            for budget_, spec in self._budgets()
            if budget_.resource.uid in self._accounts
            and budget_.resource.namespace == resource.namespace
            and budget.selects(spec.selector, resource.labels)
        ]

    def account(self, track: Track, spec: BudgetSpec, now_s: float) -> Account:
        """What counts against this Budget in this tick."""
        return self._accounts.get(track.resource.uid) or self._counted(track, spec, now_s)

    def denied(self, track: Track) -> None:
        """A pass found too little money; its object is looked at again when there is more."""
        self._waiting.setdefault(track.resource.uid)

    def serving_denied(self, track: Track) -> Denied | None:
        """Why a Function's server is not to be asked, as of the last tick."""
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
                    continue  # its pass raises the same, and says so in its status
            assert isinstance(track.spec, BudgetSpec)
            yield track, track.spec

    def _counted(self, track: Track, spec: BudgetSpec, now_s: float) -> Account:
        start_s, until_s = budget.period_of(spec.period, now_s)
        cap = Cap(
            owner=track.resource.key,
            raise_by=f"{track.resource.key} maxCost",
            max_usd=spec.max_cost,
            on_exceeded=OnExceeded(spec.on_exceeded),
            warn_at=spec.warn_at,
            until_s=until_s,
        )
        account = Account(cap)
        first_day, namespace = budget.day_of(start_s), track.resource.namespace
        for entry in self._charges.entries():
            if entry.day < first_day or entry.namespace != namespace:
                continue
            if budget.selects(spec.selector, entry.labels):
                account.charged_usd += entry.usd
                account.unpriced_s += entry.unpriced_s
        for other in self._state.tracks.values():
            about = other.resource
            if about.namespace != namespace or not budget.selects(spec.selector, about.labels):
                continue
            if KINDS[about.kind].runs:
                reservations.reserve(self._state, account, other, now_s)
            elif about.kind == FUNCTION:
                self.warming.reserve(account, other, first_s=start_s, now_s=now_s)
        for uid, usd in self._state.calling_usd.items():
            caller = self._state.resource_of(uid)
            if caller is None or caller.namespace != namespace:
                continue
            if budget.selects(spec.selector, caller.labels):
                reservations.reserve_calls(account, usd)
        return account

    def _own(self, work: Work, now_s: float) -> Account | None:
        """Of the object's own budget; counts all that it ever ran."""
        spec, history = work.track.spec, work.history
        wanted = spec.budget if isinstance(spec, Execution) else None
        if wanted is None:
            return None
        cap = Cap(
            owner="its budget",
            raise_by=f"{work.resource.key} budget.maxCost",
            max_usd=wanted.max_cost,
            on_exceeded=OnExceeded(wanted.on_exceeded),
            warn_at=wanted.warn_at,
        )
        account = Account(cap, charged_usd=history.charged_usd, unpriced_s=history.unpriced_s)
        reservations.reserve(self._state, account, work.track, now_s)
        calling_usd = self._state.calling_usd.get(work.resource.uid, 0.0)
        reservations.reserve_calls(account, calling_usd)
        return account


def _stand(account: Account) -> tuple[object, ...]:
    # What is charged is told apart: a reservation that was charged whole frees nothing, and whoever
    # waits learns that nothing will come free.
    money = round(account.committed_usd, 6), round(account.charged_usd, 6)
    return account.cap, *money, account.unpriced_live, account.unpriced_s


def _left(work: Work) -> int:
    """Units that have not ended and do not run; at least one."""
    total, history = work.controller.total, work.history
    if total is None:
        return 1
    return max(1, total - history.done - len(history.failed) - len(history.live))
