"""Provider objects in the engine: whose account each is, who still uses one that is to go, and what
people see of them. Called by market, passes and what reckons money.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from fleetctl.controllers.model import Resource
from fleetctl.controllers.placement import HOUR_S, no_room
from fleetctl.controllers.plan import Plan, Start
from fleetctl.providers.base import Backend, Contract
from fleetctl.specs.common import DEFAULT_PROVIDER
from fleetctl.tracking.track import Track

if TYPE_CHECKING:
    from fleetctl.engine.engine import Engine

EVENT = "SpillOver"


class Accounts(Protocol):
    """What makes the backend of a declared provider; wiring.py has it."""

    def open(self, name: str, spec: Mapping[str, object]) -> Backend:
        """The same one for the same name, with the account that the spec says from now on."""
        ...

    def restore(self, name: str) -> None:
        """Nothing is said any more of a provider that is built in."""
        ...


def users(tracks: Mapping[str, Track], name: str) -> Iterator[str]:
    """Keys of objects that hold something at the provider: runs, sandboxes, or what they stand for
    themselves.
    """
    for track in tracks.values():
        about, history = track.resource, track.history
        if about.kind in ("Volume", "Function"):
            holds = kept_on(about) == name
        elif history is not None:
            live = any(run.provider == name for run in history.live.values())
            holds = live or any(it.provider == name for it in history.sandboxes.held.counts)
        else:
            holds = False
        if holds:
            yield about.key


def kept_on(asset: Resource) -> str:
    """The provider of a volume or a function."""
    return str(json.loads(asset.spec).get("provider", DEFAULT_PROVIDER))


def contract_of(engine: Engine, provider: str) -> Contract | None:
    """None of a provider that this version cannot make anything of; its runs cost all the same."""
    backend = engine.providers.get(provider)
    return backend.contract if backend is not None else None


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
        text = f"this version has no provider of the type of `{name}`"
        return {"phase": "Pending", "reason": "NoProvider", "message": text}
    held, left = engine.admission.held(name), engine.admission.standing(name)
    full = no_room(0.0, left)
    return {
        "reason": "Full" if full else "Ready",
        "message": full,
        "slots": {"used": held.sandboxes, "limit": engine.admission.limit(name)},
        "spend": {"usdPerHour": round(held.usd_per_s * HOUR_S, 6), "unpriced": held.unpriced},
    }
