"""The providers where work could run, and the reasons where there is none; a Volume or a Function
that the work uses belongs to one provider, which must be among them.

Where several providers are candidates, the ones without the volume only run none of the work
(placement.py).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.apply.predictions.world import PlannedWorld
from fleetctl.common.finding import Finding, Path, Severity
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.kind_controller import placement_of
from fleetctl.controllers.planning.placement import ProviderOffer, judge_candidates
from fleetctl.engine.capacity.price_book import asset_provider, find_lack, price_attempt
from fleetctl.engine.execute.asset_calls import NO_SERVER_HINT
from fleetctl.manifest.hints.synonyms import guess_name, join_names
from fleetctl.manifest.problems import path_text
from fleetctl.manifest.rules import stop_at_unread
from fleetctl.providers.contract.base import Foreseeing, Serving
from fleetctl.providers.contract.terms import BRING_HINT
from fleetctl.specs.blocks.common import BESIDE_TEMPLATE, WorkPart, WorkSpec
from fleetctl.specs.blocks.template import Template, VolumeMount
from fleetctl.specs.builtin import PROMPT_PROVIDER
from fleetctl.specs.kinds.batchjob import files_of
from fleetctl.specs.kinds.function import FunctionSpec

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


DECLARE = "`kind: Provider` with a `type` declares another account"
PROVIDERS_SHOWN_MAX = 8  # in a hint, which should fit on a line


async def of_work(
    manifest: Manifest,
    spec: WorkSpec,
    world: PlannedWorld,
) -> AsyncIterator[Finding]:
    """Yields wrong names of providers, and work that no candidate can run."""
    messages = set()  # stages may share a provider, or a field of the template
    for part in spec.parts():
        async for found in _of_part(manifest, part, world):
            if found not in messages:
                messages.add(found)
                yield found


async def _of_part(
    manifest: Manifest,
    part: WorkPart,
    world: PlannedWorld,
) -> AsyncIterator[Finding]:
    paths = _candidate_paths(part)
    known = [name for name in paths if name in world.providers]
    for name, path in paths.items():
        if name not in world.providers:
            sort = Severity.DOUBT if known else Severity.LATER
            yield replace(_describe_unknown(name, path, world), severity=sort)
    whole = _resolve_template(manifest, part, world)
    if not known or whole is None:
        return
    found: dict[str, list[Finding]] = {}
    for name in known:
        found[name] = []
        with stop_at_unread():
            async for no in _find_refusals(name, whole, part, manifest, world):
                found[name].append(no)
    if not all(found.values()):
        return
    if len(paths) == 1:
        for name, refusals in found.items():
            for no in refusals:
                yield _locate_refusal(name, no, paths[name], part)
        return
    first = {name: min(them, key=_is_passing) for name, them in found.items()}
    message = "; ".join(f"`{name}`: {no.what}" for name, no in first.items())
    message = f": no provider can run this: {message}"
    hints = [it.fix for it in sorted(first.values(), key=_is_passing, reverse=True)]
    severities = {it.severity for it in first.values()}
    order = (Severity.LATER, Severity.CAPACITY, Severity.NEVER)
    severity = next(it for it in order if it in severities)
    yield Finding(part.placement_at, message, hints[0], severity)


def _is_passing(no: Finding) -> bool:
    return no.severity is not Severity.NEVER


async def of_function(
    manifest: Manifest,
    spec: FunctionSpec,
    world: PlannedWorld,
) -> AsyncIterator[Finding]:
    at: Path = ("spec", "provider")
    if spec.provider not in world.providers:
        yield replace(_describe_unknown(spec.provider, at, world), severity=Severity.LATER)
        return
    backend = world.providers[spec.provider]
    if spec.port is not None and not isinstance(backend, Serving):
        message = f" is `{spec.provider}`, which runs no Function with a `port`"
        yield Finding(at, message, NO_SERVER_HINT)
        return
    template = spec.applied_to(Template())
    if not isinstance(backend, Foreseeing):
        return
    async for no in backend.foresee(template, world.account(spec.provider)):
        # A Function has no field `runtime`: such a finding concerns its provider.
        field = no.where if no.where[:1] != ("runtime",) else ()
        message = _describe_reason(spec.provider, no.what, field)
        yield replace(no, where=("spec", *field) if field else at, what=message)


def _candidate_paths(part: WorkPart) -> dict[str, Path]:
    """Returns the path of the field that names each candidate."""
    at = part.placement_at
    placement = part.placement
    for field, entries in (("ordered", placement.ordered), ("anyOf", placement.any_of)):
        if entries:
            return {it.provider: (*at, field, n, "provider") for n, it in enumerate(entries)}
    (only,) = placement.candidates
    return {only.provider: (*at, "provider")}


def _describe_unknown(
    name: str,
    path: Path,
    world: PlannedWorld,
) -> Finding:
    near = guess_name(name, world.providers)
    there = _shorten_names(sorted({*world.providers} - {PROMPT_PROVIDER}))
    hint = f"did you mean `{near}`? " if near else ""
    message = f" is `{name}`, and there is no such provider"
    return Finding(path, message, f"{hint}there is {there}; {DECLARE}")


def _shorten_names(names: Sequence[str]) -> str:
    """Returns the first names and the number of others: a cluster has providers of all teams."""
    more = len(names) - PROVIDERS_SHOWN_MAX
    shown = [*names[:PROVIDERS_SHOWN_MAX], *([f"{more} more"] if more > 0 else [])]
    return join_names(shown)


def _resolve_template(
    manifest: Manifest,
    part: WorkPart,
    world: PlannedWorld,
) -> Template | None:
    """Returns the template with its Function's fields, or None while that Function is missing; and
    without endpoints that it calls by itself.
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
    function = FunctionSpec.model_validate_json(resource.spec)
    return function.applied_to(template)


def _is_direct(
    world: PlannedWorld,
    endpoint: str,
    namespace: str,
) -> bool:
    resource = world.found("Endpoint", endpoint, namespace)
    return resource is not None and json.loads(resource.spec).get("reach") == "Direct"


async def _find_refusals(
    name: str,
    template: Template,
    part: WorkPart,
    manifest: Manifest,
    world: PlannedWorld,
) -> AsyncIterator[Finding]:
    """Yields the reasons why this candidate can never run it, or waits for a missing object, at
    paths of the template."""
    backend = world.providers[name]
    contract = backend.contract
    never = foreseen = False
    if why := contract.cannot_join(name, template):
        never = True
        alone = len(part.placement.candidates) == 1
        message = why if alone else why.replace(f"provider `{name}` ", "it ", 1)
        yield Finding((contract.joins_field(template),), message, contract.joins_hint(template))
    if why := contract.cannot_bring(name, _inputs_bytes(manifest), template):
        never = True
        yield Finding((), why, BRING_HINT)
    if isinstance(backend, Foreseeing):
        async for no in backend.foresee(template, world.account(name)):
            foreseen = True
            never = never or no.severity is Severity.NEVER
            yield no
    if never:
        return
    # Without a choice, volumes and Functions of another provider are reported with both providers.
    several = len(part.placement.candidates) > 1
    volume = partial(_find_volume, world, manifest.namespace)
    price = price_attempt(backend, world.declared.get(name), template)
    own = backend.lacks(template)
    lacking = find_lack(name, backend, template, volume) if several else own
    if foreseen and lacking == own:
        lacking = ""  # there is a better message already
    judged = judge_candidates(placement_of(part.placement), {name: ProviderOffer(price, lacking)})
    mine = next(it for it in judged if it.provider == name)
    if not mine.fits:
        hint = "raise it, or ask for a smaller machine" if not lacking else "place it elsewhere"
        yield Finding((), mine.why, hint)


def _inputs_bytes(manifest: Manifest) -> int:
    """Returns the size of the files of the task that has most."""
    tasks = files_of(manifest.spec)
    if tasks is None or tasks.volume is not None:
        return 0
    rows = (tasks.of(row) for row in range(tasks.count() or 0))
    return max((sum(it.bytes for it in row) for row in rows), default=0)


def _find_volume(
    world: PlannedWorld,
    namespace: str,
    name: str,
) -> Resource | None:
    return world.found("Volume", name, namespace)


def _locate_refusal(
    provider: str,
    no: Finding,
    at: Path,
    part: WorkPart,
) -> Finding:
    """Places the finding at the field of the template that it concerns, else where the provider is
    named."""
    path = at
    if no.where:
        field = str(no.where[0])
        path = (*part.at(field), *no.where[1:])
        if part.template.function is not None and field not in BESIDE_TEMPLATE:
            path = ("spec", "template", "function")
    return replace(no, where=path, what=_describe_reason(provider, no.what, no.where))


def _describe_reason(
    provider: str,
    why: str,
    field: Path,
) -> str:
    """Returns the rest of a sentence that begins with the field, or with where the provider is
    named."""
    if not field:
        return f" is `{provider}`: {why}"
    rest = why.removeprefix(path_text(field))
    if rest.startswith(" "):
        return rest
    return f": {why}"


def check_agreement(
    manifest: Manifest,
    spec: WorkSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    for part in spec.parts():
        template = part.template
        places = [it.provider for it in part.placement.candidates]
        yield from _check_volumes(
            manifest,
            part.at("volumes"),
            template.volumes,
            places,
            world,
        )
        if template.function is not None:
            at: Path = ("spec", "template", "function")
            yield from _check_provider(
                manifest,
                at,
                "Function",
                template.function,
                places,
                world,
            )


def check_function_agreement(
    manifest: Manifest,
    spec: FunctionSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    yield from _check_volumes(
        manifest,
        ("spec", "volumes"),
        spec.volumes,
        [spec.provider],
        world,
    )


def _check_volumes(
    manifest: Manifest,
    within: Path,
    mounts: Sequence[VolumeMount],
    places: Sequence[str],
    world: PlannedWorld,
) -> Iterator[Finding]:
    for number, mount in enumerate(mounts):
        at: Path = (*within, number, "name")
        yield from _check_provider(
            manifest,
            at,
            "Volume",
            mount.name,
            places,
            world,
        )


def _check_provider(
    manifest: Manifest,
    at: Path,
    kind: str,
    name: str,
    places: Sequence[str],
    world: PlannedWorld,
) -> Iterator[Finding]:
    resource = world.found(kind, name, manifest.namespace)
    if resource is None or resource.deleted_at_s is not None:
        return
    kept = asset_provider(resource)
    if kept in places:
        return
    here = join_names(places)
    message = f" is `{name}`, which {resource.key} keeps on `{kept}`, and this runs on {here}"
    where = "spec.provider" if manifest.kind == "Function" else "spec.placement"
    hint = f"write `provider: {places[0]}` in {resource.key}, or `{kept}` in {where} here"
    yield Finding(at, message, hint)
