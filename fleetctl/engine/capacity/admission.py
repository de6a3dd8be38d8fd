"""How much more each provider may hold, and whether anything may start at all.

Parallelism limits one object; without this, a thousand objects would start a thousand sandboxes
on one machine. Counted anew in every tick from what is live, so it cannot drift. The limits are
the tighter ones of the provider's contract and of its Provider object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.common.text import HOUR_S
from fleetctl.controllers.model import Run
from fleetctl.controllers.planning.placement import Capacity, per_hour
from fleetctl.controllers.schedule.desired import Room
from fleetctl.engine.execute.rate_limit import MINUTE_S

if TYPE_CHECKING:
    from fleetctl.engine.capacity.prices import Market
    from fleetctl.engine.execute.rate_limit import RateLimiter
    from fleetctl.engine.shared.state import State
    from fleetctl.tracking.track import Track

DISK_FULL_PAUSE_S = 30.0
# Where room is not counted in sandboxes, so many waiting objects look for it in one tick.
WOKEN_MAX = 16
_DISK_FULL = "the disk that holds the store is full; nothing is started until there is room"


@dataclass(slots=True)
class Held:
    """What is there of one provider, over all objects."""

    sandboxes: int = 0
    stopping: int = 0  # of them, those that will be gone without our doing more
    usd_per_s: float = 0.0
    unpriced: int = 0  # of them, those of unknown price


class Admission:
    def __init__(
        self, state: State, *, market: Market, rate_limiters: Mapping[str, RateLimiter]
    ) -> None:
        self._state = state
        self._market = market
        self._rate_limiters = rate_limiters
        # provider -> uids that wait for room there, the longest waiting first
        self._at_capacity: dict[str, dict[str, None]] = {}
        self._creates: dict[str, deque[float]] = {}  # of providers with createsPerMinute
        self._places: dict[str, Capacity] = {}
        self._held: dict[str, Held] = {}
        self._paused_until_s = 0.0

    def pause(self, now_s: float) -> None:
        """The disk is full: what is live ends and is recorded, nothing new begins."""
        self._paused_until_s = now_s + DISK_FULL_PAUSE_S

    def held(self, provider: str) -> Held:
        """As counted at the beginning of this tick."""
        return self._held.get(provider, Held())

    def limit(self, provider: str) -> int | None:
        """Sandboxes at the same time; None = no limit."""
        contract = self._state.providers[provider].contract
        value = self._market.declared.get(provider)
        limits = (contract.sandboxes_at_once, value.limits.max_concurrent if value else None)
        return min((it for it in limits if it is not None), default=None)

    def slots(self, provider: str) -> dict[str, int | None]:
        """As people read it in a status."""
        return {"used": self.held(provider).sandboxes, "limit": self.limit(provider)}

    def spend(self, provider: str) -> dict[str, float]:
        """As people read it in a status; USD an hour."""
        held = self.held(provider)
        return {"usdPerHour": round(held.usd_per_s * HOUR_S, 6), "unpriced": held.unpriced}

    def exceeded(self, provider: str) -> bool:
        """More is held there than there may be: the limit was lowered."""
        limit = self.limit(provider) if provider in self._state.providers else None
        return limit is not None and self.held(provider).sandboxes > limit

    def count(self, now_s: float) -> list[str]:
        """Begin a tick; the uids that waited for room and may find some now, and the Provider
        objects that have news.
        """
        self._held = _held(self._state.tracks.values())
        self.reckon(now_s)
        woken = dict.fromkeys(self._untold())
        if now_s < self._paused_until_s:
            return list(woken)
        for name, waiting in self._at_capacity.items():
            for uid in list(waiting)[: _openings(self._places.get(name, Capacity()))]:
                woken[uid] = None
        for uid in woken:
            self._forget(uid)
        return list(woken)

    def reckon(self, now_s: float) -> None:
        """What is left of each provider, by the limits of now."""
        self._places = {name: self._capacity(name, now_s) for name in self._state.providers}

    def capacity_of(self, provider: str) -> Capacity:
        """What is left, but for the limit that the clock alone lifts."""
        return self._within_breaker(provider, self._within_slots(provider))

    def room(self, now_s: float) -> Room:
        """What the next pass may start."""
        if now_s < self._paused_until_s:
            return Room(self._places, paused=_DISK_FULL, until_s=self._paused_until_s)
        return Room(places=self._places)

    def started(self, track: Track, runs: Iterable[Run], now_s: float) -> None:
        """A pass asks for these runs."""
        self._forget(track.resource.uid)
        for run in runs:
            if run.sandbox != run.name:
                continue  # its sandbox is there already
            held = self._held.setdefault(run.provider, Held())
            held.sandboxes += 1
            held.usd_per_s += run.usd_per_s or 0.0
            held.unpriced += run.usd_per_s is None
            if run.provider in self._creates:
                self._creates[run.provider].append(now_s)
            if run.provider in self._state.providers:
                self._places[run.provider] = self._capacity(run.provider, now_s)

    def stopped(self, provider: str, now_s: float) -> None:
        """A reconcile wants a sandbox there gone."""
        self._held.setdefault(provider, Held()).stopping += 1
        if provider in self._state.providers:
            self._places[provider] = self._capacity(provider, now_s)

    def at_capacity(self, track: Track, providers: Iterable[str]) -> None:
        """A pass found no room there; its object is looked at again when there is some."""
        for name in providers:
            self._at_capacity.setdefault(name, {}).setdefault(track.resource.uid)

    def _untold(self) -> Iterator[str]:
        """Provider objects whose status tells of something else than what is held."""
        for name, uid in self._market.uids.items():
            track = self._state.tracks.get(uid)
            if track is None or name not in self._state.providers:
                continue
            shares = track.status.get("slots"), track.status.get("spend")
            if shares != (self.slots(name), self.spend(name)):
                yield uid

    def _forget(self, uid: str) -> None:
        for waiting in self._at_capacity.values():
            waiting.pop(uid, None)

    def _capacity(self, provider: str, now_s: float) -> Capacity:
        left = self._in_this_minute(provider, self._within_slots(provider), now_s)
        return self._within_breaker(provider, left)

    def _within_slots(self, provider: str) -> Capacity:
        held, limit = self.held(provider), self.limit(provider)
        if limit is None:
            return Capacity()
        return Capacity(
            free=max(0, limit - held.sandboxes),
            full=f"its limit of {limit} sandboxes is reached",
            over=max(0, held.sandboxes - held.stopping - limit),
        )

    def _within_breaker(self, provider: str, left: Capacity) -> Capacity:
        spec, held = self._market.declared.get(provider), self.held(provider)
        most = spec.breaker.max_spend_per_hour if spec else None
        if most is None:
            return left
        breaker = f"maxSpendPerHour of {per_hour(most / HOUR_S)}"
        if held.unpriced:
            return replace(
                left, free=0, full=f"what runs there has no known price, and there is {breaker}"
            )
        spare = most / HOUR_S - held.usd_per_s
        return replace(left, spare_usd_per_s=spare, breaker=breaker)

    def _in_this_minute(self, provider: str, left: Capacity, now_s: float) -> Capacity:
        """The same, with no more creates than there may be in any 60 seconds."""
        value = self._market.declared.get(provider)
        most = value.limits.creates_per_minute if value else None
        if most is None:
            self._creates.pop(provider, None)
            return left
        created = self._creates.get(provider)
        if created is None:
            created = self._creates[provider] = self._rate_limiters[provider].created()
        while created and created[0] <= now_s - MINUTE_S:
            created.popleft()
        free = max(0, most - len(created))
        if left.free is not None and left.free <= free:
            return left
        full = f"its limit of {most} creates a minute is reached"
        until_s = created[0] + MINUTE_S if created and not free else None
        return replace(left, free=free, full=full, until_s=until_s)


def _openings(left: Capacity) -> int:
    """How many waiting objects are to look."""
    if left.free is not None:
        return left.free
    spare = left.spare_usd_per_s
    return WOKEN_MAX if spare is None or spare >= 0 else 0


def _held(tracks: Iterable[Track]) -> dict[str, Held]:
    found: dict[str, Held] = {}
    for track in tracks:
        for place, count in track.places.items():
            held = found.setdefault(place.provider, Held())
            held.sandboxes += count
            held.usd_per_s += count * (place.usd_per_s or 0.0)
            held.unpriced += count * (place.usd_per_s is None)
            held.stopping += count * place.stopping
    return found
