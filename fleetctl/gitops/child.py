"""The process that reads a commit: `python -m fleetctl.gitops.child REQUEST`, in the checkout.
Reads also what other Sources of the same repository and ref declare there.

Loads all manifests and finds their changes, over the store as a reader; prints one line of JSON.
It writes only copies of directories that manifests name, and ends. It is a process of its own
because a thousand files are seconds of work, which the controller's loop must not wait for.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetctl.apply.change import PRUNED, Change
from fleetctl.apply.cost.estimate import note_estimates
from fleetctl.apply.merge import with_hand_fields
from fleetctl.apply.plan.build_plan import forecast_costs
from fleetctl.apply.policies.judge import judge_proposal
from fleetctl.apply.policies.report import problems_of, refuse_problems, warnings_of
from fleetctl.apply.policies.report import raise_if_denied as refuse_denied
from fleetctl.apply.predictions.predict import (
    is_worth_a_look,
    make_predictions,
    read_allowed,
    split_predictions,
)
from fleetctl.apply.predictions.world import world_of
from fleetctl.apply.request import parallelism_of, select_providers
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.engine.capacity.price_book import KIND as PROVIDER
from fleetctl.engine.capacity.price_book import may_cost
from fleetctl.gitops.proposal import (
    CommitProposal,
    Neighbour,
    SourceClaim,
    changes_by,
    claim_of,
    dump_error,
    dump_proposal,
    order_of,
    proposal_of,
    values_of,
)
from fleetctl.manifest import Manifest, load_manifests, read_documents
from fleetctl.manifest.document.envelope import NamespaceChoice
from fleetctl.manifest.files.fence import fence_directory
from fleetctl.providers.contract.base import Backend
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import dump_spec, parse_spec
from fleetctl.specs.kinds.source import SourceSpec
from fleetctl.stores.base import ReadableStore
from fleetctl.stores.read.read_only import open_readonly
from fleetctl.tracking.kept_by import shorten_commit
from fleetctl.tracking.manifest_sources import ManifestSources
from fleetctl.tracking.source_state import SourceState
from fleetctl.wiring.account_registry import AccountRegistry

# A manifest that moves from one Source's path to another's takes its object along. The order of
# the two Sources does not matter: the one that lost the manifest leaves the object alone, and the
# other one may claim it.

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


def main(request: str) -> None:
    about = json.loads(Path(request).read_text(encoding="utf-8"))
    home = Path(about["home"])
    claim = SourceClaim(**about["claim"])
    try:
        with open_readonly(home) as stored:
            found, _ = asyncio.run(read_commit(home, stored, claim))
            reply: dict[str, Any] = dump_proposal(found)
    except FleetctlError as error:
        reply = dump_error(error)
    sys.stdout.write(json.dumps(reply, separators=(",", ":")) + "\n")


async def read_commit(
    home: Path,
    stored: ReadableStore,
    claim: SourceClaim,
) -> tuple[CommitProposal, list[Change]]:
    """Reads the checkout in the current directory, so that messages name files as the repository
    does. Raises FleetctlError.
    """
    if not Path(claim.path).is_dir():
        raise Refused(
            f"there is no directory `{claim.path}` at {shorten_commit(claim.commit)}",
            hint="`git.path` names one inside the repository",
        )
    manifests = _load_claimed(claim)
    neighbours = neighbours_of(stored, claim, _load_claimed)
    accounts = AccountRegistry(home, store_id=stored.store_id)
    try:
        return await _build_proposal(
            home,
            stored,
            claim,
            manifests,
            neighbours,
            accounts,
        )
    finally:
        await accounts.close()


def _load_claimed(claim: SourceClaim) -> list[Manifest]:
    """Loads the manifests. Raises ManifestErrors."""
    with fence_directory(Path.cwd()):
        documents = read_documents([claim.path], recursive=True)
        documents += values_of(claim, str(Path.cwd()))
        return load_manifests(documents, NamespaceChoice(claim.within))


async def _build_proposal(
    home: Path,
    stored: ReadableStore,
    claim: SourceClaim,
    manifests: list[Manifest],
    neighbours: Sequence[Neighbour],
    accounts: AccountRegistry,
) -> tuple[CommitProposal, list[Change]]:
    declared = {}
    for row in stored.resources.living(PROVIDER):
        accounts.open(row.name, json.loads(row.spec))
        declared[row.name] = parse_spec(PROVIDER, row.spec)
    for name, spec in select_providers(manifests).items():
        accounts.open(name, json.loads(dump_spec(spec)))
    providers = accounts.backends

    manifests = with_hand_fields(stored, manifests)
    sources = ManifestSources(home)
    now_s = SystemClock().now_s()
    with fence_directory(Path.cwd()):  # links, too, are followed no further
        looked = sources.keep(manifests, await sources.look(manifests))
    manifests = await sources.required(manifests, looked, stored)

    options = replace(
        order_of(claim, neighbours),
        parallelism=parallelism_of(providers),
        looked=looked,
        sources=sources,
    )
    changes = changes_by(stored, manifests, claim, options, now_s, neighbours)
    known = {name: it for name, it in declared.items() if isinstance(it, ProviderSpec)}
    costly = may_cost(manifests, providers, known)
    forecasts = forecast_costs(home, providers, changes) if costly else {}
    costs = {key: it.estimate for key, it in forecasts.items()}
    changes = judge_proposal(stored, note_estimates(changes, forecasts), now_s, costs=costs)

    doubts = await _predict_problems(stored, manifests, changes, providers, known, looked)
    doubts += [text for it in looked.values() for text in it.warnings]
    doubts += warnings_of(changes)
    found = proposal_of(stored, manifests, claim, changes, now_s)
    return replace(found, warnings=(*found.warnings, *doubts)), changes


async def _predict_problems(
    stored: ReadableStore,
    manifests: Sequence[Manifest],
    changes: Sequence[Change],
    providers: Mapping[str, Backend],
    declared: Mapping[str, ProviderSpec],
    looked: Mapping[str, SourceState],
) -> list[str]:
    """Returns warnings. Raises ManifestErrors for work that can never run; an object that may come
    later is waited for, as there is no user to decide.
    """
    looked_at = [it for it in manifests if is_worth_a_look(it.spec, looked.get(it.key))]
    staying = [it for it in changes if it.outcome != PRUNED]
    if not looked_at:
        refuse_denied(changes, manifests)
        return []
    lookup = os.environ.get
    world = world_of(
        stored,
        staying,
        providers,
        declared,
        lookup,
        starts_here=True,
        looked=looked,
    )
    found = await make_predictions(looked_at, staying, world)
    allowed = read_allowed({"allowMissing": True, "waitForCapacity": True})
    wrong, warnings = split_predictions(found, allowed, "")
    refuse_problems([*wrong, *problems_of(changes, manifests)], manifests)
    return warnings


if __name__ == "__main__":
    main(sys.argv[1])
