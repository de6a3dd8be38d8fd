"""Budgets over many objects: what counts against each now, who waits for money, what runs are
charged.

Called by the loop in every turn and by its passes. Counted anew from what is live and from the
ledger, so that a crash, a deletion or the turn of a period cannot make it drift.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from controllers import budget
from controllers.budget import Account, Cap, OnExceeded, Purse, Tariff
from controllers.model import LIVE_STATES, Run, RunState
from controllers.wish import deadline_at_s
from fleetctl.engine.warming import KIND as FUNCTION
from fleetctl.engine.warming import Warming
from fleetctl.providers.base import Contract
from fleetctl.stores.base import Entry
from specs.budget import BudgetSpec
from specs.common import Execution
from specs.kinds import KINDS, parse_spec

if TYPE_CHECKING:
    from fleetctl.engine.loop import Engine
    from fleetctl.engine.track import Call, Track

BUDGET = "Budget"


class Budgets:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.warming = Warming(engine)
        self._uids: dict[str, None] = {}  # of the Budgets, and of some that are gone
        self._ledger: dict[tuple[int, str, str], Entry] = {}
        self._charges: list[Entry] = []  # of this turn, not written yet
        self._accounts: dict[str, Account] = {}  # uid of a Budget -> what counts against it
        self._seen: dict[str, tuple[object, ...]] = {}  # how each stood when it was counted last
        self._waiting: dict[str, None] = {}  # uids that wait for money, the longest waiting first

    def load(self) -> None:
        """Read the ledger back, once the tracks are there; what was not written is forgotten with
        its turn.
        """
        self._charges.clear()
        self._seen.clear()
        self._ledger = {_key(entry): entry for entry in self._engine.store.ledger.entries()}
        tracks = self._engine.tracks.values()
        self._uids = {it.resource.uid: None for it in tracks if it.resource.kind == BUDGET}

    def count(self, now_s: float) -> list[str]:
        """Begin a turn; the uids that waited for money and may find some now."""
        self._take_new_budgets()
        self._accounts = {
            track.resource.uid: self._account(track, spec, now_s) for track, spec in self._budgets()
        }
        stands = {uid: _stand(account) for uid, account in self._accounts.items()}
        before, self._seen = self._seen, stands
        if stands == before or not self._waiting:
            return []
        woken = list(self._waiting)
        self._waiting.clear()
        return woken

    def changed(self) -> Iterator[str]:
        """The Budgets whose status is not what they stand at, after the passes of a turn."""
        for uid, account in self._accounts.items():
            track = self._engine.tracks.get(uid)
            numbers = _numbers(account)
            if track is not None and any(track.status.get(it) != numbers[it] for it in numbers):
                yield uid

    def purse(self, track: Track, now_s: float) -> Purse:
        """What the next pass of this object may spend."""
        shared = self.shared(track)
        own = self._own(track, now_s)
        accounts = [*([own] if own is not None else []), *shared]
        unit = KINDS[track.resource.kind].unit
        return Purse(partial(self._tariff, track, now_s), accounts, own, unit)

    def shared(self, track: Track) -> list[Account]:
        """The accounts of the Budgets that select this object."""
        return [
            self._accounts[budget_.resource.uid]
            for budget_, spec in self._budgets()
            if budget_.resource.uid in self._accounts
            and budget_.resource.namespace == track.resource.namespace
            and budget.selects(spec.selector, track.resource.labels)
        ]

    def denied(self, track: Track) -> None:
        """A pass found too little money; its object is looked at again when there is more."""
        self._waiting.setdefault(track.resource.uid)

    # -- charges -----------------------------------------------------------------------------------

    def ended(self, track: Track, run: Run, call: Call | None) -> Run:
        """The ended run with its charge, which is written with it."""
        contract = self._contract(run.provider)
        known = call.held_from_s if call is not None else None
        if run.sandbox != run.name:
            # In another's sandbox it costs from its own beginning; the time before is the other's.
            begun_s = run.ended_at_s if run.started_at_s is None else run.started_at_s
            known, quantum_s = max(begun_s or 0.0, run.created_at_s), 0.0
        else:
            quantum_s = contract.billing_quantum_s if contract is not None else 0.0
            if call is not None and call.nothing_made and run.started_at_s is None:
                known, quantum_s = run.ended_at_s, 0.0
        usd = budget.charge_usd(run, held_from_s=known, quantum_s=quantum_s)
        charged = replace(run, usd=usd)
        self.charge(track, usd or 0.0, 0.0 if usd is not None else _seconds(run))
        return charged

    def idled(self, track: Track, last: Run, until_s: float) -> Run:
        """The last run of a sandbox that was open until now, charged for its idle time too."""
        if not last.usd_per_s or last.usd is None or last.ended_at_s is None:
            return last
        usd = last.usd_per_s * max(0.0, until_s - last.ended_at_s)
        assert track.history is not None
        track.history.charged(usd)
        self.charge(track, usd, 0.0)
        return replace(last, usd=last.usd + usd)

    def write(self) -> None:
        """The charges of this turn, in its transaction."""
        if not self._charges:
            return
        charges, self._charges = self._charges, []
        self._engine.store.ledger.add(charges)
        for entry in charges:
            known = self._ledger.get(_key(entry), replace(entry, usd=0.0, unpriced_s=0.0))
            self._ledger[_key(entry)] = replace(
                entry,
                usd=known.usd + entry.usd,
                unpriced_s=known.unpriced_s + entry.unpriced_s,
            )

    def forget(self) -> None:
        self._charges.clear()

    def charge(self, track: Track, usd: float, unpriced_s: float) -> None:
        """Into the ledger, with this turn."""
        if usd or unpriced_s:
            day = budget.day_of(self._engine.clock.now_s())
            about = track.resource
            self._charges.append(Entry(day, about.labels, usd, unpriced_s, about.namespace))

    # -- counting ----------------------------------------------------------------------------------

    def _take_new_budgets(self) -> None:
        """A Budget holds from the turn in which it is heard of, whose pass comes first or last."""
        reading = self._engine.reading
        for uid in [uid for uid, row in reading.wished.items() if row.kind == BUDGET]:
            reading.fresh_track(uid)
            self._uids[uid] = None

    def _budgets(self) -> Iterator[tuple[Track, BudgetSpec]]:
        for uid in self._uids:
            track = self._engine.tracks.get(uid)
            if track is None or track.resource.deleted_at_s is not None:
                continue
            if track.spec is None:
                try:
                    track.spec = parse_spec(BUDGET, track.resource.spec)
                except ValueError:
                    continue  # its pass raises the same, and says so in its status
            assert isinstance(track.spec, BudgetSpec)
            yield track, track.spec

    def _account(self, track: Track, spec: BudgetSpec, now_s: float) -> Account:
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
        for entry in self._ledger.values():
            if entry.day < first_day or entry.namespace != namespace:
                continue
            if budget.selects(spec.selector, entry.labels):
                account.charged_usd += entry.usd
                account.unpriced_s += entry.unpriced_s
        for other in self._engine.tracks.values():
            about = other.resource
            if about.namespace != namespace or not budget.selects(spec.selector, about.labels):
                continue
            if KINDS[about.kind].runs:
                self._reserve(account, other, now_s)
            elif about.kind == FUNCTION:
                self.warming.reserve(account, other, first_s=start_s, now_s=now_s)
        return account

    def _own(self, track: Track, now_s: float) -> Account | None:
        """Of the object's own budget; counts all that it ever ran."""
        assert isinstance(track.spec, Execution) or track.spec is None
        wanted = track.spec.budget if track.spec is not None else None
        if wanted is None or track.history is None:
            return None
        cap = Cap(
            owner="its budget",
            raise_by=f"{track.resource.key} budget.maxCost",
            max_usd=wanted.max_cost,
            on_exceeded=OnExceeded(wanted.on_exceeded),
            warn_at=wanted.warn_at,
        )
        history = track.history
        account = Account(cap, charged_usd=history.charged_usd, unpriced_s=history.unpriced_s)
        self._reserve(account, track, now_s)
        return account

    def _reserve(self, account: Account, track: Track, now_s: float) -> None:
        """Add the live runs of an object."""
        for run in self._live(track):
            worst_usd = self._worst_now_usd(track, run, now_s)
            usd = budget.reserved_usd(run, worst_usd=worst_usd, now_s=now_s)
            if usd is None:
                account.unpriced_live += 1
            else:
                account.reserved_usd += usd
                account.accrued_usd += budget.accrued_usd(run, now_s)

    def _live(self, track: Track) -> Iterator[Run]:
        if track.history is not None:
            yield from track.history.live.values()
        elif not track.dormant:
            # Its spec cannot be read, or its pass raised: its runs cost all the same.
            rows = self._engine.store.runs.of(track.resource.uid)
            yield from (run for run, _ in rows if run.state in LIVE_STATES)

    def _worst_now_usd(self, track: Track, run: Run, now_s: float) -> float | None:
        """Under the present deadline, which may be a later one than when the run began."""
        controller = track.controller
        if controller is None or run.state is RunState.STOPPING:
            return None
        unit = controller.unit(run.index)
        if unit is None or unit.template_hash != run.template_hash:
            return None  # it goes on under the template that it began with, or is stopped
        since_s = now_s if run.started_at_s is None else run.started_at_s
        lasts_s = self._lasts_s(track, run.provider, run.index, now_s, since_s)
        return budget.worst_case_usd(run.usd_per_s, lasts_s)

    def _tariff(self, track: Track, now_s: float, provider: str, index: int) -> Tariff:
        assert track.controller is not None
        price = self._engine.market.price(
            provider, track.controller.template(index), track.resource.namespace
        )
        return Tariff(price, self._lasts_s(track, provider, index, now_s, now_s))

    def _lasts_s(
        self, track: Track, provider: str, index: int, now_s: float, since_s: float
    ) -> float:
        assert track.controller is not None
        policy, contract = track.controller.policy, self._contract(provider)
        ends_at_s = deadline_at_s(policy, track.prior, track.resource.generation, now_s)
        return budget.lasts_s(
            timeout_s=track.controller.template(index).timeout_seconds,
            left_s=None if ends_at_s is None else ends_at_s - since_s,
            lifetime_s=contract.max_lifetime_s if contract is not None else None,
            after_s=policy.grace_s + (contract.billing_quantum_s if contract is not None else 0.0),
        )

    def _contract(self, provider: str) -> Contract | None:
        """None of a provider that this version cannot make anything of; its runs cost all the
        same.
        """
        backend = self._engine.providers.get(provider)
        return backend.contract if backend is not None else None

    # -- the status of a Budget --------------------------------------------------------------------

    def status(self, track: Track, now_s: float) -> dict[str, object]:
        """How a Budget stands; warnings are said here, each once a period and a cap."""
        assert isinstance(track.spec, BudgetSpec)
        uid = track.resource.uid
        account = self._accounts.get(uid) or self._account(track, track.spec, now_s)
        since_s, until_s = budget.period_of(track.spec.period, now_s)
        if until_s is not None:
            self._engine.queue.add(uid, until_s)
        before = track.status
        same = before.get("since") == since_s and before.get("maxCost") == account.cap.max_usd
        said = before.get("warned") if same else 0
        warned = max(said if isinstance(said, int) else 0, account.warned)
        if warned and warned != said:
            self._warn(track, account, warned)
        return {
            "phase": "Ready",
            "reason": "Ready",
            "message": "",
            "waitingOn": [],
            "observedGeneration": track.resource.generation,
            **_numbers(account),
            "since": since_s,
            "until": until_s,
            "warned": warned,
        }

    def say(self, track: Track, purse: Purse, after: dict[str, object]) -> None:
        """Warnings of an object whose status becomes `after`, each once: a level of its own budget
        is crossed, or money is what it lacks.
        """
        level, said = _warned(after), _warned(track.status)
        if purse.own is not None and level > said:
            self._warn(track, purse.own, level)
        lacks, lacked = _lacking(after), _lacking(track.status)
        if lacks[0] and lacks[0] != lacked[0]:
            self._engine.say(track.resource.uid, lacks[0], lacks[1], kind="Warning")

    def _warn(self, track: Track, account: Account, level: int) -> None:
        cap = account.cap
        spent_usd = account.charged_usd + account.accrued_usd
        parts = f"{budget.usd(spent_usd)} of {budget.usd(cap.max_usd)}"
        text = f"{parts} is used, which is {level}% or more"
        self._engine.say(track.resource.uid, "BudgetWarning", text, kind="Warning")


def _numbers(account: Account) -> dict[str, object]:
    """JSON knows no infinity: reserved is None while a live run has no limit of time."""
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


def _warned(status: Mapping[str, object]) -> int:
    own = status.get("budget")
    level = own.get("warned") if isinstance(own, dict) else 0
    return level if isinstance(level, int) else 0


def _lacking(status: Mapping[str, object]) -> tuple[str, str]:
    """Reason and sentence of the condition BudgetOK while it is False; else both empty."""
    conditions = status.get("conditions")
    for found in conditions if isinstance(conditions, list) else ():
        if found["type"] == "BudgetOK" and found["status"] == "False":
            return str(found["reason"]), str(found["message"])
    return "", ""


def _stand(account: Account) -> tuple[object, ...]:
    return account.cap, round(account.committed_usd, 6), account.unpriced_live, account.unpriced_s


def _key(entry: Entry) -> tuple[int, str, str]:
    return entry.day, entry.namespace, json.dumps(entry.labels, sort_keys=True)


def _seconds(run: Run) -> float:
    if run.started_at_s is None or run.ended_at_s is None:
        return 0.0
    return max(0.0, run.ended_at_s - run.started_at_s)
