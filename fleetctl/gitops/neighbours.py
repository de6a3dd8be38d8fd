"""Other Sources of the same repository and ref: the objects that each declares at one commit. A
manifest that moves from one Source's path to another's takes its object along.

The order of the two does not matter: the Source that lost the manifest leaves the object alone, and
the other one may claim it. Called by child.py before anything is proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleetctl.common.errors import FleetctlError
from fleetctl.gitops.proposal import Neighbour, SourceClaim, claim_of
from fleetctl.manifest import Manifest
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.kinds.source import SourceSpec
from fleetctl.stores.base import ReadableStore

KIND = "Source"


def neighbours_of(
    stored: ReadableStore,
    claim: SourceClaim,
    load: Callable[[SourceClaim], Sequence[Manifest]],
) -> tuple[Neighbour, ...]:
    """Returns the neighbours. load: the manifests of a claim at its commit; a claim with invalid
    manifests is left out."""
    rows = {row.key: row for row in stored.resources.living(KIND)}
    specs = {key: parse_spec(KIND, row.spec) for key, row in rows.items()}
    found = []
    for key, spec in specs.items():
        own = specs.get(claim.key)
        assert isinstance(spec, SourceSpec)
        if key == claim.key or not isinstance(own, SourceSpec):
            continue
        if (spec.git.url, spec.git.ref) != (own.git.url, own.git.ref):
            continue
        try:
            manifests = load(claim_of(rows[key], spec, claim.commit))
        except FleetctlError:
            continue
        declares = frozenset(it.key for it in manifests)
        found.append(Neighbour(key, declares, reads=not spec.suspend))
    return tuple(found)
