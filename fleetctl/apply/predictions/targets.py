"""The providers where work could run, and the reasons where there is none. Called by predict.py."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.apply.predictions.world import Certainty, PlannedWorld, Prediction
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.kind_controller import placement_of
from fleetctl.controllers.planning.placement import ProviderOffer, judge_candidates
from fleetctl.engine.capacity.price_book import find_lack, price_attempt
from fleetctl.engine.execute.asset_calls import NO_SERVER_HINT
from fleetctl.manifest.findings import Finding
from fleetctl.manifest.hints.synonyms import guess_name, join_names
from fleetctl.manifest.problems import Path
from fleetctl.providers.contract.base import Foreseeing, Foreseen
from fleetctl.providers.contract.endpoint_access import Serving
from fleetctl.providers.contract.terms import BRING_HINT
from fleetctl.specs.blocks.common import BESIDE_TEMPLATE, WorkPart, WorkSpec
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.builtin import PROMPT_PROVIDER
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.tracking.task_inputs import files_of

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

DECLARE = "`kind: Provider` with a `type` declares another account"
PROVIDERS_SHOWN_MAX = 8  # in a hint, which should fit on a line


@dataclass(frozen=True, slots=True)
class _TargetRefusal:
    """The reason why one candidate cannot run it."""

    provider: str
    why: str
    hint: str
    sort: Certainty
    field: tuple[str, ...] | None = None  # of the template


async def of_work(
    manifest: Manifest,
    spec: WorkSpec,
    world: PlannedWorld,
) -> AsyncIterator[Prediction]:
    """Yields wrong names of providers, and work that no candidate can run."""
    messages = set()  # stages may share a provider, or a field of the template
    for part in spec.parts():
        async for found in _of_part(manifest, part, world):
            if found.finding not in messages:
                messages.add(found.finding)
                yield found


async def _of_part(
    manifest: Manifest,
    part: WorkPart,
    world: PlannedWorld,
) -> AsyncIterator[Prediction]:
    paths = _candidate_paths(part)
    known = [name for name in paths if name in world.providers]
    for name, path in paths.items():
        if name not in world.providers:
            sort = Certainty.DOUBT if known else Certainty.LATER
            yield Prediction(manifest, _describe_unknown(name, path, world), sort)
    whole = _resolve_template(manifest, part, world)
    if not known or whole is None:
        return
    found = [
        await _find_refusal(
            name,
            whole,
            part,
            manifest,
            world,
        )
        for name in known
    ]
    refusals = [it for it in found if it]
    if len(refusals) < len(known):
        return
    if len(paths) == 1:
        (no,) = refusals
        yield Prediction(manifest, _locate_refusal(no, paths[no.provider], part), no.sort)
        return
    message = "; ".join(f"`{it.provider}`: {it.why}" for it in refusals)
    message = f": no provider can run this: {message}"
    hint = next((it.hint for it in refusals if it.sort is not Certainty.NEVER), refusals[0].hint)
    sorts = {it.sort for it in refusals}
    sort = next(it for it in (Certainty.LATER, Certainty.CAPACITY, Certainty.NEVER) if it in sorts)
    at: Path = part.placement_at
    yield Prediction(manifest, Finding(at, at, message, hint), sort)


async def of_function(
    manifest: Manifest,
    spec: FunctionSpec,
    world: PlannedWorld,
) -> AsyncIterator[Prediction]:
    at: Path = ("spec", "provider")
    if spec.provider not in world.providers:
        yield Prediction(manifest, _describe_unknown(spec.provider, at, world), Certainty.LATER)
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
        # A Function has no field `runtime`: such a finding concerns its provider.
        field = found.field if found.field[:1] != ("runtime",) else ()
        path = ("spec", *field) if field else at
        message = _describe_reason(spec.provider, found.message, field)
        yield Prediction(manifest, Finding(path, path, message, found.hint), _rate_certainty(found))


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
    return Finding(path, path, message, f"{hint}there is {there}; {DECLARE}")


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
    function = parse_spec("Function", resource.spec)
    assert isinstance(function, FunctionSpec)
    return function.applied_to(template)


def _is_direct(
    world: PlannedWorld,
    endpoint: str,
    namespace: str,
) -> bool:
    resource = world.found("Endpoint", endpoint, namespace)
    return resource is not None and json.loads(resource.spec).get("reach") == "Direct"


async def _find_refusal(
    name: str,
    template: Template,
    part: WorkPart,
    manifest: Manifest,
    world: PlannedWorld,
) -> _TargetRefusal | None:
    """Returns the reason why this candidate can never run it, or waits for a missing object."""
    backend = world.providers[name]
    if why := backend.contract.cannot_join(name, template):
        alone = len(part.placement.candidates) == 1
        message = why if alone else why.replace(f"provider `{name}` ", "it ", 1)
        contract = backend.contract
        field = (contract.joins_field(template),)
        return _TargetRefusal(
            name,
            message,
            contract.joins_hint(template),
            Certainty.NEVER,
            field,
        )
    if why := backend.contract.cannot_bring(name, _inputs_bytes(manifest), template):
        return _TargetRefusal(name, why, BRING_HINT, Certainty.NEVER)
    foreseen: _TargetRefusal | None = None
    if isinstance(backend, Foreseeing):
        found = await backend.foresee(template, world.account(name))
        if found is not None:
            foreseen = _TargetRefusal(
                name,
                found.message,
                found.hint,
                _rate_certainty(found),
                found.field,
            )
    if foreseen is not None and foreseen.sort is Certainty.NEVER:
        return foreseen
    # Without a choice, volumes and Functions of another provider are reported with both providers.
    several = len(part.placement.candidates) > 1
    volume = partial(_find_volume, world, manifest.namespace)
    price = price_attempt(backend, world.declared.get(name), template)
    own = backend.lacks(template)
    lacking = find_lack(name, backend, template, volume) if several else own
    if foreseen is not None and lacking == own:
        lacking = ""  # there is a better message already
    judged = judge_candidates(placement_of(part.placement), {name: ProviderOffer(price, lacking)})
    mine = next(it for it in judged if it.provider == name)
    if mine.fits:
        return foreseen
    hint = "raise it, or ask for a smaller machine" if not lacking else "place it elsewhere"
    return _TargetRefusal(name, mine.why, hint, Certainty.NEVER)


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
    no: _TargetRefusal,
    at: Path,
    part: WorkPart,
) -> Finding:
    """Places the finding at the field of the template that it concerns, else where the provider is
    named."""
    if no.field:
        path: Path = (*part.at(no.field[0]), *no.field[1:])
        if part.template.function is not None and no.field[0] not in BESIDE_TEMPLATE:
            path = ("spec", "template", "function")
        return Finding(path, path, _describe_reason(no.provider, no.why, no.field), no.hint)
    return Finding(at, at, _describe_reason(no.provider, no.why, ()), no.hint)


def _describe_reason(
    provider: str,
    why: str,
    field: tuple[str, ...],
) -> str:
    """Returns the rest of a sentence that begins with the field, or with where the provider is
    named."""
    if not field:
        return f" is `{provider}`: {why}"
    rest = why.removeprefix(".".join(field))
    if rest.startswith(" "):
        return rest
    return f": {why}"


def _rate_certainty(found: Foreseen) -> Certainty:
    if found.capacity:
        return Certainty.CAPACITY
    if found.later:
        return Certainty.LATER
    return Certainty.NEVER
