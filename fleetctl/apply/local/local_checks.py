"""Finds in this process the errors for which an apply of these files would be refused: for
validate, plan, diff and dry runs. Loads the models.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.apply.change import Change
from fleetctl.apply.cost.offers import market_of
from fleetctl.apply.local.foresee import predictions_of, whole_round
from fleetctl.apply.local.local_proposal import LocalProposal, estimate_proposal
from fleetctl.apply.plan.build_plan import build_report, costs_of
from fleetctl.apply.plan.plan_report import PlanReport
from fleetctl.apply.plan.risks import list_verdict_risks, sort_risks
from fleetctl.apply.policies.policy_files import judged_by
from fleetctl.apply.policies.report import problems_of, refuse_problems, warnings_of
from fleetctl.apply.predictions.predict import ANYWAY, ANYWAY_SORTS, read_allowed, split_predictions
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request.options import declared_in, namespace_of, order_of
from fleetctl.common.clock import SystemClock
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.loader import LoadErrors, Manifest, load_manifests
from fleetctl.manifest.problems import ManifestProblem
from fleetctl.providers.contract.base import Backend
from fleetctl.specs.kinds.registry import dump_spec
from fleetctl.stores.base import ReadableStore
from fleetctl.stores.read.read_only import StoreSnapshot
from fleetctl.tracking.manifest_sources import ManifestSources, source_of
from fleetctl.tracking.source_state import SourceState
from fleetctl.wiring.account_registry import AccountRegistry

if TYPE_CHECKING:
    from fleetctl.apply.policies.judge import LoadedPolicy
    from fleetctl.controllers.money.estimate import CostEstimate


class LocalPlan(NamedTuple):
    """A proposal with its report, which has the verdicts of policies and all warnings. changes:
    with the same verdicts. problems: all that would refuse an apply.
    """

    proposal: LocalProposal
    report: PlanReport
    changes: list[Change]
    problems: list[ManifestProblem]


def plan_locally(
    state_dir: Path,
    stored: StoreSnapshot,
    documents: Sequence[Document],
    order: Mapping[str, object],
    policies: Sequence[LoadedPolicy] = (),
) -> LocalPlan:
    """Returns the plan of an apply. Raises ManifestErrors for unreadable manifests, and Refused as
    the apply itself would.
    """
    proposal, report = estimate_proposal(state_dir, stored, documents, order, gathers=True)
    providers = proposal.accounts.backends
    problems, doubts = looked_at(
        stored,
        proposal.manifests,
        proposal.changes,
        providers,
        order,
        proposal.looked,
    )
    changes = judge_changes(stored, proposal.changes, policies, providers)
    whole = replace(
        report,
        risks=sort_risks([*report.risks, *list_verdict_risks(changes)]),
        warnings=(*proposal.warnings, *doubts, *warnings_of(changes)),
    )
    problems += problems_of(changes, proposal.manifests)
    return LocalPlan(proposal, whole, changes, problems)


def check_manifests(
    state_dir: Path,
    stored: StoreSnapshot,
    documents: Sequence[Document],
    order: Mapping[str, object],
    policies: Sequence[LoadedPolicy] = (),
) -> tuple[list[Manifest], list[str]]:
    """Returns the manifests, and warnings beyond their own. Raises ManifestErrors, and Denied by
    stored policies and these.
    """
    try:
        manifests = load_manifests(documents, namespace_of(order))
    except LoadErrors as error:
        raise whole_round(state_dir, stored, error, order) from None
    accounts = AccountRegistry(state_dir, store_id="")
    for name, spec in declared_in(manifests).items():
        accounts.open(name, json.loads(dump_spec(spec)))
    looked = asyncio.run(
        ManifestSources(state_dir).look([it for it in manifests if _named_by_path(it)])
    )
    whole = replace(order_of(order), looked=looked, gathers=True)
    changes = propose_changes(stored, manifests, whole, SystemClock().now_s())
    doubts = [text for it in looked.values() for text in it.warnings]
    return manifests, doubts + refuse_changes(
        stored,
        manifests,
        changes,
        accounts.backends,
        order,
        looked,
        policies,
    )


def judge_changes(
    stored: StoreSnapshot,
    changes: Sequence[Change],
    policies: Sequence[LoadedPolicy],
    providers: Mapping[str, Backend],
) -> list[Change]:
    """Returns the changes with the verdicts of stored policies and these, also on their cost."""
    now_s = SystemClock().now_s()

    def costs() -> Mapping[str, CostEstimate]:
        found = build_report(stored, changes, market_of(stored, changes, providers), now_s)
        return costs_of(found)

    return judged_by(
        stored,
        changes,
        policies,
        now_s,
        costs,
    )


def _named_by_path(manifest: Manifest) -> bool:
    """Returns true for a local path. Remotes are not read: that takes a network."""
    source = source_of(manifest.spec)
    return source is not None and source.path is not None


def refuse_changes(
    stored: StoreSnapshot,
    manifests: Sequence[Manifest],
    changes: Sequence[Change],
    providers: Mapping[str, Backend],
    order: Mapping[str, object],
    looked: Mapping[str, SourceState],
    policies: Sequence[LoadedPolicy],
) -> list[str]:
    """Returns warnings. Raises the refusal by predictions, stored objects and policies together."""
    found = predictions_of(
        stored,
        manifests,
        changes,
        providers,
        looked,
    )
    wrong, warnings = split_predictions(found, read_allowed(order))
    changes = judge_changes(stored, changes, policies, providers)
    refuse_problems([*wrong, *problems_of(changes, manifests)], manifests)
    return warnings + warnings_of(changes)


def looked_at(
    stored: ReadableStore,
    manifests: Sequence[Manifest],
    changes: Sequence[Change],
    providers: Mapping[str, Backend],
    order: Mapping[str, object],
    looked: Mapping[str, SourceState],
) -> tuple[list[ManifestProblem], list[str]]:
    """Returns errors and warnings as `foreseen`, for changes that are shown and not stored: objects
    that may come later cause a warning, which mentions that an apply would be refused.
    """
    found = predictions_of(
        stored,
        manifests,
        changes,
        providers,
        looked,
    )
    wrong, doubts = split_predictions(found, frozenset({*read_allowed(order), *ANYWAY_SORTS}))
    if any(it.severity in ANYWAY_SORTS and it.severity not in read_allowed(order) for it in found):
        doubts.append(f"until then `fleetctl apply` is refused; {ANYWAY}")
    return wrong, doubts
