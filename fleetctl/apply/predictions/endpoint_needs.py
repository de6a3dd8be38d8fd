"""Endpoints that work names, and the objects that they need themselves. Called by predict.py; only
the gateway finds out if their servers respond: work waits until they do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fleetctl.apply.predictions.missing_objects import predict_missing
from fleetctl.apply.predictions.world import PlannedWorld
from fleetctl.common.finding import Finding, Path
from fleetctl.common.install import install_hint
from fleetctl.engine.kinds.endpoints.endpoints import KIND
from fleetctl.engine.kinds.endpoints.served_functions import KIND as FUNCTION
from fleetctl.gateway.gateway_client import EXTRA
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.prompt import Prompt
from fleetctl.specs.kinds.endpoint import EndpointSpec
from fleetctl.specs.kinds.secret import SecretSpec

WITHOUT_BATCHES = "leave `mode` out: then each row is a call"

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


def of_work(
    manifest: Manifest,
    spec: WorkSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    for part in spec.parts():
        if part.own:
            continue  # a stage has the template's
        if part.template.prompt is not None:
            at: Path = (*part.at("prompt"), "endpoint")
            yield from _of_a_prompt(manifest, at, part.template.prompt, world)
        reaches: dict[str, str] = {}
        for number, name in enumerate(part.template.endpoints):
            at = (*part.at("endpoints"), number)
            yield from predict_missing(
                manifest,
                at,
                KIND,
                name,
                world,
            )
            resource = world.found(KIND, name, manifest.namespace)
            if resource is None:
                continue
            found = EndpointSpec.model_validate_json(resource.spec)
            reaches.setdefault(found.reach, name)
            if len(reaches) > 1:
                others = " and ".join(f"`{it}` has `{reach}`" for reach, it in reaches.items())
                message = f" is `{name}`, and a task has one way to ask: {others}"
                hint = "give all endpoints of a template the same `reach`"
                yield Finding(at, message, hint)
                break


def _of_a_prompt(
    manifest: Manifest,
    at: Path,
    prompt: Prompt,
    world: PlannedWorld,
) -> Iterator[Finding]:
    name = prompt.endpoint
    yield from predict_missing(
        manifest,
        at,
        KIND,
        name,
        world,
    )
    resource = world.found(KIND, name, manifest.namespace)
    spec = json.loads(resource.spec) if resource is not None else {}
    if spec.get("reach") == "Direct":
        message = f" is `{name}`, which has `reach: Direct`: prompts are asked through the gateway"
        yield Finding(at, message, "give it `reach: Gateway`")
    sorts = {_sort_without_batches(it, spec) for it in spec.get("servers") or ()}
    if prompt.mode == "batch" and sorts and None not in sorts:
        mode: Path = (*at[:-1], "mode")
        servers = " and ".join(sorted(filter(None, sorts)))
        message = f" is `batch`, and {servers}, as of endpoint/{name}, have no batch API"
        yield Finding(mode, message, WITHOUT_BATCHES)


def _sort_without_batches(server: Mapping[str, Any], spec: Mapping[str, Any]) -> str | None:
    """Returns the sort; None where the server may have a batch API."""
    if server.get("function"):
        return "Functions"
    api = server.get("api") or spec.get("api")
    if api == "ollama":
        return "servers of Ollama"
    return None


def _check_functions(
    manifest: Manifest,
    spec: EndpointSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    """Yields Functions that should serve it and do not exist or are no servers."""
    for number, server in enumerate(spec.servers):
        if server.function is None:
            continue
        at: Path = ("spec", "servers", number, "function")
        yield from predict_missing(
            manifest,
            at,
            FUNCTION,
            server.function,
            world,
        )
        resource = world.found(FUNCTION, server.function, manifest.namespace)
        if resource is not None and json.loads(resource.spec).get("port") is None:
            message = f" is `{server.function}`, which has no `port`: tasks call it"
            hint = "give it `port` and `command`, or name a server by its `url`"
            yield Finding(at, message, hint)


def of_endpoint(
    manifest: Manifest,
    spec: EndpointSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    if spec.reach == "Gateway" and find_spec("aiohttp") is None:
        at: Path = ("kind",)
        message = " is `Endpoint`, whose gateway needs aiohttp, and that is not installed here"
        yield Finding(at, message, install_hint(EXTRA))
    yield from _check_functions(manifest, spec, world)
    if spec.api_key is None:
        return
    at = ("spec", "apiKey", "secret")
    name, variable = spec.api_key.secret, spec.api_key.name
    yield from predict_missing(
        manifest,
        at,
        "Secret",
        name,
        world,
    )
    resource = world.found("Secret", name, manifest.namespace)
    if resource is None:
        return
    secret = SecretSpec.model_validate_json(resource.spec)
    given = (*secret.from_env, *secret.from_file)
    if variable in given:
        return
    at = ("spec", "apiKey", "name")
    names = " and ".join(f"`{it}`" for it in given) or "no value that the controller knows"
    message = f" is `{variable}`, and secret/{name} gives {names}"
    hint = f"add `fromEnv: [{variable}]` to the Secret, or name one that it gives"
    yield Finding(at, message, hint)
