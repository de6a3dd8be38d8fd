"""Provider objects: their prices, limits and accounts apply to all work, and their status shows
slots, spend and whether new starts are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from fleetctl.controllers.planning.placement import explain_full
from fleetctl.controllers.status_keys import Status
from fleetctl.engine.capacity.admission import ProviderAdmission
from fleetctl.engine.capacity.price_book import KIND, PriceBook, say_spills
from fleetctl.engine.execute.rate_limit import RateLimiters
from fleetctl.engine.shared.part import EnginePart, PartWiring, WorkDecision

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import ResourceWork, Track


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
