"""Completes the spec of a run before its start: with the Function that its template names, and with
the results of earlier stages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Resource
from fleetctl.providers.contract.base import FunctionRequest, ServerOrder
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.function import SCALEDOWN_S, FunctionSpec
from fleetctl.specs.kinds.trainingrun import STAGE
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, asset_name, object_key

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.stores.base import RunStore
    from fleetctl.tracking.track import ResourceWork


# Reasons for which a start waits.
REASON_MISSING = "FunctionMissing"
REASON_SERVES = "FunctionServes"

VARIABLE = "FLEETCTL_STAGE_RESULTS"
# For all results together. Linux allows 128 KiB for one variable.
RESULTS_BYTES_MAX = 64 * 1024


def resolve_template(
    state: EngineState,
    template: Template,
    namespace: str,
) -> tuple[Template, FunctionRequest | None]:
    """Returns the template merged with its Function's environment, and the Function's containers;
    None for a template that no function runs.

    Raises Unavailable when the Function does not exist, or serves a port; the run waits then.
    """
    if template.function is None:
        if not template.is_function:
            return template, None
        return template, FunctionRequest("", 0, None, SCALEDOWN_S)
    resource = _find_function(state, template.function, namespace)
    spec = FunctionSpec.model_validate_json(resource.spec)
    if spec.port is not None:
        raise Unavailable(
            f"{resource.key} has a `port`: it serves requests, and runs no task",
            reason=REASON_SERVES,
            hint="name it in an Endpoint's `servers`, or give the tasks another Function",
        )
    merged = pin_source(state, spec.applied_to(template), resource)
    return merged, build_function_request(template.function, namespace, spec)


def pin_source(
    state: EngineState,
    template: Template,
    resource: Resource,
) -> Template:
    """Returns the template with its source as it was when `resource`, which names it, was applied.
    Raises Unavailable when no copy of that source is left.
    """
    if state.sources is None or template.source is None:
        return template
    return state.sources.pinned(template, resource.annotations)


def qualify_volumes(template: Template, namespace: str) -> Template:
    """Returns the template with the names that its volumes have at a provider, which contain the
    namespace unless it is the default one.
    """
    if namespace == DEFAULT_NAMESPACE or not template.volumes:
        return template
    volumes = [
        mount.model_copy(update={"name": asset_name(mount.name, namespace)})
        for mount in template.volumes
    ]
    return template.model_copy(update={"volumes": type(template.volumes)(volumes)})


def build_function_request(
    name: str,
    namespace: str,
    spec: FunctionSpec,
) -> FunctionRequest:
    """Returns the containers that a Function declares. Where it serves a port and sets no maximum,
    the maximum is its minimum, at least 1: no `parallelism` limits its requests.
    """
    max_containers = spec.max_containers
    if max_containers is None and spec.port is not None:
        max_containers = max(1, spec.min_containers)
    return FunctionRequest(
        asset_name(name, namespace),
        spec.min_containers,
        max_containers,
        spec.scaledown_seconds,
    )


def build_server_order(spec: FunctionSpec) -> ServerOrder | None:
    """Returns the server that the Function's containers run; None for a Function that tasks
    call.
    """
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
        # A deleted Function serves the objects that name it until they have ended.
        rows = (track.resource for track in state.tracks.assets.values())
        resource = next((row for row in rows if row.key == key), None)
    if resource is None:
        raise Unavailable(
            f"{key} is not declared",
            reason=REASON_MISSING,
            hint=f"apply a manifest of kind Function with the name `{name}`",
        )
    return resource


def stage_variables(
    work: ResourceWork,
    runs: RunStore,
    index: int,
) -> Mapping[str, str]:
    """Returns `{"data": {...}}` as JSON, by the names of earlier stages; null for a stage without a
    result, and for a result that is too large beside the earlier ones. Empty for the first stage.
    """
    controller = work.controller
    history = work.history
    if not controller.in_order or index == controller.first:
        return {}
    results = {run.index: text for run, text in runs.of(work.resource.uid) if text is not None}
    fields: dict[str, object] = {}
    left = RESULTS_BYTES_MAX
    for earlier in controller.indexes():
        unit = controller.unit(earlier)
        if earlier == index or unit is None:
            break
        text = results.get(earlier, "") if earlier in history.succeeded else ""
        fits = 0 < len(text.encode()) <= left
        left -= len(text.encode()) if fits else 0
        fields[str(unit.params[STAGE])] = json.loads(text) if fits else None
    return {VARIABLE: json.dumps(fields)}
