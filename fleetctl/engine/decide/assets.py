"""One pass over an object without runs: a volume, a function, a secret, a provider. Called by
passes.py, which carries out and writes the decisions made here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.kinds.assets import DesiredAsset, reconcile_asset
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import Plan
from fleetctl.controllers.status import plan_status
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.engine.capacity.price_book import KIND as PROVIDER
from fleetctl.engine.capacity.providers import asset_provider, list_users
from fleetctl.specs.content import asked_in
from fleetctl.specs.values.hints import HintedText
from fleetctl.tracking.track import Track

if TYPE_CHECKING:
    from fleetctl.engine.capacity.price_book import PriceBook
    from fleetctl.engine.shared.engine_state import EngineState

# Kinds whose objects represent an asset of a provider.
ASSET_KINDS = frozenset({"Volume", "Function"})
# Kinds whose deleted objects wait for the objects that use them.
USED_KINDS = ASSET_KINDS | {PROVIDER, "Endpoint"}
_USERS = frozenset({*CONTROLLERS, "Function", "Endpoint"})


def asset_plan(
    state: EngineState,
    market: PriceBook,
    track: Track,
    lacking: tuple[str, HintedText] | None = None,
) -> Plan:
    """Plans which asset to make or remove. lacking: reason and sentence of a missing requirement,
    such as a server.
    """
    return reconcile_asset(replace(_desired_asset(state, market, track), lacking=lacking))


def asset_status(track: Track, plan: Plan) -> Status:
    """Returns the status once the durable part of the plan is carried out."""
    return {**plan_status(plan), "observedGeneration": track.resource.generation}


def _desired_asset(
    state: EngineState,
    market: PriceBook,
    track: Track,
) -> DesiredAsset:
    resource = track.resource
    asset = track.asset
    abandoned = resource.deleted_at_s is not None and resource.uid in state.abandoned
    twins = _find_twins(state, resource)
    return DesiredAsset(
        uid=resource.uid,
        kind=resource.kind,
        name=resource.name,
        deleted=resource.deleted_at_s is not None,
        provider=getattr(track.spec, "provider", ""),
        delete_data=getattr(track.spec, "deletion_policy", "Retain") == "Delete",
        ready=asset.ready,
        removed=asset.removed or abandoned,
        users=tuple(_list_asset_users(state, market, resource))
        if resource.deleted_at_s and not abandoned
        else (),
        heir=any(twin.resource.deleted_at_s is None for twin in twins),
        removing=any(it.asset.busy for it in ([track] if resource.deleted_at_s else twins)),
        problem=asset.problem,
    )


def _list_asset_users(
    state: EngineState,
    market: PriceBook,
    used: Resource,
) -> list[str]:
    """Objects that are not over and name this volume or function; of a provider, what it still
    holds.
    """
    if used.uid in market.closing_uids:
        return sorted(list_users(state.tracks, used.name))
    return [
        track.resource.key
        for track in state.tracks.values()
        if track.resource.kind in _USERS
        and not track.over
        and track.resource.namespace == used.namespace
        and (used.kind, used.name) in _list_named(track.resource)
    ]


def _find_twins(state: EngineState, resource: Resource) -> list[Track]:
    """Returns assets of the same name at the same provider: at most one of them is not deleted."""
    return [
        track
        for track in state.tracks.of_kind(resource.kind)
        if resource.kind in ASSET_KINDS
        and track.resource.name == resource.name
        and track.resource.namespace == resource.namespace
        and track.resource.uid != resource.uid
        and asset_provider(track.resource) == asset_provider(resource)
    ]


def _list_named(resource: Resource) -> set[tuple[str, str]]:
    """Returns (kind, name) of the assets that a stored spec names, read without its model."""
    spec = json.loads(resource.spec)
    template = spec.get("template") or spec  # a Function's program is not one level down
    named = {("Volume", mount["name"]) for mount in template.get("volumes", ())}
    named |= {("Endpoint", name) for name in asked_in(spec)}
    named |= {("Function", it["function"]) for it in spec.get("servers", ()) if "function" in it}
    return named | ({("Function", template["function"])} if "function" in template else set())
