"""What an apply of these files would be refused for, found out in this process: for validate, plan,
diff and dry runs. Loads the models.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.apply.change import Change, outcomes_of
from fleetctl.apply.consent import NeedsConsent, check
from fleetctl.apply.cost.forecast import costs_of
from fleetctl.apply.cost.offers import market_of
from fleetctl.apply.cost.plan import report
from fleetctl.apply.policies.given import judged_by
from fleetctl.apply.policies.told import refuse as refuse_denied
from fleetctl.apply.policies.told import warnings_of
from fleetctl.apply.predictions.predict import ANYWAY, ANYWAY_SORTS, allowed, judged, predicted
from fleetctl.apply.predictions.world import Prediction, world_of
from fleetctl.apply.propose import propose
from fleetctl.apply.request.options import declared_in, namespace_of, order_of
from fleetctl.cli.apply.propose import proposed
from fleetctl.cli.apply.screens.outcomes import CLIENT, SAID_OF_DRY_RUNS, show, warn_of
from fleetctl.cli.output.render import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.home import home
from fleetctl.engine.capacity.prices import KIND as PROVIDER
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.loader import Manifest, load
from fleetctl.manifest.problems import ManifestErrors, Problem
from fleetctl.providers.contract.base import Backend
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import dump_spec, parse_spec
from fleetctl.stores.base import Stored
from fleetctl.stores.read.read_only import Snapshot, open_readonly
from fleetctl.tracking.sources import Sources, source_of
from fleetctl.wiring.accounts import Accounts

if TYPE_CHECKING:
    from fleetctl.apply.policies.judge import Policy
    from fleetctl.controllers.money.estimate import Estimate


def checked(
    state_dir: Path,
    stored: Snapshot,
    documents: Sequence[Document],
    order: Mapping[str, object],
    policies: Sequence[Policy] = (),
) -> tuple[list[Manifest], list[str]]:
    """The manifests, and warnings beyond their own. Raises ManifestErrors, and Denied by stored
    policies and these.
    """
    manifests = load(documents, namespace_of(order))
    accounts = Accounts(state_dir, store_id="")
    for name, spec in declared_in(manifests).items():
        accounts.open(name, json.loads(dump_spec(spec)))
    looked = asyncio.run(Sources(state_dir).look([it for it in manifests if _named_by_path(it)]))
    whole = replace(order_of(order), looked=looked)
    changes = propose(stored, manifests, whole, SystemClock().now_s())
    doubts = [text for it in looked.values() for text in it.warnings]
    doubts += refuse(foreseen(stored, manifests, changes, accounts.backends, order))
    changes = permitted(stored, changes, policies, accounts.backends)
    refuse_denied(changes, manifests)
    return manifests, doubts + warnings_of(changes)


def permitted(
    stored: Snapshot,
    changes: Sequence[Change],
    policies: Sequence[Policy],
    providers: Mapping[str, Backend],
) -> list[Change]:
    """The changes with what stored policies and these say of them, also of what they may cost."""
    now_s = SystemClock().now_s()

    def costs() -> Mapping[str, Estimate]:
        found = report(stored, changes, market_of(stored, changes, providers), now_s)
        return costs_of(found)

    return judged_by(stored, changes, policies, now_s, costs)


def _named_by_path(manifest: Manifest) -> bool:
    """Repositories are not asked: that takes a network."""
    source = source_of(manifest.spec)
    return source is not None and source.path is not None


def refuse(found: tuple[list[Problem], list[str]]) -> list[str]:
    """The warnings of what is foreseen. Raises ManifestErrors with what would be refused."""
    wrong, warnings = found
    if wrong:
        raise ManifestErrors(wrong)
    return warnings


def foreseen(
    stored: Stored,
    manifests: Sequence[Manifest],
    changes: Sequence[Change],
    providers: Mapping[str, Backend],
    order: Mapping[str, object],
) -> tuple[list[Problem], list[str]]:
    """What refuses the whole, and what is warned about."""
    return judged(_predictions(stored, manifests, changes, providers), allowed(order))


def looked_at(
    stored: Stored,
    manifests: Sequence[Manifest],
    changes: Sequence[Change],
    providers: Mapping[str, Backend],
    order: Mapping[str, object],
) -> tuple[list[Problem], list[str]]:
    """As `foreseen`, of what is shown and not stored: what may come later is warned about, with a
    word on the apply that it keeps away.
    """
    found = _predictions(stored, manifests, changes, providers)
    wrong, doubts = judged(found, frozenset({*allowed(order), *ANYWAY_SORTS}))
    if any(it.sort in ANYWAY_SORTS and it.sort not in allowed(order) for it in found):
        doubts.append(f"until then `fleetctl apply` is refused; {ANYWAY}")
    return wrong, doubts


def _predictions(
    stored: Stored,
    manifests: Sequence[Manifest],
    changes: Sequence[Change],
    providers: Mapping[str, Backend],
) -> list[Prediction]:
    fields = {}
    for resource in stored.resources.living(PROVIDER):
        try:
            spec = parse_spec(PROVIDER, resource.spec)
        except ValueError:
            continue  # the controller cannot read it either, and says so in its status
        assert isinstance(spec, ProviderSpec)
        fields[resource.name] = spec
    world = world_of(stored, changes, providers, fields, os.environ.get, starts_here=False)
    return asyncio.run(predicted(manifests, changes, world))


def dry_run(
    documents: Sequence[Document],
    order: Mapping[str, object],
    screen: Screen,
    policies: Sequence[Policy] = (),
) -> int:
    """The words that apply would say, and what it would ask. Nothing runs for it."""
    state_dir = home()
    with open_readonly(state_dir) as stored:
        found = proposed(state_dir, stored, documents, order)
        changes = found.changes
        doubts = refuse(foreseen(stored, found.manifests, changes, found.accounts.backends, order))
        changes = permitted(stored, changes, policies, found.accounts.backends)
    refuse_denied(changes, found.manifests)
    warnings = [*found.warnings, *doubts, *warnings_of(changes)]
    show(outcomes_of(changes), {"warnings": warnings}, screen, dry=SAID_OF_DRY_RUNS[CLIENT])
    try:
        check(changes, (), SystemClock().now_s())
    except NeedsConsent as error:
        warn_of(error.losses, error.hint, order, screen)
    return 0
