"""Volumes and Functions are kept at one provider each: whether work that uses one can run there.
Called by predict.py; both places are named.

Where several places would do, the ones that do not keep it only run none of the work (prices.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fleetctl.apply.predictions.world import Prediction, World
from fleetctl.engine.capacity.providers import kept_on
from fleetctl.manifest.hints.words import listed
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.problems import Path
from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.blocks.template import VolumeMount
from fleetctl.specs.kinds.function import FunctionSpec

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


def of_work(manifest: Manifest, spec: Execution, world: World) -> Iterator[Prediction]:
    for part in spec.parts():
        template, places = part.template, [it.provider for it in part.placement.candidates]
        yield from _volumes(manifest, part.at("volumes"), template.volumes, places, world)
        if template.function is not None:
            at: Path = ("spec", "template", "function")
            yield from _kept(manifest, at, "Function", template.function, places, world)


def of_function(manifest: Manifest, spec: FunctionSpec, world: World) -> Iterator[Prediction]:
    yield from _volumes(manifest, ("spec", "volumes"), spec.volumes, [spec.provider], world)


def _volumes(
    manifest: Manifest,
    within: Path,
    mounts: Sequence[VolumeMount],
    places: Sequence[str],
    world: World,
) -> Iterator[Prediction]:
    for number, mount in enumerate(mounts):
        at: Path = (*within, number, "name")
        yield from _kept(manifest, at, "Volume", mount.name, places, world)


def _kept(
    manifest: Manifest, at: Path, kind: str, name: str, places: Sequence[str], world: World
) -> Iterator[Prediction]:
    resource = world.found(kind, name, manifest.namespace)
    if resource is None or resource.deleted_at_s is not None:
        return
    kept = kept_on(resource)
    if kept in places:
        return
    here = listed(places)
    message = f" is `{name}`, which {resource.key} keeps on `{kept}`, and this runs on {here}"
    where = "spec.provider" if manifest.kind == "Function" else "spec.placement"
    hint = f"write `provider: {places[0]}` in {resource.key}, or `{kept}` in {where} here"
    yield Prediction(manifest, Finding(at, at, message, hint))
