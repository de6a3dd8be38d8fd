"""Provider objects in the engine: whose account each is, who still uses one that is to go, and what
people see of them. Called by prices.py, passes and what reckons money.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import Plan, Start
from fleetctl.providers.contract.base import Backend
from fleetctl.providers.contract.terms import Contract
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.tracking.track import Track

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State

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
        about, history = track.resource, track.work.history if track.work is not None else None
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


def contract_of(state: State, provider: str) -> Contract | None:
    """None of a provider that this version cannot make anything of; its runs cost all the same."""
    backend = state.providers.get(provider)
    return backend.contract if backend is not None else None


def say_spills(state: State, track: Track, plan: Plan) -> None:
    """One event for each provider that work runs over to, under one generation of the spec."""
    for start in plan.actions:
        if isinstance(start, Start) and start.spilled and start.provider not in track.spilled_to:
            track.spilled_to.add(start.provider)
            text = f"work runs over to `{start.provider}`: {start.placed}"
            state.say(track.resource.uid, EVENT, text)
