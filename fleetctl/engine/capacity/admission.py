"""Computes how much more each provider may hold, and if any start is allowed.

Parallelism limits one object; without this, a thousand objects would start a thousand sandboxes on
one machine. Counted again in every tick from live runs, so it cannot drift. The limits are the
tighter ones of the provider's contract and of its Provider object, whose status shows slots, spend
and whether new starts are allowed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from fleetctl.common.text import HOUR_S
from fleetctl.controllers.model import Run
from fleetctl.controllers.planning.placement import ProviderCapacity, explain_full, format_per_hour
from fleetctl.controllers.schedule.desired import StartCapacity
from fleetctl.controllers.status_keys import Status
from fleetctl.engine.capacity.price_book import KIND, PriceBook, say_spills
from fleetctl.engine.execute.rate_limit import MINUTE_S, RateLimiters
from fleetctl.engine.shared.part import EnginePart, PartWiring, WorkDecision

if TYPE_CHECKING:
    from fleetctl.engine.execute.rate_limit import RateLimiter
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import ResourceWork, Track

DISK_FULL_PAUSE_S = 30.0
# Where capacity is not counted in sandboxes, this many waiting objects look for it in one tick.
WOKEN_MAX = 16
_DISK_FULL = "the disk that holds the store is full; nothing is started until there is room"


@dataclass(slots=True)
class ProviderHoldings:
    """The usage of a provider, over all objects."""

    sandboxes: int = 0
    stopping: int = 0  # of these, sandboxes that end without further action of ours
    usd_per_s: float = 0.0
    unpriced: int = 0  # of these, sandboxes of unknown price


class ProviderAdmission:
    def __init__(
        self,
        state: EngineState,
        *,
        market: PriceBook,
        rate_limiters: Mapping[str, RateLimiter],
    ) -> None:
        self._state = state
        self._market = market
        self._rate_limiters = rate_limiters
        # provider -> uids that wait for room there, the longest waiting first
        self._at_capacity: dict[str, dict[str, None]] = {}
        self._creates: dict[str, deque[float]] = {}  # of providers with createsPerMinute
        self._places: dict[str, ProviderCapacity] = {}
        self._held: dict[str, ProviderHoldings] = {}
        self._paused_until_s = 0.0

    def pause(self, now_s: float) -> None:
        """Pauses starts as the disk is full: live runs end and are recorded, new ones do not
        begin.
        """
        self._paused_until_s = now_s + DISK_FULL_PAUSE_S

    def held(self, provider: str) -> ProviderHoldings:
        """Returns the usage as counted at the beginning of this tick."""
        return self._held.get(provider, ProviderHoldings())

    def limit(self, provider: str) -> int | None:
        """Returns the limit of sandboxes at the same time; None = no limit."""
        contract = self._state.providers[provider].contract
        value = self._market.declared.get(provider)
        limits = (contract.sandboxes_at_once, value.limits.max_concurrent if value else None)
        return min((it for it in limits if it is not None), default=None)

    def slots(self, provider: str) -> dict[str, int | None]:
        """Returns the slots for a status."""
        return {"used": self.held(provider).sandboxes, "limit": self.limit(provider)}

    def spend(self, provider: str) -> dict[str, float]:
        """Returns the spending for a status; USD an hour."""
        held = self.held(provider)
        return {"usdPerHour": round(held.usd_per_s * HOUR_S, 6), "unpriced": held.unpriced}

    def exceeded(self, provider: str) -> bool:
        """Returns true if more is held there than allowed: the limit was lowered."""
        limit = self.limit(provider) if provider in self._state.providers else None
        return limit is not None and self.held(provider).sandboxes > limit

    def count(self, now_s: float) -> list[str]:
        """Begins a tick; returns the uids that waited for capacity and may find some now, and the
        Provider objects whose status changed.
        """
        self._held = _count_holdings(self._state.tracks.values())
        self.reckon(now_s)
        woken = dict.fromkeys(self._list_outdated())
        if now_s < self._paused_until_s:
            return list(woken)
        for name, waiting in self._at_capacity.items():
            for uid in list(waiting)[: _count_openings(self._places.get(name, ProviderCapacity()))]:
                woken[uid] = None
        for uid in woken:
            self._forget(uid)
        return list(woken)

    def reckon(self, now_s: float) -> None:
        """Computes the remaining capacity of each provider, by the limits of now."""
        self._places = {name: self._capacity(name, now_s) for name in self._state.providers}

    def capacity_of(self, provider: str) -> ProviderCapacity:
        """Returns the remaining capacity, except for the limit that the clock alone lifts."""
        return self._limit_by_breaker(provider, self._limit_by_slots(provider))

    def room(self, now_s: float) -> StartCapacity:
        """Returns the capacity for the next pass's starts."""
        if now_s < self._paused_until_s:
            return StartCapacity(self._places, paused=_DISK_FULL, until_s=self._paused_until_s)
        return StartCapacity(places=self._places)

    def started(
        self,
        track: Track,
        runs: Iterable[Run],
        now_s: float,
    ) -> None:
        """Adds the runs that a pass starts."""
        self._forget(track.resource.uid)
        for run in runs:
            if run.sandbox != run.name:
                continue  # its sandbox is there already
            held = self._held.setdefault(run.provider, ProviderHoldings())
            held.sandboxes += 1
            held.usd_per_s += run.usd_per_s or 0.0
            held.unpriced += run.usd_per_s is None
            if run.provider in self._creates:
                self._creates[run.provider].append(now_s)
            if run.provider in self._state.providers:
                self._places[run.provider] = self._capacity(run.provider, now_s)

    def stopped(self, provider: str, now_s: float) -> None:
        """Records that a pass stops a sandbox there."""
        self._held.setdefault(provider, ProviderHoldings()).stopping += 1
        if provider in self._state.providers:
            self._places[provider] = self._capacity(provider, now_s)

    def note_full(self, track: Track, providers: Iterable[str]) -> None:
        """Records that a pass found no capacity there; its object is looked at again when there is
        some.
        """
        for name in providers:
            self._at_capacity.setdefault(name, {}).setdefault(track.resource.uid)

    def _list_outdated(self) -> Iterator[str]:
        """Yields Provider objects whose status differs from the present usage."""
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

    def _capacity(self, provider: str, now_s: float) -> ProviderCapacity:
        left = self._limit_by_rate(provider, self._limit_by_slots(provider), now_s)
        return self._limit_by_breaker(provider, left)

    def _limit_by_slots(self, provider: str) -> ProviderCapacity:
        held = self.held(provider)
        limit = self.limit(provider)
        if limit is None:
            return ProviderCapacity()
        return ProviderCapacity(
            free=max(0, limit - held.sandboxes),
            full=f"its limit of {limit} sandboxes is reached",
            over=max(0, held.sandboxes - held.stopping - limit),
        )

    def _limit_by_breaker(self, provider: str, left: ProviderCapacity) -> ProviderCapacity:
        spec = self._market.declared.get(provider)
        held = self.held(provider)
        most = spec.breaker.max_spend_per_hour if spec else None
        if most is None:
            return left
        breaker = f"maxSpendPerHour of {format_per_hour(most / HOUR_S)}"
        if held.unpriced:
            return replace(
                left, free=0, full=f"what runs there has no known price, and there is {breaker}"
            )
        spare = most / HOUR_S - held.usd_per_s
        return replace(left, spare_usd_per_s=spare, breaker=breaker)

    def _limit_by_rate(
        self,
        provider: str,
        left: ProviderCapacity,
        now_s: float,
    ) -> ProviderCapacity:
        """Returns the same capacity, with no more creates than allowed in any 60 seconds."""
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
        return replace(
            left,
            free=free,
            full=full,
            until_s=until_s,
        )


def _count_openings(left: ProviderCapacity) -> int:
    """Returns how many waiting objects should look for capacity."""
    if left.free is not None:
        return left.free
    spare = left.spare_usd_per_s
    if spare is None or spare >= 0:
        return WOKEN_MAX
    return 0


def _count_holdings(tracks: Iterable[Track]) -> dict[str, ProviderHoldings]:
    found: dict[str, ProviderHoldings] = {}
    for track in tracks:
        for place, count in track.places.items():
            held = found.setdefault(place.provider, ProviderHoldings())
            held.sandboxes += count
            held.usd_per_s += count * (place.usd_per_s or 0.0)
            held.unpriced += count * (place.usd_per_s is None)
            held.stopping += count * place.stopping
    return found


class ProviderObjects(EnginePart):
    kind = KIND

    def __init__(
        self,
        state: EngineState,
        *,
        market: PriceBook,
        admission: ProviderAdmission,
        rate_limiters: RateLimiters,
    ) -> None:
        self._state = state
        self._market = market
        self._admission = admission
        self._rate_limiters = rate_limiters

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(
            wiring.state,
            market=wiring.get(PriceBook),
            admission=wiring.get(ProviderAdmission),
            rate_limiters=wiring.get(RateLimiters),
        )

    def load(self) -> None:
        """Takes in the Provider objects as they are stored; where one changed, it wakes the objects
        that start or wait for capacity.
        """
        if not self._market.refresh():
            return
        self._rate_limiters.limit_creates(self._market.declared)
        self._admission.reckon(self._state.clock.now_s())
        for uid, track in self._state.tracks.items():
            if track.work is not None:
                self._state.queue.add(uid)

    def begin_tick(self, now_s: float) -> list[str]:
        return self._admission.count(now_s)

    def begin_pass(self, _track: Track) -> None:
        self.load()

    def add_status(
        self,
        track: Track,
        status: Status,
        _now_s: float,
    ) -> Status:
        shows = provider_status(self._state, self._admission, track.resource.name)
        # For a deleted object, its wait is more important than its usage.
        if track.resource.deleted_at_s:
            return shows | status
        return status | shows

    def list_inputs(self, _work: ResourceWork, now_s: float) -> Mapping[str, Any]:
        return {"room": self._admission.room(now_s)}

    def take_decision(self, decision: WorkDecision) -> None:
        track = decision.work.track
        plan = decision.plan
        say_spills(self._state, track, plan)
        if plan.at_capacity:
            self._admission.note_full(track, plan.at_capacity)


def provider_status(
    state: EngineState,
    admission: ProviderAdmission,
    name: str,
) -> Status:
    """Slots, spend and whether anything new may start, as of the beginning of this tick."""
    if name not in state.providers:
        text = f"this version has no provider of the type of `{name}`"
        return {"phase": "Pending", "reason": "NoProvider", "message": text}
    full = explain_full(0.0, admission.capacity_of(name))
    return {
        "reason": "Full" if full else "Ready",
        "message": full,
        "slots": admission.slots(name),
        "spend": admission.spend(name),
    }
