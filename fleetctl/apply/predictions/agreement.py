"""Volumes and Functions belong to one provider each: checks that work which uses one can run there.
Called by predict.py; a message names both providers.

Where several providers are candidates, the ones without the volume only run none of the work
(prices.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fleetctl.apply.predictions.world import PlannedWorld
from fleetctl.common.finding import Finding, Path
from fleetctl.engine.capacity.providers import asset_provider
from fleetctl.manifest.hints.synonyms import join_names
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.template import VolumeMount
from fleetctl.specs.kinds.function import FunctionSpec

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


def of_work(
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


def of_function(
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
