"""One pass over an object that runs nothing: a volume, a function, a secret, a provider. Called by
passes.py, which carries out and writes what is decided here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.kinds.assets import DesiredAsset, reconcile_asset
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import EnsureFunction, Plan
from fleetctl.controllers.status import plan_status
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.engine.capacity.prices import KIND as PROVIDER
from fleetctl.engine.capacity.providers import kept_on, users
from fleetctl.engine.capacity.status import provider_status
from fleetctl.engine.kinds.backups.status import KIND as SETTINGS
from fleetctl.engine.kinds.backups.status import settings_status
from fleetctl.engine.money.warm_functions import KIND as FUNCTION
from fleetctl.specs.content import asked_in
from fleetctl.tracking.track import Track

if TYPE_CHECKING:
    from fleetctl.engine.capacity.admission import Admission
    from fleetctl.engine.capacity.prices import Market
    from fleetctl.engine.money.budgets import Budgets
    from fleetctl.engine.shared.state import State

# Kinds whose objects stand for something at a provider.
ASSET_KINDS = frozenset({"Volume", "Function"})


def asset_plan(
    state: State,
    market: Market,
    budgets: Budgets,
    track: Track,
    lacking: tuple[str, str] | None = None,
) -> Plan:
    """What to make or remove; what no budget pays for waits. lacking: reason and sentence of what
    is not here to be made, such as a server.
    """
    desired = replace(_desired_asset(state, market, track), lacking=lacking)
    return _afforded(state, budgets, track, reconcile_asset(desired))


def asset_status(
    state: State,
    admission: Admission,
    budgets: Budgets,
    track: Track,
    plan: Plan,
    now_s: float,
) -> Status:
    """As it stands once the durable part of the plan is carried out."""
    resource = track.resource
    status: Status = {**plan_status(plan), "observedGeneration": resource.generation}
    if resource.uid not in state.tracks:
        return status
    if resource.kind == FUNCTION:
        status |= budgets.warming.status(track, budgets.shared(track.resource), now_s)
        address = track.asset.address
        url = address.url if address is not None else str(track.status.get("url") or "")
        if url and getattr(track.spec, "port", None) is not None:
            status["url"] = url
        if track.asset.warning:
            status["warning"] = track.asset.warning
    if resource.kind == SETTINGS and resource.deleted_at_s is None:
        status |= settings_status(state, track, now_s)
    if resource.kind == PROVIDER:
        stands = provider_status(state, admission, resource.name)
        # Of one that is to go, what it waits for says more than how full it is.
        status = stands | status if resource.deleted_at_s else status | stands
    return status


def _afforded(state: State, budgets: Budgets, track: Track, plan: Plan) -> Plan:
    """The plan of an asset; one that would keep what no budget pays for waits for money."""
    if not any(isinstance(action, EnsureFunction) for action in plan.actions):
        return plan
    denied = budgets.warming.denied(track, budgets.shared(track.resource))
    if denied is None:
        return plan
    budgets.denied(track)
    if denied.until_s is not None:
        state.queue.add(track.resource.uid, denied.until_s)
    return Plan((), plan.phase, denied.reason, denied.message, (denied.message,))


def _desired_asset(state: State, market: Market, track: Track) -> DesiredAsset:
    resource, asset = track.resource, track.asset
    abandoned = resource.deleted_at_s is not None and resource.uid in state.abandoned
    twins = _twins(state, resource)
    return DesiredAsset(
        uid=resource.uid,
        kind=resource.kind,
        name=resource.name,
        deleted=resource.deleted_at_s is not None,
        provider=getattr(track.spec, "provider", ""),
        delete_data=getattr(track.spec, "deletion_policy", "Retain") == "Delete",
        ready=asset.ready,
        removed=asset.removed or abandoned,
        users=tuple(_users(state, market, resource))
        if resource.deleted_at_s and not abandoned
        else (),
        heir=any(twin.resource.deleted_at_s is None for twin in twins),
        removing=any(it.asset.busy for it in ([track] if resource.deleted_at_s else twins)),
        problem=asset.problem,
    )


def _users(state: State, market: Market, used: Resource) -> list[str]:
    """Objects that are not over and name this volume or function; of a provider, what it still
    holds.
    """
    if used.kind == PROVIDER:
        closing = used.name in market.closing
        return sorted(users(state.tracks, used.name)) if closing else []
    return [
        track.resource.key
        for track in state.tracks.values()
        if (track.resource.kind in CONTROLLERS or track.resource.kind in ("Function", "Endpoint"))
        and not track.over
        and track.resource.namespace == used.namespace
        and (used.kind, used.name) in _named(track.resource)
    ]


def _twins(state: State, resource: Resource) -> list[Track]:
    """Assets of the same name at the same provider: at most one of them is not deleted."""
    return [
        track
        for track in state.tracks.assets.values()
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
    named |= {("Endpoint", name) for name in asked_in(spec)}
    if resource.kind == "Endpoint":
        named |= {("Function", it["function"]) for it in spec["servers"] if "function" in it}
    return named | ({("Function", template["function"])} if "function" in template else set())
