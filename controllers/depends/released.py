"""Computes the key of the work whose dependencies are recorded as met. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.content import KINDS, FieldRole
from fleetctl.specs.values.hashing import short_hash


def release_key(
    kind: str,
    spec: WorkSpec,
    contents: Sequence[str],
    said: Sequence[str] = (),
) -> str:
    """Returns a hash of 16 hex digits over the object's units, their content and its `dependsOn`. A
    change of parallelism, limits or placement does not change the hash. said: requests beside the
    spec, such as a rerun of all work, or the results that are its tasks.
    """
    units = {name for name, role in KINDS[kind].items() if role is FieldRole.UNITS}
    document = spec.model_dump(
        mode="json",
        by_alias=True,
        include=units | {"depends_on"},
        exclude_defaults=True,
    )
    return short_hash([document, list(contents), list(said)])
