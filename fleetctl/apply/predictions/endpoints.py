"""Endpoints that work names, and what they themselves need. Called by predict.py; whether their
servers answer, only the gateway finds out: work waits until they do.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fleetctl.apply.predictions.needs import missing
from fleetctl.apply.predictions.world import Prediction, Sort, World
from fleetctl.engine.endpoints.endpoints import KIND
from fleetctl.gateway.reach.process import INSTALL
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.problems import Path
from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.kinds.endpoint import EndpointSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.kinds.secret import SecretSpec

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


def of_work(manifest: Manifest, spec: Execution, world: World) -> Iterator[Prediction]:
    for part in spec.parts():
        if part.own:
            continue  # a stage has the template's
        reaches: dict[str, str] = {}
        for number, name in enumerate(part.template.endpoints):
            at: Path = (*part.at("endpoints"), number)
            yield from missing(manifest, at, KIND, name, world)
            resource = world.found(KIND, name, manifest.namespace)
            if resource is None:
                continue
            found = parse_spec(KIND, resource.spec)
            assert isinstance(found, EndpointSpec)
            reaches.setdefault(found.reach, name)
            if len(reaches) > 1:
                others = " and ".join(f"`{it}` has `{reach}`" for reach, it in reaches.items())
                message = f" is `{name}`, and a task has one way to ask: {others}"
                hint = "give all endpoints of a template the same `reach`"
                yield Prediction(manifest, Finding(at, at, message, hint))
                break


def of_endpoint(manifest: Manifest, spec: EndpointSpec, world: World) -> Iterator[Prediction]:
    if spec.reach == "Gateway" and find_spec("aiohttp") is None:
        at: Path = ("kind",)
        message = " is `Endpoint`, whose gateway needs aiohttp, and that is not installed here"
        yield Prediction(manifest, Finding(at, at, message, INSTALL))
    if spec.api_key is None:
        return
    at = ("spec", "apiKey", "secret")
    name, variable = spec.api_key.secret, spec.api_key.name
    yield from missing(manifest, at, "Secret", name, world)
    resource = world.found("Secret", name, manifest.namespace)
    if resource is None:
        return
    secret = parse_spec("Secret", resource.spec)
    assert isinstance(secret, SecretSpec)
    given = (*secret.from_env, *secret.from_file)
    if variable in given:
        return
    at = ("spec", "apiKey", "name")
    names = " and ".join(f"`{it}`" for it in given) or "no value that the controller knows"
    message = f" is `{variable}`, and secret/{name} gives {names}"
    hint = f"add `fromEnv: [{variable}]` to the Secret, or name one that it gives"
    yield Prediction(manifest, Finding(at, at, message, hint), Sort.NEVER)
