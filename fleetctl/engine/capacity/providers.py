"""Manages Provider objects in the engine: the account of each, the users of a provider that is
being removed, and its status. Called by price_book.py, passes and the budget code.
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
    from fleetctl.engine.shared.engine_state import EngineState

EVENT = "SpillOver"


class ProviderAccounts(Protocol):
    """Makes the backend of a declared provider; implemented in wiring.py."""

    def open(self, name: str, spec: Mapping[str, object]) -> Backend:
        """Returns the same backend for the same name, with the account that the spec names from now
        on.
        """
        ...

    def restore(self, name: str) -> None:
        """Restores the defaults of a built-in provider whose object was removed."""
        ...


def list_users(tracks: Mapping[str, Track], name: str) -> Iterator[str]:
    """Yields keys of objects that hold capacity at the provider: runs, sandboxes, or assets."""
    for track in tracks.values():
        about = track.resource
        history = track.work.history if track.work is not None else None
        if about.kind in ("Volume", "Function"):
            holds = asset_provider(about) == name
        elif history is not None:
            live = any(run.provider == name for run in history.live.values())
            holds = live or any(it.provider == name for it in history.sandboxes.held.counts)
        else:
            holds = False
        if holds:
            yield about.key


def asset_provider(asset: Resource) -> str:
    """Returns the provider of a volume or a function."""
    return str(json.loads(asset.spec).get("provider", DEFAULT_PROVIDER))


def contract_of(state: EngineState, provider: str) -> Contract | None:
    """Returns None for a provider that this version cannot read; its runs have a cost all the
    same.
    """
    backend = state.providers.get(provider)
    if backend is not None:
        return backend.contract
    return None


def say_spills(
    state: EngineState,
    track: Track,
    plan: Plan,
) -> None:
    """Adds one event for each provider that work spills over to, under one generation of the
    spec.
    """
    for start in plan.actions:
        if isinstance(start, Start) and start.spilled and start.provider not in track.spilled_to:
            track.spilled_to.add(start.provider)
            text = f"work moves on to `{start.provider}`: {start.placed}"
            state.say(track.resource.uid, EVENT, text)
