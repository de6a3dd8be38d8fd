"""Judges the changes of a proposal by the policies that will be in force once they are stored, and
by those in files that the user names with `--policy`.

Writes nothing. A rule whose expression cannot be evaluated is treated as broken, since its
verdict is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fleetctl.apply.change import CONFIGURED, CREATED, PRUNED, UNCHANGED, Change, PolicyVerdict
from fleetctl.apply.policies.evaluation import Subject, value_of
from fleetctl.apply.policies.expressions import ExpressionError, compile_expression
from fleetctl.common.errors import Refused, UsageError
from fleetctl.common.finding import Severity
from fleetctl.controllers.budget import CostEstimate, estimate_of
from fleetctl.controllers.model import Resource
from fleetctl.manifest.loader import load_manifests
from fleetctl.manifest.problems import ManifestErrors
from fleetctl.specs.kinds.policy import PolicyRule, PolicySpec
from fleetctl.specs.kinds.registry import KINDS, parse_spec
from fleetctl.specs.values.changes import UNSET
from fleetctl.specs.values.exempt import EXEMPT, Exemption, exemptions_of
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.annotations import ESTIMATE

if TYPE_CHECKING:
    from fleetctl.common.finding import Finding
    from fleetctl.manifest import Manifest
    from fleetctl.manifest.files.documents import Document


POLICY = "Policy"
FREE = CostEstimate(0.0, 0.0, 0.0)
TEXT_CHARS_MAX = 300  # of a message that a `messageExpression` computes
# The cost of an object, by its key; an object without an entry is free.
Costs = Mapping[str, CostEstimate]

# Yields the errors in the expressions of a policy, by path.
Check = Callable[[PolicySpec], Iterable["Finding"]]


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy. spec: None when this version of the program cannot read the stored spec."""

    name: str
    spec: PolicySpec | None

    def selects(self, row: Resource) -> bool:
        """Returns whether the policy judges this object. An unreadable policy judges all, and
        denies them; no policy judges policies.
        """
        if row.kind == POLICY:
            return False
        if self.spec is None:
            return True
        match = self.spec.match
        if match.kinds and row.kind not in match.kinds:
            return False
        if match.namespaces and not (
            KINDS[row.kind].namespaced and row.namespace in match.namespaces
        ):
            return False
        return match.labels.items() <= row.labels.items()


def judge_proposal(
    stored: ReadableStore,
    changes: list[Change],
    now_s: float,
    *,
    costs: Costs | None,
) -> list[Change]:
    """Returns the changes with the verdicts of the policies that will be in force once they are
    stored."""
    policies = policies_of(stored, changes)
    if policies:
        return judge_changes(changes, policies, now_s, costs=costs)
    return changes


def policies_of(stored: ReadableStore, changes: Sequence[Change]) -> list[LoadedPolicy]:
    """Returns the policies that are in force once the changes are stored, by name."""
    rows = {it.name: it for it in stored.resources.living(POLICY)}
    for change in changes:
        if change.after.kind == POLICY:
            rows[change.after.name] = change.after
    living = (row for row in rows.values() if row.deleted_at_s is None)
    return sorted((load_policy(row) for row in living), key=lambda it: it.name)


def digest_policies(stored: ReadableStore, now_s: float) -> str:
    """Returns a digest of the stored policies and of the day in UTC; "" without policies.

    While the digest is the same, judged objects need no new judgement. The day is part of it
    because exemptions expire by the day.
    """
    rows = sorted((it.name, it.spec) for it in stored.resources.living(POLICY))
    day = datetime.fromtimestamp(now_s, UTC).date().isoformat()
    if rows:
        return sha256(canonical_json([day, *rows]).encode()).hexdigest()
    return ""


def load_policy(row: Resource) -> LoadedPolicy:
    """Parses a stored policy; one of another version has no spec."""
    try:
        spec = parse_spec(POLICY, row.spec)
    except ValidationError:
        return LoadedPolicy(row.name, None)
    assert isinstance(spec, PolicySpec)
    return LoadedPolicy(row.name, spec)


def judge_changes(
    changes: Sequence[Change],
    policies: Sequence[LoadedPolicy],
    now_s: float,
    *,
    costs: Costs | None,
) -> list[Change]:
    """Returns the changes with the verdicts of each policy.

    costs: None while they are not estimated; rules on costs give no verdict then, and the changes
    are judged once more.
    """
    if not policies:
        return list(changes)
    return [
        replace(it, verdicts=tuple(judge_object(it, policies, now_s, costs=costs)))
        if _is_edited(it)
        else it
        for it in changes
    ]


def _is_edited(change: Change) -> bool:
    """Returns whether the user changes the object itself. Other changes are not judged: a deletion,
    and a restart that a change of another object causes.
    """
    before = change.before
    after = change.after
    if change.outcome == CREATED:
        return True
    if change.outcome != CONFIGURED or before is None:
        return False
    return (
        before.spec != after.spec
        or before.labels != after.labels
        or before.annotations.get(EXEMPT) != after.annotations.get(EXEMPT)
    )


def judge_object(
    change: Change,
    policies: Sequence[LoadedPolicy],
    now_s: float,
    *,
    costs: Costs | None,
) -> Iterator[PolicyVerdict]:
    """Yields the verdicts on an object, changed or not, and on the objects that it would make,
    where it is a schedule.
    """
    selected = [it for it in policies if it.selects(change.after)]
    if selected:
        yield from _apply_policies(change, selected, now_s, costs)
    scheduled = _scheduled_change(change)
    if scheduled is not None:
        selected = [it for it in policies if it.selects(scheduled.after)]
        yield from _apply_policies(scheduled, selected, now_s, None)


def _apply_policies(
    change: Change,
    policies: Sequence[LoadedPolicy],
    now_s: float,
    costs: Costs | None,
) -> Iterator[PolicyVerdict]:
    try:
        exemptions = exemptions_of(change.after.annotations)
        unreadable = ""
    except ValueError as error:
        exemptions = {}
        unreadable = str(error)
    subject = Subject(_build_variables(change, costs))
    for policy in policies:
        if policy.spec is None:
            yield _give_verdict(policy.name, "this version of fleetctl cannot read it")
            continue
        found = [
            it
            for rule in policy.spec.rules
            if (it := _apply_rule(policy.name, rule, subject, costs))
        ]
        if any(it.deny for it in found) and unreadable:
            found.append(_give_verdict(policy.name, f"annotation {EXEMPT}: {unreadable}"))
        yield from _apply_exemption(exemptions.get(policy.name), policy.spec, found, now_s)


def _apply_exemption(
    exemption: Exemption | None,
    spec: PolicySpec,
    found: Sequence[PolicyVerdict],
    now_s: float,
) -> Iterator[PolicyVerdict]:
    """Yields the verdicts as an exemption changes them: no longer denying where it is valid, else
    with the reason for which it is not.
    """
    if exemption is None or not found:
        yield from found
        return
    why_invalid = ""
    if not spec.exemptions.allowed:
        why_invalid = "this policy has no exceptions"
    elif exemption.over(now_s):
        why_invalid = f"its exception ended on {exemption.day.isoformat()}"
    elif exemption.is_too_far(now_s, max_days=spec.exemptions.max_days):
        why_invalid = (
            f"its exception may end {spec.exemptions.max_days} days from now at the latest"
        )
    for it in found:
        if why_invalid:
            yield replace(it, what=f"{it.what} ({why_invalid})")
        else:
            yield replace(it, severity=Severity.DOUBT, exempt=exemption.sentence)


def _apply_rule(
    policy: str,
    rule: PolicyRule,
    subject: Subject,
    costs: Costs | None,
) -> PolicyVerdict | None:
    """Returns the verdict of a broken rule; None for a rule that holds, or that reads costs which
    are not estimated yet.
    """
    deny = rule.action == "Deny"
    try:
        if costs is None and "cost" in compile_expression(rule.expression).names:
            return None
        holds = value_of(rule.expression, subject)
        if isinstance(holds.value, bool):
            if holds.value:
                return None
            return _give_verdict(policy, _build_message(rule, subject), deny=deny)
        raise ExpressionError(f"it gives {holds.type}, and must give true or false")
    except ExpressionError as error:
        return _give_verdict(
            policy,
            f"`{rule.expression}` cannot be evaluated: {error}",
            error.hint,
            deny=deny,
        )
    except Refused as error:
        return _give_verdict(policy, str(error), error.hint, deny=deny)


def _give_verdict(
    policy: str,
    what: str,
    fix: str = "",
    *,
    deny: bool = True,
) -> PolicyVerdict:
    severity = Severity.DENIED if deny else Severity.DOUBT
    return PolicyVerdict((), what, fix, severity, policy=policy)


def _build_message(rule: PolicyRule, subject: Subject) -> str:
    """Returns the message of a broken rule: the computed one, else the fixed one, else its
    expression.
    """
    if rule.message_expression is not None:
        try:
            text = value_of(rule.message_expression, subject).value
        except ExpressionError:
            text = None
        if isinstance(text, str) and text.strip():
            return " ".join(text.split())[:TEXT_CHARS_MAX]
    return rule.message or f"`{rule.expression}` does not hold"


def _build_variables(change: Change, costs: Costs | None) -> dict[str, Any]:
    """Returns the variables of an expression; see docs/how-to/policies.md, which lists them."""
    return {
        "object": _describe_object(change.after),
        "old": None if change.before is None else _describe_object(change.before),
        "namespace": change.after.namespace,
        "plan": _describe_plan(change),
        "cost": _describe_cost(None if costs is None else costs.get(change.key, FREE)),
    }


def _describe_object(row: Resource) -> dict[str, Any]:
    """Returns the object as a manifest, with the defaults of the fields that it leaves out."""
    try:
        spec = parse_spec(row.kind, row.spec).model_dump(
            mode="json",
            by_alias=True,
            exclude_none=True,
        )
    except ValidationError:
        spec = json.loads(row.spec)  # of another version
    return {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": row.kind,
        "metadata": {
            "name": row.name,
            "namespace": row.namespace,
            "labels": dict(row.labels),
            "annotations": dict(row.annotations),
        },
        "spec": spec,
    }


def _describe_plan(change: Change) -> dict[str, Any]:
    """Returns the variable `plan`. None stands for a field that one side does not have, and for an
    unknown number of units.
    """
    impact = change.impact
    return {
        "action": {CREATED: "create", CONFIGURED: "update", PRUNED: "delete"}.get(
            change.outcome, "keep"
        ),
        "changes": [
            {
                "path": it.path,
                "before": None if it.before is UNSET else it.before,
                "after": None if it.after is UNSET else it.after,
            }
            for it in change.fields
        ],
        "units": None if impact is None else impact.total,
        "toRun": None if impact is None else impact.to_run,
        "again": 0 if impact is None else impact.again.units,
        "destroys": len(change.destroyed),
    }


def _describe_cost(cost: CostEstimate | None) -> dict[str, Any]:
    """Returns the variable `cost`. usd: the most that the object may cost in USD; 0, with `known`
    false, where that is unknown.
    """
    if cost is None:
        return {"known": False, "usd": 0.0, "expected": None}
    most_usd = cost.high_usd
    return {"known": most_usd is not None, "usd": most_usd or 0.0, "expected": cost.expected_usd}


def _scheduled_change(change: Change) -> Change | None:
    """Returns, for a schedule, the change by which it would create its next object; else None."""
    row = change.after
    if not KINDS[row.kind].starts:
        return None
    template = json.loads(row.spec).get("template", {})
    if "kind" not in template:
        return None  # a Source, whose objects are judged when a commit is stored
    metadata = template.get("metadata", {})
    scheduled = replace(
        row,
        kind=template["kind"],
        spec=json.dumps(template["spec"]),
        labels=metadata.get("labels", {}),
        annotations={**metadata.get("annotations", {})},
    )
    return Change(CREATED, None, scheduled)


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


def judge_by_policies(
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
