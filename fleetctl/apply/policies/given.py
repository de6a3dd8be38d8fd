"""Policies that a person names beside what is checked (`--policy policies/`), and what all policies
say of changes, with their costs where a rule asks for them. Called by the CLI and by reviews.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.apply.change import UNCHANGED, Change
from fleetctl.apply.policies.expressions import Wrong, program
from fleetctl.apply.policies.judge import POLICY, Policy, judged, policies_of, verdicts
from fleetctl.common.errors import UsageError
from fleetctl.controllers.money.estimate import Estimate, estimate_of
from fleetctl.manifest.loader import load
from fleetctl.manifest.problems import ManifestErrors
from fleetctl.specs.kinds.policy import PolicySpec
from fleetctl.stores.base import Stored
from fleetctl.tracking.annotations import ESTIMATE

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest
    from fleetctl.manifest.files.documents import Document
    from fleetctl.manifest.messages import Finding

# What is wrong with the expressions of a policy, by place.
Check = Callable[[PolicySpec], Iterable["Finding"]]


def policies_in(documents: Sequence[Document], check: Check) -> list[Policy]:
    """Raises ManifestErrors, and UsageError for what is not a policy."""
    found = load(documents)
    for manifest in found:
        if manifest.kind != POLICY:
            raise UsageError(
                f"{manifest.path}:{manifest.line}: {manifest.key} is not a policy",
                hint="--policy names files of kind Policy; -f names what they are about",
            )
    refuse_wrong(found, check)
    return policies_among(found)


def refuse_wrong(manifests: Iterable[Manifest], check: Check) -> None:
    """Raises ManifestErrors with what is wrong with the expressions of those that are policies."""
    problems = [
        problem
        for it in manifests
        if isinstance(it.spec, PolicySpec)
        for problem in it.problems(list(check(it.spec)))
    ]
    if problems:
        raise ManifestErrors(problems)


def policies_among(manifests: Iterable[Manifest]) -> list[Policy]:
    return [Policy(it.name, it.spec) for it in manifests if isinstance(it.spec, PolicySpec)]


def judged_by(
    stored: Stored,
    changes: Sequence[Change],
    given: Sequence[Policy],
    now_s: float,
    costs: Callable[[], Mapping[str, Estimate]],
) -> list[Change]:
    """By the policies that will hold and those that are given, which win over one of their name.
    costs: asked where a rule is about them.
    """
    policies = together(policies_of(stored, changes), given)
    known = costs() if any(map(_asks_costs, policies)) else None
    return judged(changes, policies, now_s, costs=known)


def together(holding: Sequence[Policy], given: Sequence[Policy]) -> list[Policy]:
    by_name = {it.name: it for it in (*holding, *given)}
    return [by_name[name] for name in sorted(by_name)]


def stored_judged(stored: Stored, given: Sequence[Policy], now_s: float) -> list[Change]:
    """All objects that are stored, as they are; their cost is what was estimated when they came."""
    policies = together(policies_of(stored, ()), given)
    rows = (row for row in stored.resources.list() if row.deleted_at_s is None)
    found = []
    for row in rows:
        if row.kind == POLICY:
            continue
        change = Change(UNCHANGED, row, row)
        noted = estimate_of(row.annotations.get(ESTIMATE, ""))
        costs = {} if noted is None else {row.key: noted}
        said = tuple(verdicts(change, policies, now_s, costs=costs))
        found.append(Change(UNCHANGED, row, row, verdicts=said))
    return found


def _asks_costs(policy: Policy) -> bool:
    rules = policy.spec.rules if policy.spec is not None else ()
    return any("cost" in _names(rule.expression) for rule in rules)


def _names(text: str) -> frozenset[str]:
    try:
        return program(text).names
    except Wrong:
        return frozenset()
