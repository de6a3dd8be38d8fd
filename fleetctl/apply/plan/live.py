"""The view of a store on the new side: running work that would end, and the rest of budgets.

Called by compare.py on request alone, for then the same revisions give another report tomorrow.
Reads the store as `plan` does; needs no controller.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.apply.change import PRUNED, Change
from fleetctl.apply.cost.offers import market_of
from fleetctl.apply.impact import impact_on
from fleetctl.apply.plan.build_plan import build_report
from fleetctl.apply.plan.revision_plan import RevisionPlan
from fleetctl.apply.policies.judge import LoadedPolicy, policies_of
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request.options import ApplyOptions, declared_in, parallelism_of
from fleetctl.common.clock import SystemClock
from fleetctl.engine.capacity.price_book import KIND as PROVIDER
from fleetctl.specs.kinds.registry import dump_spec, find_kind
from fleetctl.specs.values.namespaces import split_key
from fleetctl.stores.base import ReadableStore
from fleetctl.stores.read.read_only import open_readonly
from fleetctl.tracking.manifest_sources import ManifestSources
from fleetctl.tracking.volume_tasks import list_volumes
from fleetctl.wiring.account_registry import AccountRegistry


@dataclass(frozen=True, slots=True)
class LiveState:
    """stopped: of each object, how many running units would end. budgets: sentences. policies: that
    hold there once the new side is applied.
    """

    stopped: Mapping[str, int]
    budgets: tuple[str, ...]
    policies: tuple[LoadedPolicy, ...]


def live_of(
    home: Path,
    new: RevisionPlan,
    gone: Sequence[str],
) -> LiveState:
    """Reads the store. gone: keys of objects that the new side has no more."""
    now_s = SystemClock().now_s()
    with open_readonly(home) as stored:
        accounts = AccountRegistry(home, store_id=stored.store_id)
        for resource in stored.resources.living(PROVIDER):
            accounts.open(resource.name, json.loads(resource.spec))
        for name, spec in declared_in(new.manifests).items():
            accounts.open(name, json.loads(dump_spec(spec)))
        order = replace(
            new.order, parallelism=parallelism_of(accounts.backends), sources=ManifestSources(home)
        )
        manifests = asyncio.run(list_volumes(new.manifests, stored, home))
        changes = propose_changes(stored, manifests, order, now_s)
        changes += _propose_deletions(stored, gone, order, now_s)
        market = market_of(stored, changes, accounts.backends)
        found = build_report(stored, changes, market, now_s)
        policies = tuple(policies_of(stored, changes))
    stopped = {it.key: len(it.destroyed) for it in changes}
    some = {key: count for key, count in stopped.items() if count}
    return LiveState(some, found.budgets, policies)


def _propose_deletions(
    stored: ReadableStore,
    gone: Sequence[str],
    order: ApplyOptions,
    now_s: float,
) -> list[Change]:
    found = []
    for key in gone:
        word, name, namespace = split_key(key)
        kind = find_kind(word)
        row = None if kind is None else stored.resources.get(kind.name, name, namespace)
        if row is not None:
            doomed = replace(row, deleted_at_s=now_s)
            impact = impact_on(stored, doomed, order)
            found.append(Change(PRUNED, row, doomed, impact=impact))
    return found
