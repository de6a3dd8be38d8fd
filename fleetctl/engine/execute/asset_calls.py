"""Calls providers for assets: volumes, functions, and leftovers of runs. Called by executor.py,
which guards the calls and reports how they ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused
from fleetctl.controllers.planning.plan import (
    AssetAction,
    EnsureFunction,
    EnsureVolume,
    FreeScratch,
    RemoveFunction,
    RemoveVolume,
)
from fleetctl.engine.execute.rate_limit import RateLimiter
from fleetctl.engine.execute.secrets import ResolvedSecrets, with_login
from fleetctl.engine.execute.start_specs import (
    build_function_request,
    build_server_order,
    pin_source,
    qualify_volumes,
)
from fleetctl.providers.contract.base import Backend, FunctionAsset, ServerAddress, Serving
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.builtin import PROMPT_PROVIDER
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.values.namespaces import asset_name
from fleetctl.tracking.track import Track

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState

NO_SERVER_HINT = (
    "place it on `modal`; or run the server beside each task (`template.services`), or by yourself,"
    " and give the Endpoint its `url`"
)
Resolve = Callable[[tuple[str, ...], str], ResolvedSecrets]  # of names in a namespace
Call = Callable[[], Awaitable[ServerAddress | None]]


async def carry_out(
    state: EngineState,
    rate_limiters: Mapping[str, RateLimiter],
    track: Track,
    action: AssetAction,
    secrets: Resolve,
) -> ServerAddress | None:
    """Makes the action's calls, one provider after the other; returns the address of a Function's
    server, if it made one. Raises Refused and Unavailable.
    """
    address = None
    for name, call in _list_calls(state, track, action, secrets):
        address = await rate_limiters[name].ask(call)
    return address


def _list_calls(
    state: EngineState,
    track: Track,
    action: AssetAction,
    secrets: Resolve,
) -> list[tuple[str, Call]]:
    """Returns (provider, call) pairs."""
    providers = state.providers
    namespace = track.resource.namespace
    if isinstance(action, FreeScratch):
        # Only where it ran: an unreachable provider must not hold up the others' objects.
        used = track.work.history.providers if track.work is not None else set(providers)
        free = {name: providers[name].remove_scratch for name in sorted(used & set(providers))}
        return [
            (name, partial(call, action.uid, keep_logs=action.keep_logs))
            for name, call in free.items()
        ]
    if isinstance(action, RemoveFunction):
        # Jobs may have called it elsewhere than where it was kept ready.
        called = asset_name(action.name, namespace)
        having = [name for name, it in sorted(providers.items()) if it.contract.functions]
        return [(name, partial(providers[name].remove_function, called)) for name in having]
    if action.provider not in providers:
        known = ", ".join(f"`{name}`" for name in sorted({*providers} - {PROMPT_PROVIDER}))
        raise Refused(
            f"there is no provider `{action.provider}`",
            hint=f"there is {known or 'none'}; `kind: Provider` declares another account",
        )
    backend = providers[action.provider]
    called = asset_name(action.name, namespace)
    match action:
        case EnsureVolume():
            return [(action.provider, partial(backend.ensure_volume, called))]
        case RemoveVolume():
            return [(action.provider, partial(backend.remove_volume, called))]
        case EnsureFunction():
            asset = _build_function(state, track, backend, secrets)
            return [(action.provider, partial(backend.ensure_function, asset))]


def _build_function(
    state: EngineState,
    track: Track,
    backend: Backend,
    secrets: Resolve,
) -> FunctionAsset:
    """Builds the asset of a Function object; its secrets are resolved here and not stored."""
    spec = track.spec
    assert isinstance(spec, FunctionSpec)
    if not backend.contract.functions:
        raise Refused(f"provider `{spec.provider}` has no functions", hint="name one that has them")
    if spec.port is not None and not isinstance(backend, Serving):
        raise Refused(
            f"provider `{spec.provider}` runs no Function with a `port`",
            hint=NO_SERVER_HINT,
        )
    name = track.resource.name
    namespace = track.resource.namespace
    whole = pin_source(state, spec.applied_to(Template()), track.resource)
    template = with_login(qualify_volumes(whole, namespace), secrets, namespace)
    found = secrets(template.secrets, namespace) if template.secrets else ResolvedSecrets()
    order = build_function_request(name, namespace, spec)
    refs = found.refs_at(spec.provider, guards_secrets=backend.contract.guards_secrets)
    return FunctionAsset(
        order,
        template,
        found.beside(template.env),
        refs,
        build_server_order(spec),
    )
