"""One pass over an object that runs nothing: a volume, a function, a secret, a provider. Called by
passes.py, which carries out and writes what is decided here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fleetctl.controllers.assets import AssetWish, reconcile_asset
from fleetctl.controllers.kinds import CONTROLLERS
from fleetctl.controllers.model import Resource
from fleetctl.controllers.plan import EnsureFunction, Plan
from fleetctl.engine.capacity.prices import KIND as PROVIDER
from fleetctl.engine.capacity.providers import kept_on, provider_status, users
from fleetctl.engine.money.warm_functions import KIND as FUNCTION
from fleetctl.tracking.track import Track

if TYPE_CHECKING:
    from fleetctl.engine.engine import Engine

# Kinds whose objects stand for something at a provider.
ASSET_KINDS = frozenset({"Volume", "Function"})


def asset_plan(engine: Engine, track: Track) -> Plan:
    """What to make or remove; what no budget pays for waits."""
    return _afforded(engine, track, reconcile_asset(_asset_wish(engine, track)))


def asset_status(engine: Engine, track: Track, plan: Plan, now_s: float) -> dict[str, object]:
    """As it stands once the durable part of the plan is carried out."""
    resource = track.resource
    status: dict[str, object] = {
        "phase": plan.phase.value,
        "reason": plan.reason,
        "message": plan.message,
        "waitingOn": list(plan.waiting_on),
        "observedGeneration": resource.generation,
    }
    if resource.uid not in engine.tracks:
        return status
    if resource.kind == FUNCTION:
        status |= engine.budgets.warming.status(track, now_s)
    if resource.kind == PROVIDER:
        stands = provider_status(engine, resource.name)
        # Of one that is to go, what it waits for says more than how full it is.
        status = stands | status if resource.deleted_at_s else status | stands
    return status


def _afforded(engine: Engine, track: Track, plan: Plan) -> Plan:
    """The plan of an asset; one that would keep what no budget pays for waits for money."""
    if not any(isinstance(action, EnsureFunction) for action in plan.actions):
        return plan
    budgets = engine.budgets
    denied = budgets.warming.denied(track, budgets.shared(track))
    if denied is None:
        return plan
    budgets.denied(track)
    if denied.until_s is not None:
        engine.queue.add(track.resource.uid, denied.until_s)
    return Plan((), plan.phase, denied.reason, denied.message, (denied.message,))


def _asset_wish(engine: Engine, track: Track) -> AssetWish:
    resource, asset = track.resource, track.asset
    abandoned = resource.deleted_at_s is not None and resource.uid in engine.abandoned
    twins = _twins(engine, resource)
    return AssetWish(
        uid=resource.uid,
        kind=resource.kind,
        name=resource.name,
        deleted=resource.deleted_at_s is not None,
        provider=getattr(track.spec, "provider", ""),
        delete_data=getattr(track.spec, "deletion_policy", "Retain") == "Delete",
        ready=asset.ready,
        removed=asset.removed or abandoned,
        users=tuple(_users(engine, resource)) if resource.deleted_at_s and not abandoned else (),
        heir=any(twin.resource.deleted_at_s is None for twin in twins),
        removing=any(it.asset.busy for it in ([track] if resource.deleted_at_s else twins)),
        problem=asset.problem,
    )


def _users(engine: Engine, used: Resource) -> list[str]:
    """Objects that are not over and name this volume or function; of a provider, what it still
    holds.
    """
    if used.kind == PROVIDER:
        closing = used.name in engine.market.closing
        return sorted(users(engine.tracks, used.name)) if closing else []
    return [
        track.resource.key
        for track in engine.tracks.values()
        if (track.resource.kind in CONTROLLERS or track.resource.kind == "Function")
        and not track.over
        and track.resource.namespace == used.namespace
        and (used.kind, used.name) in _named(track.resource)
    ]


def _twins(engine: Engine, resource: Resource) -> list[Track]:
    """Assets of the same name at the same provider: at most one of them is not deleted."""
    return [
        track
        for track in engine.tracks.assets.values()
        if track.resource.kind == resource.kind
        and resource.kind in ASSET_KINDS
        and track.resource.name == resource.name
        and track.resource.namespace == resource.namespace
        and track.resource.uid != resource.uid
        and kept_on(track.resource) == kept_on(resource)
    ]


def _named(resource: Resource) -> set[tuple[str, str]]:
    """(kind, name) of the assets that a stored spec names, read without its model."""
    spec = json.loads(resource.spec)
    template = spec if resource.kind == "Function" else spec.get("template") or {}
    named = {("Volume", mount["name"]) for mount in template.get("volumes", ())}
    return named | ({("Function", template["function"])} if "function" in template else set())
