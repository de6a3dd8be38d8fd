"""What files would change, found out in this process: for dry runs, `diff` and `plan`.

The same decision that the controller makes, over the same rows, read without it. Loads the models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.clock import SystemClock
from fleetctl.engine.applying import Change, propose, revisions_of
from fleetctl.engine.market import KIND as PROVIDER
from fleetctl.engine.orders import declared_in, namespace_of, order_of, parallelism_of
from fleetctl.errors import Refused
from fleetctl.manifest.documents import Document
from fleetctl.manifest.loader import Manifest, load
from fleetctl.providers.base import Backend
from fleetctl.stores.base import Stored
from fleetctl.wiring import Accounts
from specs.kinds import dump_spec

if TYPE_CHECKING:
    from fleetctl.planning.report import Report
    from fleetctl.stores.readonly import Snapshot


class Proposal(NamedTuple):
    """providers: as the controller builds them; none of them is talked to."""

    manifests: list[Manifest]
    changes: list[Change]
    providers: Mapping[str, Backend]


def proposed(
    place: Path, stored: Stored, documents: Sequence[Document], order: Mapping[str, object]
) -> Proposal:
    """Raises ManifestErrors, and Refused or Conflict as the apply itself would."""
    manifests = load(documents, namespace_of(order))
    accounts = Accounts(place, store_id=stored.store_id, notify=_nobody)
    for resource in stored.resources.list():
        if resource.kind == PROVIDER and resource.deleted_at_s is None:
            accounts.open(resource.name, json.loads(resource.spec))
    for name, spec in declared_in(manifests).items():
        accounts.open(name, json.loads(dump_spec(spec)))
    providers = accounts.backends
    whole = replace(
        order_of(order),
        parallelism=parallelism_of(providers),
        revisions=revisions_of(manifests),
    )
    changes = propose(stored, manifests, whole, SystemClock().now_s())
    return Proposal(manifests, changes, providers)


def reported(
    place: Path, stored: Snapshot, documents: Sequence[Document], order: Mapping[str, object]
) -> tuple[Proposal, Report]:
    """The proposal, and what it would cost and where."""
    from fleetctl.planning.market import market_of
    from fleetctl.planning.planning import report

    found = proposed(place, stored, documents, order)
    market = market_of(stored, found.changes, found.providers)
    return found, report(stored, found.changes, market, SystemClock().now_s())


def refuse_above(most_usd: float, found: Report) -> None:
    """Raises Refused when this apply may cost more, or when nobody knows what it may cost."""
    high_usd = found.now.high
    if high_usd is None:
        raise Refused(
            f"nobody knows what this costs at most, and --max-cost is ${most_usd:,.2f}",
            hint="set template.timeoutSeconds, and place it where prices are known",
        )
    if high_usd > most_usd:
        raise Refused(
            f"this may cost ${high_usd:,.2f}, more than --max-cost ${most_usd:,.2f}",
            hint="`fleetctl plan -f` shows what costs how much; nothing was changed",
        )


def _nobody(run: str) -> None:
    """Nothing is started here, so nobody waits for news of a run."""
