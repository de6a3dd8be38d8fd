"""The process that reads a commit: `python -m fleetctl.gitops.child REQUEST`, in the checkout.
Loads all manifests and finds out what they would change, over the store as a reader; prints one
line of JSON. It writes nothing but copies of directories that manifests name, and ends.

A thousand files are seconds of work, which the controller's loop must not wait for.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetctl.apply.change import PRUNED, Change
from fleetctl.apply.cost.forecast import forecast
from fleetctl.apply.forecast import may_cost, noted
from fleetctl.apply.merge import with_hand_fields
from fleetctl.apply.policies.judge import admitted
from fleetctl.apply.policies.told import refuse as refuse_denied
from fleetctl.apply.policies.told import warnings_of
from fleetctl.apply.predictions.predict import allowed, predicted, refuse, worth_a_look
from fleetctl.apply.predictions.world import world_of
from fleetctl.apply.request.options import declared_in, parallelism_of
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.engine.capacity.prices import KIND as PROVIDER
from fleetctl.gitops.proposal import (
    Claim,
    Proposal,
    changes_by,
    order_of,
    proposal_of,
    values_of,
)
from fleetctl.gitops.wire import failed, told
from fleetctl.manifest import Manifest, load, read_documents
from fleetctl.manifest.document.namespaces import Chosen
from fleetctl.manifest.files.fence import fenced
from fleetctl.providers.contract.base import Backend
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import dump_spec, parse_spec
from fleetctl.stores.base import Stored
from fleetctl.stores.read.read_only import open_readonly
from fleetctl.tracking.kept_by import short
from fleetctl.tracking.sources import Sources
from fleetctl.wiring.accounts import Accounts


def main(request: str) -> None:
    about = json.loads(Path(request).read_text(encoding="utf-8"))
    home, claim = Path(about["home"]), Claim(**about["claim"])
    try:
        with open_readonly(home) as stored:
            found, _ = asyncio.run(read(home, stored, claim))
            reply: dict[str, Any] = told(found)
    except FleetctlError as error:
        reply = failed(error)
    sys.stdout.write(json.dumps(reply, separators=(",", ":")) + "\n")


async def read(home: Path, stored: Stored, claim: Claim) -> tuple[Proposal, list[Change]]:
    """Of the checkout that is the current directory, so that messages name files as the repository
    does. Raises FleetctlError.
    """
    if not Path(claim.path).is_dir():
        raise Refused(
            f"there is no directory `{claim.path}` at {short(claim.commit)}",
            hint="`git.path` names one inside the repository",
        )
    with fenced(Path.cwd()):
        documents = read_documents([claim.path], recursive=True)
        documents += values_of(claim, str(Path.cwd()))
        manifests = load(documents, Chosen(claim.within))
    accounts = Accounts(home, store_id=stored.store_id)
    try:
        return await _compared(home, stored, claim, manifests, accounts)
    finally:
        await accounts.close()


async def _compared(
    home: Path, stored: Stored, claim: Claim, manifests: list[Manifest], accounts: Accounts
) -> tuple[Proposal, list[Change]]:
    declared = {}
    for row in stored.resources.living(PROVIDER):
        accounts.open(row.name, json.loads(row.spec))
        declared[row.name] = parse_spec(PROVIDER, row.spec)
    for name, spec in declared_in(manifests).items():
        accounts.open(name, json.loads(dump_spec(spec)))
    manifests = with_hand_fields(stored, manifests)
    sources, providers, now_s = Sources(home), accounts.backends, SystemClock().now_s()
    with fenced(Path.cwd()):  # links, too, are followed no further
        looked = sources.keep(manifests, await sources.look(manifests))
    manifests = await sources.required(manifests, looked)
    whole = replace(
        order_of(claim), parallelism=parallelism_of(providers), looked=looked, sources=sources
    )
    changes = changes_by(stored, manifests, claim, whole, now_s)
    known = {name: it for name, it in declared.items() if isinstance(it, ProviderSpec)}
    costly = may_cost(manifests, providers, known)
    forecasts = forecast(home, providers, changes) if costly else {}
    costs = {key: it.estimate for key, it in forecasts.items()}
    changes = admitted(stored, noted(changes, forecasts), now_s, costs=costs)
    refuse_denied(changes, manifests)
    doubts = await _foreseen(stored, manifests, changes, providers, known)
    doubts += [text for it in looked.values() for text in it.warnings] + warnings_of(changes)
    found = proposal_of(stored, manifests, claim, changes, now_s)
    return replace(found, warnings=(*found.warnings, *doubts)), changes


async def _foreseen(
    stored: Stored,
    manifests: Sequence[Manifest],
    changes: Sequence[Change],
    providers: Mapping[str, Backend],
    declared: Mapping[str, ProviderSpec],
) -> list[str]:
    """Warnings. Raises ManifestErrors for what can never work; what may come later is waited for,
    as nobody is there to say otherwise.
    """
    looked_at = [it for it in manifests if worth_a_look(it.spec)]
    staying = [it for it in changes if it.outcome != PRUNED]
    if not looked_at:
        return []
    lookup = os.environ.get
    world = world_of(stored, staying, providers, declared, lookup, starts_here=True)
    found = await predicted(looked_at, staying, world)
    return refuse(found, allowed({"allowMissing": True, "waitForCapacity": True}), "")


if __name__ == "__main__":
    main(sys.argv[1])
