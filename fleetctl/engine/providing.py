"""What people see of providers: the status of a Provider object, and that work runs over.

Called by passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controllers.placing import HOUR_S, no_room
from controllers.plan import Plan, Start
from fleetctl.engine.track import Track

if TYPE_CHECKING:
    from fleetctl.engine.loop import Engine

EVENT = "SpillOver"


def say_spills(engine: Engine, track: Track, plan: Plan) -> None:
    """One event for each provider that work runs over to, under one generation of the spec."""
    for start in plan.actions:
        if isinstance(start, Start) and start.spilled and start.provider not in track.spilled_to:
            track.spilled_to.add(start.provider)
            text = f"work runs over to `{start.provider}`: {start.placed}"
            engine.say(track.resource.uid, EVENT, text)


def provider_status(engine: Engine, name: str) -> dict[str, object]:
    """Slots, spend and whether anything new may start, as of the beginning of this turn."""
    if name not in engine.providers:
        text = f"no provider `{name}` is built in"
        return {"phase": "Pending", "reason": "NoProvider", "message": text}
    held, left = engine.admission.held(name), engine.admission.standing(name)
    full = no_room(0.0, left)
    return {
        "reason": "Full" if full else "Ready",
        "message": full,
        "slots": {"used": held.sandboxes, "limit": engine.admission.limit(name)},
        "spend": {"usdPerHour": round(held.usd_per_s * HOUR_S, 6), "unpriced": held.unpriced},
    }
