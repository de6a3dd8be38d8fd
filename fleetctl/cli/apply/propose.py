"""What files would change, found out in this process: for dry runs, `diff` and `plan`.

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
from fleetctl.apply.merge import with_hand_fields
from fleetctl.apply.propose import propose
from fleetctl.apply.request.options import declared_in, namespace_of, order_of, parallelism_of
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import Refused
from fleetctl.engine.capacity.prices import KIND as PROVIDER
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.loader import Manifest, load
from fleetctl.providers.contract.base import LivePrices
from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.kinds.registry import dump_spec
from fleetctl.stores.base import Stored
from fleetctl.tracking.sources import Sources
from fleetctl.wiring.accounts import Accounts

if TYPE_CHECKING:
    from fleetctl.apply.cost.report import Report
    from fleetctl.stores.read.read_only import Snapshot


PRICES_S = 3.0  # for an account to tell its prices; the import of its SDK is most of it


class Proposal(NamedTuple):
    """accounts: the providers as the controller has them; nothing is started there. warnings:
    sentences for a person; notes: those that are only shown where more is asked for.
    """

    manifests: list[Manifest]
    changes: list[Change]
    accounts: Accounts
    warnings: list[str]
    notes: list[str]


def proposed(
    state_dir: Path, stored: Stored, documents: Sequence[Document], order: Mapping[str, object]
) -> Proposal:
    """Raises ManifestErrors, and Refused or Conflict as the apply itself would."""
    manifests = load(documents, namespace_of(order), may_be_empty=bool(order.get("prune")))
    manifests = with_hand_fields(stored, manifests)
    accounts = Accounts(state_dir, store_id=stored.store_id)
    for resource in stored.resources.living(PROVIDER):
        accounts.open(resource.name, json.loads(resource.spec))
    for name, spec in declared_in(manifests).items():
        accounts.open(name, json.loads(dump_spec(spec)))
    sources = Sources(state_dir)
    looked = asyncio.run(sources.look(manifests))
    manifests = asyncio.run(sources.required(manifests, looked))
    whole = replace(
        order_of(order),
        parallelism=parallelism_of(accounts.backends),
        looked=looked,
        sources=sources,
    )
    changes = propose(stored, manifests, whole, SystemClock().now_s())
    warnings = [text for manifest in manifests for text in manifest.warnings]
    warnings += [text for it in looked.values() for text in it.warnings]
    notes = [text for it in looked.values() for text in it.notes]
    return Proposal(manifests, changes, accounts, warnings, notes)


def reported(
    state_dir: Path, stored: Snapshot, documents: Sequence[Document], order: Mapping[str, object]
) -> tuple[Proposal, Report]:
    """The proposal, and what it would cost and where: by live prices where an account tells them in
    time.
    """
    from fleetctl.apply.cost.offers import market_of
    from fleetctl.apply.cost.plan import report

    found = proposed(state_dir, stored, documents, order)
    asyncio.run(_asked(found))
    market = market_of(stored, found.changes, found.accounts.backends)
    return found, report(stored, found.changes, market, SystemClock().now_s())


async def _asked(found: Proposal) -> None:
    """Ask the accounts where work may go what they charge. Who does not answer soon is left with
    the dated table: a plan needs no network.
    """
    named = {
        name
        for manifest in found.manifests
        if isinstance(manifest.spec, Execution)
        for name in manifest.spec.providers()
    }
    backends = [it for name, it in found.accounts.backends.items() if name in named]
    asked = [it.ask_prices() for it in backends if isinstance(it, LivePrices)]
    if not asked:
        return
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        # Whoever is late changes nothing: the screen says by which prices it was reckoned.
        done, _ = await asyncio.wait(tasks, timeout=PRICES_S)
        for task in done:
            task.result()  # a bug of ours is told
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await found.accounts.close()


def refuse_above(most_usd: float, found: Report) -> None:
    """Raises Refused when this apply may cost more, or when nobody knows what it may cost."""
    for it in found.objects:
        if it.warm is not None:
            asked = it.warm.idle_s is not None
            does = "starts containers while it is asked" if asked else "keeps containers warm"
            drop = "" if asked else ", or leave out `minContainers`"
            raise Refused(
                f"{it.change.key} {does}, which cost as long as it exists, and"
                f" --max-cost is ${most_usd:,.2f}",
                hint=f"put it under a Budget{drop}",
            )
    high_usd = found.now.high
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
