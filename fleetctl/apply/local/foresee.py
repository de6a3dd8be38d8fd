"""Predicts in this process what manifests would be refused for, also those beside wrong ones.

Called by local_checks.py and local_proposal.py.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetctl.apply.change import Change
from fleetctl.apply.draft import draft_partial
from fleetctl.apply.policies.report import problems_of
from fleetctl.apply.predictions.predict import make_predictions, read_allowed, split_predictions
from fleetctl.apply.predictions.world import Prediction, world_of
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request.options import ApplyOptions, declared_in
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError
from fleetctl.engine.capacity.price_book import KIND as PROVIDER
from fleetctl.manifest.loader import LoadErrors, Manifest
from fleetctl.manifest.problems import ManifestErrors
from fleetctl.providers.contract.base import Backend
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import dump_spec, parse_spec
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.source_state import SourceState
from fleetctl.wiring.account_registry import AccountRegistry


def whole_round(
    state_dir: Path,
    stored: ReadableStore,
    error: LoadErrors,
    order: Mapping[str, object],
) -> ManifestErrors:
    """Returns the mistakes, with what else is wrong with these manifests and the sound ones."""
    accounts = AccountRegistry(state_dir, store_id=stored.store_id)
    for resource in stored.resources.living(PROVIDER):
        accounts.open(resource.name, json.loads(resource.spec))
    read = [*error.sound, *error.partial]
    for name, spec in declared_in(read).items():
        accounts.open(name, json.loads(dump_spec(spec)))
    options = ApplyOptions(gathers=True)
    try:
        changes = propose_changes(stored, error.sound, options, SystemClock().now_s())
    except FleetctlError:
        changes = []  # refusals of the whole set are reported once every manifest is readable
    partial = [draft_partial(stored, it) for it in error.partial]
    found = predictions_of(
        stored,
        read,
        [*changes, *partial],
        accounts.backends,
        {},
    )
    wrong, _ = split_predictions(found, read_allowed(order))
    return error.beside([*wrong, *problems_of(changes, error.sound)])


def predictions_of(
    stored: ReadableStore,
    manifests: Sequence[Manifest],
    changes: Sequence[Change],
    providers: Mapping[str, Backend],
    looked: Mapping[str, SourceState],
) -> list[Prediction]:
    fields = {}
    for resource in stored.resources.living(PROVIDER):
        try:
            spec = parse_spec(PROVIDER, resource.spec)
        except ValueError:
            continue  # the controller cannot read it either, and says so in its status
        assert isinstance(spec, ProviderSpec)
        fields[resource.name] = spec
    world = world_of(
        stored,
        changes,
        providers,
        fields,
        os.environ.get,
        starts_here=False,
        looked=looked,
    )
    return asyncio.run(make_predictions(manifests, changes, world))
