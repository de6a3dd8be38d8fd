"""What a manifest makes of an object: the row as it would be stored, and volumes that it names
which nobody declares. Called by applying.py; nothing is written here.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from controllers.model import Resource
from fleetctl.engine.notes import NOTES, REVISION
from fleetctl.engine.orders import Order
from fleetctl.engine.pruning import APPLYSET
from fleetctl.errors import Conflict
from fleetctl.providers.sources.revision import of_source
from fleetctl.stores.base import Stored
from specs.common import Execution
from specs.function import FunctionSpec
from specs.kinds import dump_spec
from specs.scalars import Spec
from specs.volume import VolumeSpec

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

# Annotation on a volume that was made because a template names it.
NAMED_BY = "fleetctl.dev/named-by"


def drafted(manifest: Manifest, order: Order, known: Resource | None, now_s: float) -> Resource:
    """The row as of a new object; known: the one that is there by this name. Raises Conflict."""
    spec = manifest.spec
    if order.rollout and isinstance(spec, Execution):
        spec = spec.model_copy(update={"rollout": order.rollout})
    return Resource(
        uid=secrets.token_hex(8),
        kind=manifest.kind,
        name=manifest.name,
        generation=1,
        version=0,
        spec=dump_spec(spec),
        status="",
        labels=_labels(manifest, order, known),
        annotations=_annotations(manifest, order, known),
        created_at_s=now_s,
        namespace=manifest.namespace,
    )


def _labels(manifest: Manifest, order: Order, known: Resource | None) -> dict[str, str]:
    """The manifest's own; belonging to an apply set outlasts an apply that names none."""
    labels = dict(manifest.metadata.labels)
    owner = known.labels.get(APPLYSET) if known is not None else None
    if order.applyset:
        if owner not in (None, order.applyset) and not order.take_over:
            raise Conflict(
                f"{manifest.key} belongs to the apply set `{owner}`",
                hint="--take-over makes it part of this one",
            )
        labels[APPLYSET] = order.applyset
    elif owner is not None:
        labels[APPLYSET] = owner
    return labels


def _annotations(manifest: Manifest, order: Order, known: Resource | None) -> dict[str, str]:
    """The manifest's own, and what we noted on the object ourselves."""
    before = known.annotations if known is not None else {}
    noted = {key: before[key] for key in NOTES if key in before}
    # Runs of the same template go on with the copy of its source that was taken for it.
    if known is None or not _same_template(known.spec, manifest):
        noted.pop(REVISION, "")
        if revision := order.revisions.get(manifest.key):
            noted[REVISION] = revision
    return {**manifest.metadata.annotations, **noted}


def _same_template(spec: str, manifest: Manifest) -> bool:
    new = json.loads(dump_spec(manifest.spec))
    return bool(json.loads(spec).get("template") == new.get("template"))


def revisions_of(manifests: Sequence[Manifest]) -> dict[str, str]:
    """What the directories hold that the manifests name; may take a second, so ask in a thread."""
    found = {}
    for manifest in manifests:
        template = getattr(manifest.spec, "template", None)
        source = template.source if template is not None else None
        if source is not None and source.path is not None:
            found[manifest.key] = of_source(source)
    return found


def named_volumes(
    stored: Stored, manifest: Manifest, known: set[tuple[str, str]], now_s: float
) -> Iterator[Resource]:
    """Those to be made; known: (name, namespace) of volumes that are declared or made already."""
    spec = manifest.spec
    names_volumes = spec if isinstance(spec, FunctionSpec) else getattr(spec, "template", None)
    namespace = manifest.namespace
    for mount in names_volumes.volumes if names_volumes is not None else ():
        there = stored.resources.get("Volume", mount.name, namespace) is not None
        if there or (mount.name, namespace) in known:
            continue
        yield Resource(
            uid=secrets.token_hex(8),
            kind="Volume",
            name=mount.name,
            generation=1,
            version=0,
            spec=dump_spec(VolumeSpec(provider=_provider(spec))),
            status="",
            labels={},
            annotations={NAMED_BY: manifest.key},
            created_at_s=now_s,
            namespace=namespace,
        )


def _provider(spec: Spec) -> str:
    """Where the volumes belong that it names."""
    if isinstance(spec, FunctionSpec):
        return spec.provider
    assert isinstance(spec, Execution)
    return spec.placement.candidates[0].provider
