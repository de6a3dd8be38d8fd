"""Turns a manifest into the row that would be stored, and into the volumes that it names and no
manifest declares. Called by propose.py; writes nothing.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.apply.change import CREATED, Change
from fleetctl.apply.request import ApplyOptions
from fleetctl.common.errors import Conflict
from fleetctl.controllers.model import Resource
from fleetctl.controllers.trials.winner import SWEEP, MissingInput, params_text, winner_of
from fleetctl.controllers.wandb import names_of
from fleetctl.specs.blocks.common import ParamsFrom, WorkSpec
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.content import content_of_function, content_of_models
from fleetctl.specs.kinds.endpoint import EndpointSpec
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import dump_spec, parse_spec
from fleetctl.specs.kinds.schedule import ScheduleSpec
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.kinds.volume import VolumeSpec
from fleetctl.specs.values.namespaces import object_key
from fleetctl.specs.values.scalars import Spec
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.annotations import (
    APPLYSET,
    COMMAND,
    NOTES,
    OF_SOURCE,
    PARAMS,
    PRIOR,
    REVISION,
    WANDB,
    needs_command,
    notes_of,
    waits_for,
)
from fleetctl.tracking.kept_by import MADE_FROM
from fleetctl.tracking.manifest_sources import source_of

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

# Fields of a search that concern this side alone: the program that its trials run.
_OURS_OF_A_SEARCH = {"command", "program", "name", "description"}
# Manifests of Functions by (name, namespace).
Functions = Mapping[tuple[str, str], "Manifest"]
# Annotation on a volume that was made because a template names it.
NAMED_BY = "fleetctl.dev/named-by"


def draft_resource(
    manifest: Manifest,
    options: ApplyOptions,
    known: Resource | None,
    now_s: float,
    taken: Mapping[str, str],
) -> Resource:
    """Returns the row as of a new object; known: the stored one of this name. taken: values from
    other objects, by annotation. Raises Conflict.
    """
    spec = manifest.spec
    return Resource(
        uid=secrets.token_hex(8),
        kind=manifest.kind,
        name=manifest.name,
        generation=1,
        version=0,
        spec=dump_spec(spec),
        status="",
        labels=_merge_labels(manifest, options, known),
        annotations=_merge_annotations(
            manifest,
            spec,
            options,
            known,
            taken,
        ),
        created_at_s=now_s,
        namespace=manifest.namespace,
    )


def draft_partial(stored: ReadableStore, manifest: Manifest) -> Change:
    """Returns the change of a manifest with mistakes as far as it was read: for rules alone, which
    find what else is wrong.
    """
    known = stored.resources.get(manifest.kind, manifest.name, manifest.namespace)
    fresh = Resource(
        uid="",
        kind=manifest.kind,
        name=manifest.name,
        generation=1,
        version=0,
        spec=dump_spec(manifest.spec),
        status="",
        labels={},
        annotations={},
        created_at_s=0.0,
        namespace=manifest.namespace,
    )
    return Change(CREATED, None, fresh if known is None else replace(known, spec=fresh.spec))


def _merge_labels(
    manifest: Manifest,
    options: ApplyOptions,
    known: Resource | None,
) -> dict[str, str]:
    """Returns the manifest's own labels; membership of an apply set outlasts an apply that names
    none."""
    labels = dict(manifest.metadata.labels)
    owner = known.labels.get(APPLYSET) if known is not None else None
    if options.applyset:
        if owner not in (None, options.applyset) and not options.take_over:
            raise Conflict(
                f"{manifest.key} belongs to the apply set `{owner}`",
                hint="--take-over makes it part of this one",
            )
        labels[APPLYSET] = options.applyset
    elif owner is not None:
        labels[APPLYSET] = owner
    return labels


def _merge_annotations(
    manifest: Manifest,
    spec: Spec,
    options: ApplyOptions,
    known: Resource | None,
    taken: Mapping[str, str],
) -> dict[str, str]:
    """Returns the manifest's own annotations and the program's notes on the object. taken: from
    other objects."""
    before = known.annotations if known is not None else {}
    noted = {key: before[key] for key in NOTES if key in before}
    source = source_of(spec)
    if source is None or known is None or source != source_of(parse_spec(known.kind, known.spec)):
        noted = {key: text for key, text in noted.items() if key not in OF_SOURCE}
    looked = options.looked.get(manifest.key)
    # An unreachable remote leaves the known commit in force.
    if looked is not None and (looked.revision or looked.origin):
        noted = {key: text for key, text in noted.items() if key not in OF_SOURCE}
        noted |= looked.annotations()
    kept = {key: text for key, text in {**noted, **taken}.items() if text}
    # Our own annotations in a pasted `get -o yaml` are not the user's.
    written = {k: text for k, text in manifest.metadata.annotations.items() if k not in NOTES}
    # A manifest that an operator was not asked with changes the object, and not its origin.
    origin = {MADE_FROM: before[MADE_FROM]} if MADE_FROM in before else {}
    return {**origin, **written, **kept}


def function_content(
    stored: ReadableStore,
    manifest: Manifest,
    among: Functions,
    options: ApplyOptions,
) -> str:
    """Returns the content of the Function that a manifest's template names; empty while unknown.
    among: Functions in the same apply, by (name, namespace).
    """
    template = getattr(manifest.spec, "template", None)
    if not isinstance(template, Template) or template.function is None:
        return ""
    beside = among.get((template.function, manifest.namespace))
    if beside is not None:
        assert isinstance(beside.spec, FunctionSpec)
        looked = options.looked.get(beside.key)
        return content_of_function(beside.spec, looked.revision if looked is not None else "")
    return stored_function_content(stored, template.function, manifest.namespace)


def stored_function_content(
    stored: ReadableStore,
    name: str,
    namespace: str,
) -> str:
    """Returns the content of a stored Function; empty when it does not exist."""
    row = stored.resources.get("Function", name, namespace)
    if row is None:
        return ""
    spec = FunctionSpec.model_validate_json(row.spec)
    return content_of_function(spec, row.annotations.get(REVISION, ""))


def models_content(
    stored: ReadableStore,
    asks: Sequence[str],
    namespace: str,
    among: Mapping[tuple[str, str], Manifest],
) -> str:
    """Returns the models of the endpoints that a template calls. among: Endpoints in the same
    apply, by (name, namespace).
    """
    found: dict[str, Mapping[str, str]] = {}
    for name in asks:
        beside = among.get((name, namespace))
        row = stored.resources.get("Endpoint", name, namespace) if beside is None else None
        spec = beside.spec if beside is not None else row and parse_spec("Endpoint", row.spec)
        if isinstance(spec, EndpointSpec):
            found[name] = spec.models
    return content_of_models(found)


def winner_params(
    stored: ReadableStore,
    manifest: Manifest,
    known: Resource | None,
    moving: Collection[str],
) -> dict[str, str]:
    """Returns the parameters that `paramsFrom` gives, by annotation; empty while unknown. moving:
    keys of the sweeps that this apply changes. Parameters of a deleted sweep stay.
    """
    nothing = {PARAMS: "", COMMAND: ""}
    wanted: ParamsFrom | None = getattr(manifest.spec, "params_from", None)
    if wanted is None or object_key(SWEEP, wanted.sweep, manifest.namespace) in moving:
        return nothing
    needs = needs_command(manifest.spec)
    sweep = stored.resources.get(SWEEP, wanted.sweep, manifest.namespace)
    if sweep is None and known is not None:
        before = json.loads(known.spec).get("paramsFrom", {}).get("sweep")
        if before != wanted.sweep:
            return nothing
        kept = {PARAMS: known.annotations.get(PARAMS, "")}
        return {**nothing, **kept, COMMAND: known.annotations.get(COMMAND, "") if needs else ""}
    found = winner_of(sweep, wanted.sweep, needs_command=needs)
    if isinstance(found, MissingInput):
        return nothing
    return {**nothing, **notes_of(found)}


def prior_kept(
    stored: ReadableStore,
    manifest: Manifest,
    known: Resource | None,
) -> str:
    """Returns the trials that its search has taken from another sweep, while the search is the
    same; empty where they are to be read again. Trials of a deleted sweep stay.
    """
    prior = manifest.spec.search.prior_trials if isinstance(manifest.spec, SweepSpec) else None
    if prior is None or known is None:
        return ""
    before = json.loads(known.spec).get("search", {})
    if (before.get("priorTrials") or {}).get("fromSweep") != prior.from_sweep:
        return ""
    gone = stored.resources.get(SWEEP, prior.from_sweep, manifest.namespace) is None
    same = gone or before == json.loads(dump_spec(manifest.spec))["search"]
    if same:
        return known.annotations.get(PRIOR, "")
    return ""


def winner_told(resource: Resource) -> str:
    """Returns a phrase on the parameters that another object gives; empty without any."""
    wanted = json.loads(resource.spec).get("paramsFrom")
    if wanted is None:
        return ""
    known = resource.annotations.get(PARAMS)
    sweep = f"sweep/{wanted['sweep']}"
    if known is None:
        return f"known when {sweep} has ended"
    return f"{params_text(json.loads(known))} of the best trial of {sweep}"


def winner_note(resource: Resource) -> str:
    """Returns a sentence on the values that it takes from a sweep; empty without any."""
    if sweep := waits_for(resource):
        return f"its search begins from the trials of sweep/{sweep}, once that has ended"
    winner = winner_told(resource)
    if winner:
        return f"its parameters are {winner}"
    return ""


def fires_note(spec: Spec, now_s: float) -> str:
    """Returns a phrase on when a schedule makes its next object; empty for other kinds."""
    if not isinstance(spec, ScheduleSpec) or spec.suspend:
        return ""
    next_s = spec.times.next_s(now_s)
    if next_s is None:
        return ""
    return f"next run {spec.times.text(next_s)}"


def draft_volumes(
    stored: ReadableStore,
    manifest: Manifest,
    known: set[tuple[str, str]],
    now_s: float,
) -> Iterator[Resource]:
    """Yields the volumes to create; known: (name, namespace) of declared or created volumes."""
    namespace = manifest.namespace
    for name, provider in _list_mounts(manifest.spec).items():
        there = stored.resources.get("Volume", name, namespace) is not None
        if there or (name, namespace) in known:
            continue
        yield Resource(
            uid=secrets.token_hex(8),
            kind="Volume",
            name=name,
            generation=1,
            version=0,
            spec=dump_spec(VolumeSpec(provider=provider)),
            status="",
            labels={},
            annotations={NAMED_BY: manifest.key},
            created_at_s=now_s,
            namespace=namespace,
        )


def _list_mounts(spec: Spec) -> dict[str, str]:
    """Returns the volumes that it names, each with its provider: that of the first to name it."""
    if isinstance(spec, FunctionSpec):
        return {mount.name: spec.provider for mount in spec.volumes}
    found: dict[str, str] = {}
    for part in spec.parts() if isinstance(spec, WorkSpec) else ():
        for mount in part.template.volumes:
            found.setdefault(mount.name, part.placement.candidates[0].provider)
    return found


def refuse_another_type(known: Resource, spec: ProviderSpec) -> None:
    """Raises Refused for another provider type: runs at one type cannot be managed by another."""
    before = json.loads(known.spec).get("type")
    if before != spec.type and {before, spec.type} != {None, known.name}:
        raise Conflict(
            f"{known.key} is of type `{before}`, which never changes",
            hint=f"give the `{spec.type}` another name, or delete {known.key} first",
        )


def refuse_another_sweep(
    known: Resource,
    spec: SweepSpec,
    *,
    rerun: bool,
) -> None:
    """Raises Refused for changes that W&B cannot make to a sweep: its runs are drawn from the sweep
    as created."""
    before = SweepSpec.model_validate_json(known.spec)
    if "wandb" not in (before.backend, spec.backend):
        return
    made = json.loads(known.annotations.get(WANDB, "{}")).get("home") is not None
    if before.backend != spec.backend or (made and _of_wandb(before) != _of_wandb(spec)):
        raise Conflict(
            f"{known.key} stands for a sweep at W&B, and the search of that never changes",
            hint=f"give the new one another name, or delete {known.key} first",
        )
    if rerun:
        raise Conflict(
            f"{known.key} is a sweep at W&B, where a run that has ended is not run again",
            hint="give it another name to begin a new one",
        )


def _of_wandb(spec: SweepSpec) -> object:
    search = spec.search.model_dump(mode="json", exclude=_OURS_OF_A_SEARCH)
    return spec.wandb, search, names_of(spec)
