"""Who may call which endpoint, and how much all calls of an object may come to. Told to the gateway
whole, at each change, before the run that it is for begins.

A cap is absolute and of all objects that share a budget: what their calls have come to as far as it
is charged, and what else the budget has for calls. The gateway counts what they come to together,
which it alone knows at any time. So it holds whatever is asked between two words of ours, whichever
objects ask, and when either side is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.controllers.money.budget import TINY_USD, Account, OnExceeded
from fleetctl.gateway.reach.gateway import Gateway, Grant, SharedCap

if TYPE_CHECKING:
    from fleetctl.engine.money.budgets import Budgets
    from fleetctl.engine.shared.state import State
    from fleetctl.tracking.track import Work


class Grants:
    def __init__(self, state: State, gateway: Gateway, budgets: Budgets) -> None:
        self._state, self._gateway, self._budgets = state, gateway, budgets
        self._heard_usd: dict[str, float] = {}  # by uid, as far as the store knows
        self._granted: dict[str, Grant] = {}  # by run, as its start named it
        self._wanted, self._sent = 0, -1  # versions
        self._sending: asyncio.Future[None] | None = None
        self._totals: Mapping[str, float] = {}
        self._caps: Sequence[SharedCap] = ()
        # By uid, the last message that let it ask: its calls may have come to more than was heard.
        self._asking: dict[str, int] = {}

    def heard(self, uid: str, usd: float) -> None:
        """The calls of an object have come to so much more, which the store knows by now."""
        self._asking.setdefault(uid, self._sent)
        if usd and uid in self._heard_usd:
            self._heard_usd[uid] += usd
        self.change()

    def _heard(self, uid: str) -> float:
        if uid not in self._heard_usd:
            self._heard_usd[uid] = self._state.store.runs.calls_usd_of(uid)
        return self._heard_usd[uid]

    @property
    def version(self) -> int:
        """Of the message that the gateway took last."""
        return self._sent

    def all_heard(self, version: int) -> None:
        """All that was asked until the gateway took that message, and some while after, is known:
        who may not ask since, and has no call under way, asks nothing more.
        """
        for uid in [it for it, last in self._asking.items() if last < version]:
            if uid not in self._state.calling_usd:
                del self._asking[uid]

    def may_owe(self, uid: str) -> bool:
        """Whether its calls may have come to more than was heard."""
        return uid in self._asking or uid in self._state.calling_usd

    def recount(self) -> None:
        """Budgets change by themselves, with the sandboxes that they pay for and with the day."""
        if self._sent == self._wanted and self._capped() != self._caps:
            self.change()

    def change(self) -> None:
        """The gateway is to be told anew."""
        self._wanted += 1

    @property
    def stale(self) -> bool:
        return self._sent < self._wanted

    def has(self, run: str) -> bool:
        """Whether the last grants that the gateway took hold this run."""
        return run in self._granted

    async def admit(self, grant: Grant) -> bool:
        """Let a run call. False: what its object's calls have come to is more than is left for
        them. Raises Unavailable.
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
        """One message for all who changed something meanwhile. Raises Unavailable."""
        wanted = self._wanted
        while self._sent < wanted:
            if self._sending is None:
                self._sending = asyncio.ensure_future(self._send())
                self._sending.add_done_callback(_heard_of)
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

    def _live(self) -> Iterator[Grant]:
        known, self._granted = self._granted, {}
        for track in self._state.tracks.values():
            if track.work is None:
                continue
            for name in track.work.history.live:
                grant = known.get(name) or _found(track.work, name)
                if grant is not None:
                    self._granted[name] = grant
                    yield grant

    def _capped(self) -> list[SharedCap]:
        """One for each budget that stops what is beyond it, of all whose calls it pays."""
        now_s = self._state.clock.now_s()
        payers: dict[int, Account] = {}
        paying: dict[int, list[str]] = {}  # uids
        for uid in sorted(self._asking.keys() | self._state.calling_usd.keys()):
            track, caller = self._state.tracks.get(uid), self._state.resource_of(uid)
            if caller is None:
                continue  # it is deleted, and nobody is charged
            accounts: Sequence[Account] = self._budgets.shared(caller)
            if track is not None and track.work is not None:
                accounts = self._budgets.allowance(track.work, now_s).accounts
            for account in accounts:
                if account.cap.on_exceeded is not OnExceeded.WARN:
                    payers[id(account)] = account
                    paying.setdefault(id(account), []).append(uid)
        return [
            SharedCap(tuple(uids), sum(map(self._heard, uids)) + payers[key].left_for_calls_usd)
            for key, uids in paying.items()
        ]


def _heard_of(sent: asyncio.Future[None]) -> None:
    """A failure whose waiters were all given up is nothing to report."""
    if not sent.cancelled():
        sent.exception()


def _found(work: Work, name: str) -> Grant | None:
    """Of a run that an earlier controller began."""
    run = work.history.live[name]
    unit = work.controller.unit(run.index)
    endpoints = work.controller.template(run.index).asks if unit is not None else ()
    return grant_of(work, name, endpoints) if endpoints else None


def grant_of(work: Work, name: str, endpoints: tuple[str, ...]) -> Grant:
    resource = work.resource
    return Grant(name, name, resource.uid, resource.key, resource.namespace, endpoints)
