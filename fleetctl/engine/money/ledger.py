"""Records the charges of runs, day by day, from which budgets are counted, and computes the money
to set aside for live runs and for another one.

Written in the tick's transaction, with the end that it charges for, so that a crash charges for
no run twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from fleetctl.controllers import budget
from fleetctl.controllers.budget import BudgetAccount
from fleetctl.controllers.model import LIVE_STATES, Run, RunState
from fleetctl.controllers.schedule.desired import deadline_at_s
from fleetctl.engine.capacity.price_book import contract_of, terms_of
from fleetctl.engine.shared.part import EnginePart, PartWiring
from fleetctl.stores.base import LedgerEntry

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import ResourceWork, RunCalls, Track


class RunCharges(EnginePart):
    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._ledger: dict[tuple[int, str, str], LedgerEntry] = {}
        self.fresh: list[LedgerEntry] = []  # of this tick, not written yet

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state)

    def load(self) -> None:
        """Reads the ledger back; an entry that was not written is forgotten with its tick."""
        self.fresh.clear()
        self._ledger = {_entry_key(entry): entry for entry in self._state.store.ledger.entries()}

    def entries(self) -> Iterable[LedgerEntry]:
        """Returns all written entries, one a day, namespace and set of labels."""
        return self._ledger.values()

    def ended(
        self,
        track: Track,
        run: Run,
        call: RunCalls | None,
    ) -> Run:
        """Returns the ended run with its charge, which is written with it."""
        contract = contract_of(self._state, run.provider)
        known = call.held_from_s if call is not None else None
        if run.sandbox != run.name:
            # In another's sandbox it costs from its own beginning; the time before is the other's.
            begun_s = run.ended_at_s if run.started_at_s is None else run.started_at_s
            known = max(begun_s or 0.0, run.created_at_s)
            quantum_s = 0.0
        else:
            quantum_s = contract.billing_quantum_s if contract is not None else 0.0
            if call is not None and call.nothing_made and run.started_at_s is None:
                known = run.ended_at_s
                quantum_s = 0.0
        usd = budget.charge_usd(run, held_from_s=known, quantum_s=quantum_s)
        charged = replace(run, usd=usd)
        self.add(track, usd or 0.0, 0.0 if usd is not None else _run_seconds(run))
        return charged

    def charge_idle(
        self,
        work: ResourceWork,
        last: Run,
        until_s: float,
    ) -> Run:
        """Returns the last run of a sandbox that was open until now, charged for its idle
        time too.
        """
        if not last.usd_per_s or last.usd is None or last.ended_at_s is None:
            return last
        usd = last.usd_per_s * max(0.0, until_s - last.ended_at_s)
        work.history.add_charge(usd)
        self.add(work.track, usd, 0.0)
        return replace(last, usd=last.usd + usd)

    def add(
        self,
        track: Track,
        usd: float,
        unpriced_s: float,
    ) -> None:
        """Adds a charge to the ledger, with this tick."""
        if usd or unpriced_s:
            day = budget.day_of(self._state.clock.now_s())
            about = track.resource
            self.fresh.append(
                LedgerEntry(
                    day,
                    about.labels,
                    usd,
                    unpriced_s,
                    about.namespace,
                )
            )

    def write(self) -> None:
        """Writes the charges of this tick, in its transaction."""
        fresh, self.fresh = self.fresh, []
        self._state.store.ledger.add(fresh)
        for entry in fresh:
            key = _entry_key(entry)
            known = self._ledger.get(key)
            self._ledger[key] = entry if known is None else _add_entries(known, entry)


def _entry_key(entry: LedgerEntry) -> tuple[int, str, str]:
    return entry.day, entry.namespace, json.dumps(entry.labels, sort_keys=True)


def _add_entries(known: LedgerEntry, more: LedgerEntry) -> LedgerEntry:
    usd = known.usd + more.usd
    unpriced_s = known.unpriced_s + more.unpriced_s
    return replace(known, usd=usd, unpriced_s=unpriced_s)


def _run_seconds(run: Run) -> float:
    if run.started_at_s is None or run.ended_at_s is None:
        return 0.0
    return max(0.0, run.ended_at_s - run.started_at_s)


def reserve_runs(
    state: EngineState,
    account: BudgetAccount,
    track: Track,
    now_s: float,
) -> None:
    """Adds the live runs of an object."""
    work = track.work
    for run in _list_live(state, track):
        worst_usd = None if work is None else _worst_now_usd(state, work, run, now_s)
        usd = budget.reserved_usd(run, worst_usd=worst_usd, now_s=now_s)
        if usd is None:
            account.unpriced_live += 1
        else:
            account.reserved_usd += usd
            account.accrued_usd += budget.accrued_usd(run, now_s)


def reserve_calls(account: BudgetAccount, usd: float) -> None:
    """Adds calls of models that are under way; they may outlast the calling object."""
    account.calling_usd += usd
    account.reserved_usd += usd


def _list_live(state: EngineState, track: Track) -> Iterator[Run]:
    if track.work is not None:
        yield from track.work.history.live.values()
    elif not track.dormant:
        # Its spec cannot be read, or its pass raised: its runs cost all the same.
        rows = state.store.runs.of(track.resource.uid)
        yield from (run for run, _ in rows if run.state in LIVE_STATES)


def _worst_now_usd(
    state: EngineState,
    work: ResourceWork,
    run: Run,
    now_s: float,
) -> float | None:
    """Returns the worst case under the present deadline, which may be later than when the run
    began.
    """
    controller = work.controller
    if controller is None or run.state is RunState.STOPPING:
        return None
    unit = controller.unit(run.index)
    if unit is None or unit.template_hash != run.template_hash:
        return None  # it goes on under the template that it began with, or is stopped
    since_s = now_s if run.started_at_s is None else run.started_at_s
    lasts_s = _lasts_s(
        state,
        work,
        run.provider,
        run.index,
        now_s,
        since_s,
    )
    return budget.worst_case_usd(run.usd_per_s, lasts_s)


def _lasts_s(
    state: EngineState,
    work: ResourceWork,
    provider: str,
    index: int,
    now_s: float,
    since_s: float,
) -> float:
    policy = work.controller.policy
    terms = terms_of(state, provider)
    ends_at_s = deadline_at_s(policy, work.track.prior, work.resource.generation, now_s)
    return budget.lasts_s(
        timeout_s=work.controller.template(index).timeout_seconds,
        left_s=None if ends_at_s is None else ends_at_s - since_s,
        lifetime_s=terms.lifetime_s,
        after_s=policy.grace_s + terms.quantum_s,
    )
