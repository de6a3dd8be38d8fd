"""A review as `-o json` prints it: for programs, and complete."""

from __future__ import annotations

from fleetctl.apply.cost.document import cost_of, field_of
from fleetctl.apply.review.repository import GitCommit
from fleetctl.apply.review.reruns import UnitChanges
from fleetctl.apply.review.review import Review, ReviewedObject, Risk

FORM = "fleetctl.dev/review/v1alpha1"


def render_review(found: Review) -> dict[str, object]:
    """Returns the review; money in USD; null where unknown."""
    bill = found.bill
    return {
        "form": FORM,
        "from": _render_commit(found.before),
        "to": _render_commit(found.after),
        "changes": bool(found.objects),
        "objects": [_render_object(it) for it in found.objects],
        "unchanged": found.unchanged,
        "cost": {
            "before": cost_of(bill.before) if bill.known_before else None,
            "after": cost_of(bill.after),
            "difference": bill.difference,
            "mostDifference": bill.most_difference,
        },
        "risks": [_render_risk(it) for it in found.risks],
        "budgets": list(found.budgets),
        "failed": list(found.failed),
        "prices": list(found.prices),
        "live": found.live,
    }


def _render_commit(commit: GitCommit) -> dict[str, object]:
    return {"revision": commit.said, "commit": commit.digits}


def _render_object(it: ReviewedObject) -> dict[str, object]:
    return {
        "object": it.key,
        "action": it.turn.value,
        "fields": [field_of(field) for field in it.fields],
        "notes": list(it.notes),
        **({} if it.units is None else {"unit": it.unit, "units": _render_units(it.units)}),
        "cost": {
            "before": None if it.before is None else cost_of(it.before),
            "after": None if it.after is None else cost_of(it.after),
        },
        **({"standing": it.standing} if it.standing else {}),
    }


def _render_units(units: UnitChanges) -> dict[str, object]:
    return {"kept": units.kept, "again": units.again, "new": units.new, "gone": units.gone}


def _render_risk(risk: Risk) -> dict[str, object]:
    return {"risk": risk.sort.value, "object": risk.key, "message": risk.sentence}
