"""Of which work it is noted that its dependencies have let it begin. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.content import KINDS, Role
from fleetctl.specs.values.hashing import short_hash


def release_key(
    kind: str, spec: Execution, contents: Sequence[str], said: Sequence[str] = ()
) -> str:
    """16 hex digits over what it does and what it waits for: which units, their content, and its
    `dependsOn`. A change of parallelism, of limits or of its place leaves it the same. said: what
    was said of it beside its spec, such as a request to do all of it again, or the results that are
    its tasks.
    """
    units = {name for name, role in KINDS[kind].items() if role is Role.UNITS}
    document = spec.model_dump(
        mode="json", by_alias=True, include=units | {"depends_on"}, exclude_defaults=True
    )
    return short_hash([document, list(contents), list(said)])
