"""The changes of a Source's newest commit, computed in this process for `diff source/x`. Stores
nothing and sends the controller no request.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

from fleetctl.common.errors import NotFound, UsageError
from fleetctl.engine.execute.secrets import SecretValues
from fleetctl.gitops.checkout import check_out, find_tip
from fleetctl.gitops.child import read_commit
from fleetctl.gitops.proposal import claim_of
from fleetctl.specs.kinds.source import SourceSpec

if TYPE_CHECKING:
    from fleetctl.apply.change import Change
    from fleetctl.stores.base import Store
    from fleetctl.stores.read.read_only import StoreSnapshot
    from fleetctl.views.kinds import Target


def changes_of(
    state_dir: Path,
    stored: StoreSnapshot,
    wanted: Target,
) -> tuple[list[Change], list[str]]:
    """Returns changes and warnings. Raises FleetctlError as the Source's status would show it."""
    if wanted.kind.name != "Source":
        raise UsageError(
            f"{wanted.key} is not a Source", hint="`fleetctl diff -f FILE` compares with files"
        )
    source = stored.resources.get("Source", wanted.name, wanted.namespace)
    if source is None:
        raise NotFound(f"{wanted.key} is not there", hint="fleetctl get sources")
    spec = SourceSpec.model_validate_json(source.spec)
    # For a Secret's values the rows of a store are enough.
    secrets = SecretValues(cast("Store", stored), os.environ)
    names = (spec.git.secret,) if spec.git.secret is not None else ()
    values = secrets.resolve(names, source.namespace).values
    with TemporaryDirectory(prefix="fleetctl-") as place:
        commit = asyncio.run(find_tip(spec.git, values, Path(place))).commit
        tree = asyncio.run(check_out(spec.git, commit, values, Path(place)))
        with chdir(tree):
            found, changes = asyncio.run(
                read_commit(state_dir, stored, claim_of(source, spec, commit))
            )
    return changes, list(found.warnings)
