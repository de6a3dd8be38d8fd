"""Where work could run, and why nowhere. Called by predict.py."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.apply.predictions.world import Prediction, Sort, World
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.kind import placement_of
from fleetctl.controllers.planning.placement import Offer, judge
from fleetctl.engine.capacity.prices import charged, lacks
from fleetctl.engine.execute.asset_calls import NO_SERVER_HINT
from fleetctl.manifest.hints.words import listed, meant
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.problems import Path
from fleetctl.providers.contract.base import Foreseeing, Foreseen
from fleetctl.providers.contract.endpoints import Serving
from fleetctl.specs.blocks.common import BESIDE_TEMPLATE, Execution, Part
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.builtin import PROMPT_PROVIDER
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.registry import parse_spec

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

DECLARE = "`kind: Provider` with a `type` declares another account"


@dataclass(frozen=True, slots=True)
class _No:
    """Why one candidate cannot run it."""

    provider: str
    why: str
    hint: str
    sort: Sort
    field: tuple[str, ...] | None = None  # of the template


async def of_work(manifest: Manifest, spec: Execution, world: World) -> AsyncIterator[Prediction]:
    """Wrong names of providers; and that no candidate can run it."""
    messages = set()  # stages may share a place, or a field of the template
    for part in spec.parts():
        async for found in _of_part(manifest, part, world):
            if found.finding not in messages:
                messages.add(found.finding)
                yield found


async def _of_part(manifest: Manifest, part: Part, world: World) -> AsyncIterator[Prediction]:
    paths = _candidate_paths(part)
    known = [name for name in paths if name in world.providers]
    for name, path in paths.items():
        if name not in world.providers:
            sort = Sort.DOUBT if known else Sort.NEVER
            yield Prediction(manifest, _unknown(name, path, world), sort)
    whole = _whole(manifest, part, world)
    if not known or whole is None:
        return
    found = [await _refusal(name, whole, part, manifest, world) for name in known]
    refusals = [it for it in found if it]
    if len(refusals) < len(known):
        return
    if len(paths) == 1:
        (no,) = refusals
        yield Prediction(manifest, _single(no, paths[no.provider], part), no.sort)
        return
    message = "; ".join(f"`{it.provider}`: {it.why}" for it in refusals)
    message = f": no place can run this: {message}"
    hint = next((it.hint for it in refusals if it.sort is not Sort.NEVER), refusals[0].hint)
    sorts = {it.sort for it in refusals}
    sort = next(it for it in (Sort.LATER, Sort.CAPACITY, Sort.NEVER) if it in sorts)
    at: Path = part.placement_at
    yield Prediction(manifest, Finding(at, at, message, hint), sort)


async def of_function(
    manifest: Manifest, spec: FunctionSpec, world: World
) -> AsyncIterator[Prediction]:
    at: Path = ("spec", "provider")
    if spec.provider not in world.providers:
        yield Prediction(manifest, _unknown(spec.provider, at, world))
        return
    backend = world.providers[spec.provider]
    if spec.port is not None and not isinstance(backend, Serving):
        message = f" is `{spec.provider}`, which runs no Function with a `port`"
        yield Prediction(manifest, Finding(at, at, message, NO_SERVER_HINT))
        return
    template = spec.applied_to(Template())
    found = None
    if isinstance(backend, Foreseeing):
        found = await backend.foresee(template, world.account(spec.provider))
    if found is not None:
        # What a Function lacks the field for is about where it is kept.
        field = found.field if found.field[:1] != ("runtime",) else ()
        path = ("spec", *field) if field else at
        message = _said(spec.provider, found.message, field)
        yield Prediction(manifest, Finding(path, path, message, found.hint), _sort(found))


def _candidate_paths(part: Part) -> dict[str, Path]:
    """Where each candidate is named."""
    at, placement = part.placement_at, part.placement
    for field, entries in (("ordered", placement.ordered), ("anyOf", placement.any_of)):
        if entries:
            return {it.provider: (*at, field, n, "provider") for n, it in enumerate(entries)}
    (only,) = placement.candidates
    return {only.provider: (*at, "provider")}


def _unknown(name: str, path: Path, world: World) -> Finding:
    near = meant(name, world.providers)
    there = listed(sorted({*world.providers} - {PROMPT_PROVIDER}))
    hint = f"did you mean `{near}`? " if near else ""
    message = f" is `{name}`, and there is no such provider"
    return Finding(path, path, message, f"{hint}there is {there}; {DECLARE}")


def _whole(manifest: Manifest, part: Part, world: World) -> Template | None:
    """With what its Function says, None while that is not there; and without endpoints that it
    asks by itself.
    """
    template = part.template
    names = template.endpoints
    if names and all(_is_direct(world, it, manifest.namespace) for it in names):
        template = template.model_copy(update={"endpoints": ()})
    if template.function is None:
        return template
    resource = world.found("Function", template.function, manifest.namespace)
    if resource is None:
        return None
    function = parse_spec("Function", resource.spec)
    assert isinstance(function, FunctionSpec)
    return function.applied_to(template)


def _is_direct(world: World, endpoint: str, namespace: str) -> bool:
    resource = world.found("Endpoint", endpoint, namespace)
    return resource is not None and json.loads(resource.spec).get("reach") == "Direct"


async def _refusal(
    name: str, template: Template, part: Part, manifest: Manifest, world: World
) -> _No | None:
    """Why this candidate can never run it, or waits for what is not there."""
    backend = world.providers[name]
    if why := backend.contract.cannot_join(name, template):
        alone = len(part.placement.candidates) == 1
        message = why if alone else why.replace(f"provider `{name}` ", "it ", 1)
        contract = backend.contract
        field = (contract.joins_field(template),)
        return _No(name, message, contract.joins_hint(template), Sort.NEVER, field)
    foreseen: _No | None = None
    if isinstance(backend, Foreseeing):
        found = await backend.foresee(template, world.account(name))
        if found is not None:
            foreseen = _No(name, found.message, found.hint, _sort(found), found.field)
    if foreseen is not None and foreseen.sort is Sort.NEVER:
        return foreseen
    # Where there is no choice, volumes and Functions kept elsewhere are told with both places.
    several = len(part.placement.candidates) > 1
    volume = partial(_volume, world, manifest.namespace)
    price = charged(backend, world.declared.get(name), template)
    own = backend.lacks(template)
    lacking = lacks(name, backend, template, volume) if several else own
    if foreseen is not None and lacking == own:
        lacking = ""  # it was said better
    judged = judge(placement_of(part.placement), {name: Offer(price, lacking)})
    mine = next(it for it in judged if it.provider == name)
    if mine.fits:
        return foreseen
    hint = "raise it, or ask for a smaller machine" if not lacking else "place it elsewhere"
    return _No(name, mine.why, hint, Sort.NEVER)


def _volume(world: World, namespace: str, name: str) -> Resource | None:
    return world.found("Volume", name, namespace)


def _single(no: _No, at: Path, part: Part) -> Finding:
    """At the field of the template that it is about, else where the place is named."""
    if no.field:
        path: Path = (*part.at(no.field[0]), *no.field[1:])
        if part.template.function is not None and no.field[0] not in BESIDE_TEMPLATE:
            path = ("spec", "template", "function")
        return Finding(path, path, _said(no.provider, no.why, no.field), no.hint)
    return Finding(at, at, _said(no.provider, no.why, ()), no.hint)


def _said(provider: str, why: str, field: tuple[str, ...]) -> str:
    """The rest of a sentence that begins with the field, or with where the provider is named."""
    if not field:
        return f" is `{provider}`: {why}"
    rest = why.removeprefix(".".join(field))
    return rest if rest.startswith(" ") else f": {why}"


def _sort(found: Foreseen) -> Sort:
    if found.capacity:
        return Sort.CAPACITY
    return Sort.LATER if found.later else Sort.NEVER
