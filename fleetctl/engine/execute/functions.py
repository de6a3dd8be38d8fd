"""Resolves Functions for runs: the environment of the tasks that name one. Called by the
executor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Resource
from fleetctl.providers.contract.base import FunctionRequest
from fleetctl.providers.contract.endpoint_access import ServerOrder
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.function import SCALEDOWN_S, FunctionSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, asset_name, object_key

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState

# Why a start waits.
REASON_MISSING = "FunctionMissing"
REASON_SERVES = "FunctionServes"


def resolve_template(
    state: EngineState,
    template: Template,
    namespace: str,
) -> tuple[Template, FunctionRequest | None]:
    """Returns the template merged with its Function's settings, and the Function's own settings.

    Raises Unavailable when the Function does not exist; a run waits until it does.
    """
    if template.function is None:
        if not template.is_function:
            return template, None
        return template, FunctionRequest("", 0, None, SCALEDOWN_S)
    resource = _find_function(state, template.function, namespace)
    spec: FunctionSpec = parse_spec("Function", resource.spec)  # type: ignore[assignment]
    if spec.port is not None:
        raise Unavailable(
            f"{resource.key} has a `port`: it is asked, and runs no task",
            reason=REASON_SERVES,
            hint="name it in an Endpoint's `servers`, or give the tasks another Function",
        )
    whole = pin_source(state, spec.applied_to(template), resource)
    return whole, order_of(template.function, namespace, spec)


def pin_source(
    state: EngineState,
    template: Template,
    resource: Resource,
) -> Template:
    """Returns the template with its source as it was when `resource`, which names it, was applied.
    Raises Unavailable.
    """
    if state.sources is None or template.source is None:
        return template
    found: Template = state.sources.pinned(template, resource.annotations)
    return found


def qualify_volumes(template: Template, namespace: str) -> Template:
    """Returns the template with the names that its volumes have at a provider."""
    if namespace == DEFAULT_NAMESPACE or not template.volumes:
        return template
    volumes = [
        mount.model_copy(update={"name": asset_name(mount.name, namespace)})
        for mount in template.volumes
    ]
    return template.model_copy(update={"volumes": type(template.volumes)(volumes)})


def order_of(
    name: str,
    namespace: str,
    spec: FunctionSpec,
) -> FunctionRequest:
    called = asset_name(name, namespace)
    most = spec.max_containers
    if most is None and spec.port is not None:
        most = max(1, spec.min_containers)  # its requests have no parallelism as a limit
    return FunctionRequest(called, spec.min_containers, most, spec.scaledown_seconds)


def server_of(spec: FunctionSpec) -> ServerOrder | None:
    """Returns the server that its containers run; None for a Function that tasks call."""
    if spec.port is None or spec.command is None:
        return None
    ready = spec.ready.http if spec.ready is not None else ""
    return ServerOrder(
        spec.port,
        spec.command,
        ready,
        spec.startup_timeout_seconds,
        spec.concurrency,
    )


def _find_function(
    state: EngineState,
    name: str,
    namespace: str,
) -> Resource:
    key = object_key("Function", name, namespace)
    resource = state.store.resources.get("Function", name, namespace)
    if resource is None:
        # A deleted one serves its users to their end.
        rows = (track.resource for track in state.tracks.assets.values())
        resource = next((row for row in rows if row.key == key), None)
    if resource is None:
        raise Unavailable(
            f"{key} is not declared",
            reason=REASON_MISSING,
            hint=f"apply a manifest of kind Function with the name `{name}`",
        )
    return resource
