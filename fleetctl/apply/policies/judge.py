"""What policies say of the changes of a proposal. Called by propose.py, and again by whoever knows
what they cost. Reads policies as the changes will leave them; writes nothing.

An expression that cannot be evaluated denies: its verdict is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from pydantic import ValidationError

from fleetctl.apply.change import CONFIGURED, CREATED, PRUNED, Change, Verdict
from fleetctl.apply.policies.expressions import Data, Wrong, evaluated, program
from fleetctl.common.errors import Refused
from fleetctl.controllers.model import Resource
from fleetctl.controllers.money.estimate import Estimate
from fleetctl.specs.kinds.policy import PolicyRule, PolicySpec
from fleetctl.specs.kinds.registry import KINDS, parse_spec
from fleetctl.specs.values.changes import UNSET
from fleetctl.specs.values.exempt import EXEMPT, Exemption, exemptions_of
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.stores.base import Stored

POLICY = "Policy"
FREE = Estimate(0.0, 0.0, 0.0)
TEXT_CHARS_MAX = 300  # of what an expression of a message gives
# What an object costs, by its key; one that is not there costs nothing.
Costs = Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class Policy:
    """spec None: this version of the program cannot read it."""

    name: str
    spec: PolicySpec | None

    def selects(self, row: Resource) -> bool:
        if row.kind == POLICY or self.spec is None:
            return self.spec is None and row.kind != POLICY
        match = self.spec.match
        if match.kinds and row.kind not in match.kinds:
            return False
        if match.namespaces and not (
            KINDS[row.kind].namespaced and row.namespace in match.namespaces
        ):
            return False
        return match.labels.items() <= row.labels.items()


def admitted(
    stored: Stored, changes: list[Change], now_s: float, *, costs: Costs | None
) -> list[Change]:
    """The changes with what the policies say that will hold once they are stored."""
    policies = policies_of(stored, changes)
    return judged(changes, policies, now_s, costs=costs) if policies else changes


def policies_of(stored: Stored, changes: Sequence[Change]) -> list[Policy]:
    """Those that hold once the changes are stored, by name."""
    rows = {it.name: it for it in stored.resources.living(POLICY)}
    for change in changes:
        if change.after.kind == POLICY:
            rows[change.after.name] = change.after
    living = (row for row in rows.values() if row.deleted_at_s is None)
    return sorted((policy_of(row) for row in living), key=lambda it: it.name)


def standing(stored: Stored, now_s: float) -> str:
    """A digest of the policies that are stored, and of the day, for exceptions end with one: while
    it is the same, what was judged needs no other look. Empty where there are none.
    """
    rows = sorted((it.name, it.spec) for it in stored.resources.living(POLICY))
    day = datetime.fromtimestamp(now_s, UTC).date().isoformat()
    return sha256(canonical_json([day, *rows]).encode()).hexdigest() if rows else ""


def policy_of(row: Resource) -> Policy:
    try:
        spec = parse_spec(POLICY, row.spec)
    except ValidationError:
        return Policy(row.name, None)
    assert isinstance(spec, PolicySpec)
    return Policy(row.name, spec)


def judged(
    changes: Sequence[Change],
    policies: Sequence[Policy],
    now_s: float,
    *,
    costs: Costs | None,
) -> list[Change]:
    """The changes with what each policy says of them. costs None: nobody has reckoned them yet, and
    rules about them say nothing; they are asked again.
    """
    if not policies:
        return list(changes)
    return [
        replace(it, verdicts=tuple(verdicts(it, policies, now_s, costs=costs)))
        if _is_another(it)
        else it
        for it in changes
    ]


def _is_another(change: Change) -> bool:
    """Whether a person makes an object of it that was not so before; what goes, and what only works
    anew because of another one, is not looked at.
    """
    before, after = change.before, change.after
    if change.outcome == CREATED:
        return True
    if change.outcome != CONFIGURED or before is None:
        return False
    return (
        before.spec != after.spec
        or before.labels != after.labels
        or before.annotations.get(EXEMPT) != after.annotations.get(EXEMPT)
    )


def verdicts(
    change: Change, policies: Sequence[Policy], now_s: float, *, costs: Costs | None
) -> Iterator[Verdict]:
    """Of one object, also of one that stays as it is, and of what it makes if it is a schedule."""
    selected = [it for it in policies if it.selects(change.after)]
    if selected:
        yield from _verdicts(change, selected, now_s, costs)
    inner = _made_by(change)
    if inner is not None:
        selected = [it for it in policies if it.selects(inner.after)]
        yield from _verdicts(inner, selected, now_s, None)


def _verdicts(
    change: Change, policies: Sequence[Policy], now_s: float, costs: Costs | None
) -> Iterator[Verdict]:
    try:
        exemptions, unreadable = exemptions_of(change.after.annotations), ""
    except ValueError as error:
        exemptions, unreadable = {}, str(error)
    data = Data(_values(change, costs))
    for policy in policies:
        if policy.spec is None:
            yield Verdict(policy.name, "this version of fleetctl cannot read it", deny=True)
            continue
        found = [it for rule in policy.spec.rules if (it := _ruled(policy.name, rule, data, costs))]
        if any(it.deny for it in found) and unreadable:
            found.append(Verdict(policy.name, f"annotation {EXEMPT}: {unreadable}", deny=True))
        yield from _but_for(exemptions.get(policy.name), policy.spec, found, now_s)


def _but_for(
    exemption: Exemption | None, spec: PolicySpec, found: Sequence[Verdict], now_s: float
) -> Iterator[Verdict]:
    """What stands in spite of an exception. One that has ended is named where it would help."""
    if exemption is None or not found:
        yield from found
        return
    why = ""
    if not spec.exemptions.allowed:
        why = "this policy has no exceptions"
    elif exemption.over(now_s):
        why = f"its exception ended on {exemption.day.isoformat()}"
    elif exemption.too_far(now_s, max_days=spec.exemptions.max_days):
        why = f"its exception may end {spec.exemptions.max_days} days from now at the latest"
    for it in found:
        if why:
            yield replace(it, message=f"{it.message} ({why})")
        else:
            yield replace(it, deny=False, exempt=exemption.sentence)


def _ruled(policy: str, rule: PolicyRule, data: Data, costs: Costs | None) -> Verdict | None:
    """None where it holds, and of a rule about costs that are not known yet."""
    deny = rule.action == "Deny"
    try:
        found = program(rule.expression)
        if costs is None and "cost" in found.names:
            return None
        holds = evaluated(found, data)
        if isinstance(holds, bool):
            return None if holds else Verdict(policy, _message(rule, data), deny=deny)
        raise Wrong(f"it gives {type(holds).__name__}, and must give true or false")
    except Wrong as error:
        hint = f"; {error.hint}" if error.hint else ""
        return Verdict(policy, f"`{rule.expression}` cannot be told: {error}{hint}", deny=deny)
    except Refused as error:
        return Verdict(policy, f"{error}; {error.hint}", deny=deny)


def _message(rule: PolicyRule, data: Data) -> str:
    if rule.message_expression is not None:
        try:
            text = evaluated(program(rule.message_expression), data)
        except Wrong:
            text = None
        if isinstance(text, str) and text.strip():
            return " ".join(text.split())[:TEXT_CHARS_MAX]
    return rule.message or f"`{rule.expression}` does not hold"


def _values(change: Change, costs: Costs | None) -> dict[str, Any]:
    """The variables of an expression; see docs/how-to/policies.md, which lists them."""
    return {
        "object": _object(change.after),
        "old": None if change.before is None else _object(change.before),
        "namespace": change.after.namespace,
        "plan": _plan(change),
        "cost": _cost(None if costs is None else costs.get(change.key, FREE)),
    }


def _object(row: Resource) -> dict[str, Any]:
    """As a manifest, with the defaults of what it leaves out."""
    try:
        spec = parse_spec(row.kind, row.spec).model_dump(
            mode="json", by_alias=True, exclude_none=True
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


def _plan(change: Change) -> dict[str, Any]:
    """What a side does not have is null; so are unknown units."""
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


def _cost(cost: Estimate | None) -> dict[str, Any]:
    """usd: what it may cost at the most; where nobody can tell, `known` is false and it is 0."""
    if cost is None:
        return {"known": False, "usd": 0.0, "expected": None}
    most_usd = cost.high_usd
    return {"known": most_usd is not None, "usd": most_usd or 0.0, "expected": cost.expected_usd}


def _made_by(change: Change) -> Change | None:
    """Of a kind that makes others: the change that one of those would be."""
    row = change.after
    if not KINDS[row.kind].starts:
        return None
    template = json.loads(row.spec).get("template", {})
    if "kind" not in template:
        return None  # a Source: what it keeps is looked at as it comes
    metadata = template.get("metadata", {})
    made = replace(
        row,
        kind=template["kind"],
        spec=json.dumps(template["spec"]),
        labels=metadata.get("labels", {}),
        annotations={**metadata.get("annotations", {})},
    )
    return Change(CREATED, None, made)
