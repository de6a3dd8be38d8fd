"""Who may call which endpoint, and how much all calls of an object may come to. Told to the gateway
whole, at each change, before the run that it is for begins.

A cap is absolute: what the calls of an object have come to, and its share of what its budgets have
left. So it holds whatever the gateway does between two words of ours, and when either is killed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fleetctl.controllers.money.budget import TINY_USD, Account, OnExceeded
from fleetctl.gateway.reach.gateway import Gateway, Grant

if TYPE_CHECKING:
    from fleetctl.engine.money.budgets import Budgets
    from fleetctl.engine.shared.state import State
    from fleetctl.tracking.track import Work


class Grants:
    """What calls under way may cost at worst is in State.calling_usd."""

    def __init__(self, state: State, gateway: Gateway, budgets: Budgets) -> None:
        self._state, self._gateway, self._budgets = state, gateway, budgets
        self._heard_usd: dict[str, float] = {}  # by uid, as far as the store knows
        self._granted: dict[str, Grant] = {}  # by run, as its start named it
        self._wanted, self._sent = 0, -1  # versions
        self._sending: asyncio.Future[None] | None = None
        self._totals: Mapping[str, float] = {}
        self._caps: Mapping[str, float] = {}

    def heard(self, uid: str, usd: float) -> None:
        """The calls of an object have come to so much more, which the store knows by now."""
        if usd and uid in self._heard_usd:
            self._heard_usd[uid] += usd
        self.change()

    def _heard(self, uid: str) -> float:
        if uid not in self._heard_usd:
            self._heard_usd[uid] = self._state.store.runs.calls_usd_of(uid)
        return self._heard_usd[uid]

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
        cap_usd = self._caps.get(grant.uid)
        return cap_usd is None or self._totals.get(grant.uid, 0.0) <= cap_usd + TINY_USD

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
            self._caps = self._capped({it.uid for it in grants})
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

    def _capped(self, uids: set[str]) -> dict[str, float]:
        """Of those whose calls are under a budget: what is left goes in equal parts to all objects
        that share it, and is divided anew when it is heard what they asked.
        """
        works = {it: track.work for it in uids if (track := self._state.tracks.get(it))}
        now_s = self._state.clock.now_s()
        accounts: dict[str, list[Account]] = {}
        for uid, work in works.items():
            if work is not None:
                paid = self._budgets.allowance(work, now_s).accounts
                accounts[uid] = [it for it in paid if it.cap.on_exceeded is not OnExceeded.WARN]
        sharing = Counter(id(it) for paid in accounts.values() for it in paid)
        return {
            uid: self._heard(uid)
            + self._state.calling_usd.get(uid, 0.0)
            + min(it.left_usd / sharing[id(it)] for it in paid)
            for uid, paid in accounts.items()
            if paid
        }


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
