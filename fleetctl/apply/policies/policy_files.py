"""Policies that the user names beside the checked files (`--policy policies/`), and the verdicts of
all policies on changes, with costs where a rule needs them. Called by the CLI and by reviews.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.apply.change import UNCHANGED, Change
from fleetctl.apply.policies.expressions import ExpressionError, compile_expression
from fleetctl.apply.policies.judge import (
    POLICY,
    LoadedPolicy,
    judge_changes,
    judge_object,
    policies_of,
)
from fleetctl.common.errors import UsageError
from fleetctl.controllers.money.estimate import CostEstimate, estimate_of
from fleetctl.manifest.loader import load_manifests
from fleetctl.manifest.problems import ManifestErrors
from fleetctl.specs.kinds.policy import PolicySpec
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.annotations import ESTIMATE

if TYPE_CHECKING:
    from fleetctl.common.finding import Finding
    from fleetctl.manifest import Manifest
    from fleetctl.manifest.files.documents import Document

# Yields the errors in the expressions of a policy, by path.
Check = Callable[[PolicySpec], Iterable["Finding"]]


def policies_in(documents: Sequence[Document], check: Check) -> list[LoadedPolicy]:
    """Returns the policies. Raises ManifestErrors, and UsageError for other kinds."""
    found = load_manifests(documents)
    for manifest in found:
        if manifest.kind != POLICY:
            raise UsageError(
                f"{manifest.path}:{manifest.line}: {manifest.key} is not a policy",
                hint="--policy names files of kind Policy; -f names what they are about",
            )
    refuse_wrong(found, check)
    return policies_among(found)


def refuse_wrong(manifests: Iterable[Manifest], check: Check) -> None:
    """Raises ManifestErrors with the errors in the expressions of the manifests that are
    policies."""
    problems = [
        problem
        for it in manifests
        if isinstance(it.spec, PolicySpec)
        for problem in it.problems(list(check(it.spec)))
    ]
    if problems:
        raise ManifestErrors(problems)


def policies_among(manifests: Iterable[Manifest]) -> list[LoadedPolicy]:
    return [LoadedPolicy(it.name, it.spec) for it in manifests if isinstance(it.spec, PolicySpec)]


def judged_by(
    stored: ReadableStore,
    changes: Sequence[Change],
    given: Sequence[LoadedPolicy],
    now_s: float,
    costs: Callable[[], Mapping[str, CostEstimate]],
) -> list[Change]:
    """Judges changes by the policies that will be in force and the given ones, which win over
    policies of the same name. costs: called where a rule reads them.
    """
    policies = merge_policies(policies_of(stored, changes), given)
    known = costs() if any(map(_asks_costs, policies)) else None
    return judge_changes(changes, policies, now_s, costs=known)


def merge_policies(
    holding: Sequence[LoadedPolicy], given: Sequence[LoadedPolicy]
) -> list[LoadedPolicy]:
    by_name = {it.name: it for it in (*holding, *given)}
    return [by_name[name] for name in sorted(by_name)]


def stored_judged(
    stored: ReadableStore,
    given: Sequence[LoadedPolicy],
    now_s: float,
) -> list[Change]:
    """Judges all stored objects, as they are; their cost is the estimate from when they were
    applied."""
    policies = merge_policies(policies_of(stored, ()), given)
    rows = (row for row in stored.resources.list() if row.deleted_at_s is None)
    found = []
    for row in rows:
        if row.kind == POLICY:
            continue
        change = Change(UNCHANGED, row, row)
        noted = estimate_of(row.annotations.get(ESTIMATE, ""))
        costs = {} if noted is None else {row.key: noted}
        said = tuple(judge_object(change, policies, now_s, costs=costs))
        found.append(Change(UNCHANGED, row, row, verdicts=said))
    return found


def _asks_costs(policy: LoadedPolicy) -> bool:
    rules = policy.spec.rules if policy.spec is not None else ()
    return any("cost" in _list_names(rule.expression) for rule in rules)


def _list_names(text: str) -> frozenset[str]:
    try:
        return compile_expression(text).names
    except ExpressionError:
        return frozenset()
