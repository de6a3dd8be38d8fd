"""Finds the changes that files would make, in this process: for dry runs, `diff`, `plan` and the
Python client.

The same decision that the controller makes, over the same rows, read without it. Loads the models.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.apply.change import Change
from fleetctl.apply.local.foresee import whole_round
from fleetctl.apply.merge import with_hand_fields
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request.options import declared_in, namespace_of, order_of, parallelism_of
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import Refused
from fleetctl.engine.capacity.price_book import KIND as PROVIDER
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.loader import LoadErrors, Manifest, load_manifests
from fleetctl.providers.contract.base import LivePrices
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.kinds.registry import dump_spec
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.manifest_sources import ManifestSources
from fleetctl.tracking.source_state import SourceState
from fleetctl.wiring.account_registry import AccountRegistry

if TYPE_CHECKING:
    from fleetctl.apply.plan.plan_report import PlanReport
    from fleetctl.stores.read.read_only import StoreSnapshot


PRICES_S = 3.0  # for an account to report its prices; the import of its SDK takes most


class LocalProposal(NamedTuple):
    """The changes and their warnings. accounts: the providers as the controller has them; not
    started. warnings: sentences for the user; notes: shown in detailed output alone. looked: the
    present state of sources, by key.
    """

    manifests: list[Manifest]
    changes: list[Change]
    accounts: AccountRegistry
    warnings: list[str]
    notes: list[str]
    looked: Mapping[str, SourceState]


def propose_locally(
    state_dir: Path,
    stored: ReadableStore,
    documents: Sequence[Document],
    order: Mapping[str, object],
    *,
    gathers: bool = False,
) -> LocalProposal:
    """Proposes. gathers: as in ApplyOptions. Raises ManifestErrors, and Refused or Conflict as the
    apply itself would.
    """
    try:
        manifests = load_manifests(
            documents, namespace_of(order), may_be_empty=bool(order.get("prune"))
        )
    except LoadErrors as error:
        raise whole_round(state_dir, stored, error, order) from None
    manifests = with_hand_fields(stored, manifests)
    accounts = AccountRegistry(state_dir, store_id=stored.store_id)
    for resource in stored.resources.living(PROVIDER):
        accounts.open(resource.name, json.loads(resource.spec))
    for name, spec in declared_in(manifests).items():
        accounts.open(name, json.loads(dump_spec(spec)))
    sources = ManifestSources(state_dir)
    looked = asyncio.run(sources.look(manifests))
    manifests = asyncio.run(sources.required(manifests, looked, stored))
    whole = replace(
        order_of(order),
        parallelism=parallelism_of(accounts.backends),
        looked=looked,
        sources=sources,
        gathers=gathers,
    )
    changes = propose_changes(stored, manifests, whole, SystemClock().now_s())
    warnings = [text for manifest in manifests for text in manifest.warnings]
    warnings += [text for it in looked.values() for text in it.warnings]
    notes = [text for it in looked.values() for text in it.notes]
    return LocalProposal(
        manifests,
        changes,
        accounts,
        warnings,
        notes,
        looked,
    )


def estimate_proposal(
    state_dir: Path,
    stored: StoreSnapshot,
    documents: Sequence[Document],
    order: Mapping[str, object],
    *,
    gathers: bool = False,
) -> tuple[LocalProposal, PlanReport]:
    """Returns the proposal, its cost and providers: by live prices where an account reports them in
    time. gathers: as in ApplyOptions.
    """
    from fleetctl.apply.cost.offers import market_of
    from fleetctl.apply.plan.build_plan import build_report

    found = propose_locally(state_dir, stored, documents, order, gathers=gathers)
    asyncio.run(_refresh_prices(found))
    market = market_of(stored, found.changes, found.accounts.backends)
    return found, build_report(stored, found.changes, market, SystemClock().now_s())


async def _refresh_prices(found: LocalProposal) -> None:
    """Asks the accounts where work may run for their prices. A slow account keeps the dated table:
    a plan needs no network.
    """
    named = {
        name
        for manifest in found.manifests
        if isinstance(manifest.spec, WorkSpec)
        for name in manifest.spec.providers()
    }
    backends = [it for name, it in found.accounts.backends.items() if name in named]
    asked = [it.ask_prices() for it in backends if isinstance(it, LivePrices)]
    if not asked:
        return
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        # A late reply changes nothing: the screen names the prices that were used.
        done, _ = await asyncio.wait(tasks, timeout=PRICES_S)
        for task in done:
            task.result()  # raises an error that is our bug
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await found.accounts.close()


def refuse_above(most_usd: float, found: PlanReport) -> None:
    """Raises Refused when this apply may cost more, or its cost is unknown."""
    for it in found.objects:
        if it.warm is not None:
            asked = it.warm.idle_s is not None
            does = "starts containers while it is asked" if asked else "keeps containers warm"
            drop = "" if asked else ", or leave out `minContainers`"
            raise Refused(
                f"{it.key} {does}, which cost as long as it exists, and"
                f" --max-cost is ${most_usd:,.2f}",
                hint=f"put it under a Budget{drop}",
            )
    high_usd = found.cost.high
    if high_usd is None:
        raise Refused(
            f"this has no upper bound of its cost, and --max-cost is ${most_usd:,.2f}",
            hint="set template.timeoutSeconds, and place it where prices are known",
        )
    if high_usd > most_usd:
        raise Refused(
            f"this may cost ${high_usd:,.2f}, more than --max-cost ${most_usd:,.2f}",
            hint="`fleetctl plan -f` shows what costs how much; nothing was changed",
        )
