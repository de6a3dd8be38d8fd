"""Grants objects the right to call endpoints, with a cap on all calls of an object, and stores what
their runs have used in tokens and USD.

All grants are sent to the gateway as a whole, at each change; the grant of a run is sent before the
run begins.

A cap is absolute and covers all objects that share a budget: the charged cost of their calls, and
what else the budget has for calls. The gateway sums their calls together, as it alone knows the
sum at any time. So the cap holds however much is called between two messages of ours, by any of
the objects, and when either side is killed.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import StoreError
from fleetctl.controllers.budget import TINY_USD, BudgetAccount, OnExceeded
from fleetctl.controllers.model import Resource, Run
from fleetctl.gateway.gateway_client import EndpointGrant, Gateway, SharedCap
from fleetctl.stores.base import CallSums, EndpointUsage
from fleetctl.tracking.track import Track, track_of

if TYPE_CHECKING:
    from fleetctl.engine.money.budgets import Budgets
    from fleetctl.engine.money.ledger import RunCharges
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import ResourceWork


# One report in one transaction, as totals: a report that is received twice, after a crash of either
# side, is charged once.

_COUNTS = tuple(it.name for it in fields(CallSums))
_TIMES = ("waiting_ms_p50", "waiting_ms_p95", "answer_ms_p50", "answer_ms_p95")


Charged = tuple[Track, float, Resource | None]  # USD; the row with its late status


class EndpointGrants:
    def __init__(
        self,
        state: EngineState,
        gateway: Gateway,
        budgets: Budgets,
        traceparent_of: Callable[[Resource, Run], str],
    ) -> None:
        self._state = state
        self._gateway = gateway
        self._traceparent_of = traceparent_of
        self._budgets = budgets
        self._heard_usd: dict[str, float] = {}  # by uid, as far as the store knows
        self._granted: dict[str, EndpointGrant] = {}  # by run, as its start named it
        self._wanted, self._sent = 0, -1  # versions
        self._sending: asyncio.Future[None] | None = None
        self._totals: Mapping[str, float] = {}
        self._caps: Sequence[SharedCap] = ()
        # uid -> the last message that granted it: its calls may have cost more than was reported.
        self._asking: dict[str, int] = {}

    def add_spent(self, uid: str, usd: float) -> None:
        """Adds USD to the object's calls; the store has the amount already."""
        self._asking.setdefault(uid, self._sent)
        if usd and uid in self._heard_usd:
            self._heard_usd[uid] += usd
        self.change()

    def _read_spent(self, uid: str) -> float:
        if uid not in self._heard_usd:
            self._heard_usd[uid] = self._state.store.runs.calls_usd_of(uid)
        return self._heard_usd[uid]

    @property
    def version(self) -> int:
        """Returns the version of the message that the gateway took last."""
        return self._sent

    def all_heard(self, version: int) -> None:
        """Records that all calls until the gateway took that message, and some while after, are
        counted: an object without a grant since, and with no call under way, makes no more calls.
        """
        for uid in [it for it, last in self._asking.items() if last < version]:
            if uid not in self._state.calling_usd:
                del self._asking[uid]

    def may_owe(self, uid: str) -> bool:
        """Returns true if its calls may have cost more than was reported."""
        return uid in self._asking or uid in self._state.calling_usd

    def recount(self) -> None:
        """Budgets change by themselves, with the sandboxes that they pay for and with the day."""
        if self._sent == self._wanted and self._capped() != self._caps:
            self.change()

    def change(self) -> None:
        """Marks the grants to be sent to the gateway again."""
        self._wanted += 1

    @property
    def stale(self) -> bool:
        return self._sent < self._wanted

    def has(self, run: str) -> bool:
        """Returns true if the last grants that the gateway took hold this run."""
        return run in self._granted

    def make_grant(
        self,
        work: ResourceWork,
        name: str,
        endpoints: tuple[str, ...],
    ) -> EndpointGrant:
        """Returns the grant of a run, whose calls belong to the trace of its attempt."""
        run = work.history.live.get(name)
        resource = work.resource
        return EndpointGrant(
            name,
            name,
            resource.uid,
            resource.key,
            resource.namespace,
            endpoints,
            "" if run is None else self._traceparent_of(resource, run),
        )

    async def admit(self, grant: EndpointGrant) -> bool:
        """Lets a run call. False: its object's calls have cost more than is left for them. Raises
        Unavailable.
        """
        self._granted[grant.run] = grant
        self.change()
        await self.send()
        return all(
            cap.total_usd(lambda uid: self._totals.get(uid, 0.0)) <= cap.usd + TINY_USD
            for cap in self._caps
            if grant.uid in cap.uids
        )

    async def send(self) -> None:
        """Sends one message for all changes made meanwhile. Raises Unavailable."""
        wanted = self._wanted
        while self._sent < wanted:
            if self._sending is None:
                self._sending = asyncio.ensure_future(self._send())
                self._sending.add_done_callback(_ignore_failure)
            # All who wait go on at once: a lock would let one pass a turn of the loop, and a tick
            # begins hundreds.
            await asyncio.shield(self._sending)

    async def _send(self) -> None:
        try:
            await asyncio.sleep(0)  # the other starts of this tick go with it
            sending = self._wanted
            grants = list(self._live())
            self._asking.update(dict.fromkeys({it.uid for it in grants}, sending))
            self._caps = self._capped()
            self._totals = await self._gateway.grant(grants, self._caps)
            self._sent = sending
        finally:
            self._sending = None

    def _live(self) -> Iterator[EndpointGrant]:
        known = self._granted
        self._granted = {}
        for track in self._state.tracks.values():
            if track.work is None:
                continue
            for name in track.work.history.live:
                grant = known.get(name) or self._rebuild_grant(track.work, name)
                if grant is not None:
                    self._granted[name] = grant
                    yield grant

    def _rebuild_grant(self, work: ResourceWork, name: str) -> EndpointGrant | None:
        """Returns the grant of a run that an earlier controller began."""
        run = work.history.live[name]
        unit = work.controller.unit(run.index)
        endpoints = work.controller.template(run.index).asks if unit is not None else ()
        if endpoints:
            return self.make_grant(work, name, endpoints)
        return None

    def _capped(self) -> list[SharedCap]:
        """Returns one cap for each budget that stops calls beyond it, over all objects whose calls
        it pays.
        """
        now_s = self._state.clock.now_s()
        payers: dict[int, BudgetAccount] = {}
        paying: dict[int, list[str]] = {}  # uids
        for uid in sorted(self._asking.keys() | self._state.calling_usd.keys()):
            track = self._state.tracks.get(uid)
            caller = self._state.resource_of(uid)
            if caller is None:
                continue  # it is deleted, and is charged no longer
            accounts: Sequence[BudgetAccount] = self._budgets.shared(caller)
            if track is not None and track.work is not None:
                accounts = self._budgets.allowance(track.work, now_s).accounts
            for account in accounts:
                if account.cap.on_exceeded is not OnExceeded.WARN:
                    payers[id(account)] = account
                    paying.setdefault(id(account), []).append(uid)
        return [
            SharedCap(
                tuple(uids), sum(map(self._read_spent, uids)) + payers[key].left_for_calls_usd
            )
            for key, uids in paying.items()
        ]


def _ignore_failure(sent: asyncio.Future[None]) -> None:
    """Ignores a failure whose waiters have all given up."""
    if not sent.cancelled():
        sent.exception()


class EndpointCharges:
    def __init__(
        self,
        state: EngineState,
        *,
        charges: RunCharges,
        budgets: Budgets,
        grants: EndpointGrants,
    ) -> None:
        self._state = state
        self._charges = charges
        self._budgets = budgets
        self._grants = grants
        self._reserved: dict[tuple[str, str], tuple[str, float]] = {}  # run, endpoint -> uid, USD

    def hear(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Stores a report. Raises StoreError; then none of its rows was stored."""
        names = {(row["endpoint"], row["namespace"]) for row in rows}
        uids = {name: self._endpoint(*name) for name in names}
        usages = [_read_usage(row, uids[row["endpoint"], row["namespace"]]) for row in rows]
        owners = [str(row.get("uid") or "") for row in rows]

        state = self._state
        risen: dict[str, float] = defaultdict(float)  # USD by uid
        charged: list[Charged] = []
        try:
            with state.store.transaction():
                for uid, usd in zip(owners, state.store.calls.record(usages), strict=True):
                    risen[uid] += usd
                for uid, usd in risen.items():
                    charge = self._charge(uid, usd)
                    if charge is not None:
                        charged.append(charge)
                self._charges.write()
        except StoreError:
            self._charges.load()  # as it was before
            raise

        for track, usd, late in charged:
            self._take(track, usd, late)
        for row, uid in zip(rows, owners, strict=True):
            self._reserve(row, uid)
        for uid, usd in risen.items():
            self._grants.add_spent(uid, usd)

        endpoints = {it.endpoint_uid for it in usages if it.endpoint_uid}
        for uid in {*owners, *endpoints}:
            if uid in state.tracks:
                state.poke(uid)

    def _endpoint(self, name: str, namespace: str) -> str:
        """Its uid; empty for one that is gone."""
        found = self._state.store.resources.get("Endpoint", name, namespace)
        if found is not None:
            return found.uid
        return ""

    def _charge(self, uid: str, usd: float) -> Charged | None:
        """Returns the charge to store; None where the cost is zero, or the object does not
        exist.
        """
        track = self._state.tracks.get(uid) or self._sleeping(uid)
        if track is None or not usd:
            return None
        self._charges.add(track, usd, 0.0)
        return track, usd, self._write_late(track, usd) if track.dormant else None

    def _take(
        self,
        track: Track,
        usd: float,
        late: Resource | None,
    ) -> None:
        """Updates the state in memory, once the charge is stored."""
        if track.work is not None:
            track.work.history.called(usd)
        if late is not None:
            track.resource, track.status = late, json.loads(late.status)
        for account in self._budgets.shared(track.resource):
            account.charged_usd += usd

    def _sleeping(self, uid: str) -> Track | None:
        """Returns the track of a finished object whose last calls are reported now."""
        row = self._state.store.resources.of(uid)
        if row is not None:
            return track_of(row)
        return None

    def _write_late(self, track: Track, usd: float) -> Resource | None:
        """Writes the row of a finished object, whose status no pass writes any more; None where a
        spec was written in between: then a pass writes it all.
        """
        cost = track.status.get("cost")
        budget = track.status.get("budget")
        status = dict(track.status)
        if isinstance(cost, dict):
            status["cost"] = _add_amounts(cost, actual=usd, calls=usd)
        if isinstance(budget, dict):
            status["budget"] = _add_amounts(budget, used=usd, left=-usd)
        text = json.dumps(status, separators=(",", ":"))
        row = track.resource
        version = self._state.store.resources.put_status(
            row.uid, text, expected_version=row.version
        )
        if version is None:
            return None
        return replace(row, version=version, status=text)

    def _reserve(self, row: Mapping[str, Any], uid: str) -> None:
        """Reserves the worst-case cost of calls under way, as for live runs."""
        key = str(row["run"]), str(row["endpoint"])
        reserved_usd = float(row.get("reserved_usd") or 0.0)
        _, before_usd = self._reserved.pop(key, (uid, 0.0))
        if reserved_usd:
            self._reserved[key] = uid, reserved_usd
        calling = self._state.calling_usd
        calling[uid] = max(0.0, calling.get(uid, 0.0) + reserved_usd - before_usd)
        if not any(owner == uid for owner, _ in self._reserved.values()):
            calling.pop(uid, None)


def _add_amounts(block: Mapping[str, Any], **more: float) -> dict[str, Any]:
    """Returns the block with these amounts added."""
    known = {key: block.get(key) or 0.0 for key in more}
    return {**block, **{key: round(max(0.0, known[key] + more[key]), 6) for key in more}}


def _read_usage(row: Mapping[str, Any], endpoint_uid: str) -> EndpointUsage:
    total = CallSums(**{name: row.get(name) or 0 for name in _COUNTS})
    first, *others = (row.get(name) for name in _TIMES)
    return EndpointUsage(row["run"], row["endpoint"], endpoint_uid, total, (first, *others))  # type: ignore[arg-type]
