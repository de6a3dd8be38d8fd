"""A review as `-o json` prints it: for programs, and complete."""

from __future__ import annotations

from fleetctl.apply.cost.document import cost_of, field_of
from fleetctl.apply.review.again import Units
from fleetctl.apply.review.repository import Commit
from fleetctl.apply.review.review import Review, Reviewed, Risk

FORM = "fleetctl.dev/review/v1alpha1"


def document(found: Review) -> dict[str, object]:
    """Money in USD; null where unknown."""
    bill = found.bill
    return {
        "form": FORM,
        "from": _commit(found.before),
        "to": _commit(found.after),
        "changes": bool(found.objects),
        "objects": [_object(it) for it in found.objects],
        "unchanged": found.unchanged,
        "cost": {
            "before": cost_of(bill.before) if bill.known_before else None,
            "after": cost_of(bill.after),
            "difference": bill.difference,
            "mostDifference": bill.most_difference,
        },
        "risks": [_risk(it) for it in found.risks],
        "budgets": list(found.budgets),
        "failed": list(found.failed),
        "prices": list(found.prices),
        "live": found.live,
    }


def _commit(commit: Commit) -> dict[str, object]:
    return {"revision": commit.said, "commit": commit.digits}


def _object(it: Reviewed) -> dict[str, object]:
    return {
        "object": it.key,
        "action": it.turn.value,
        "fields": [field_of(field) for field in it.fields],
        "notes": list(it.notes),
        **({} if it.units is None else {"unit": it.unit, "units": _units(it.units)}),
        "cost": {
            "before": None if it.before is None else cost_of(it.before),
            "after": None if it.after is None else cost_of(it.after),
        },
        **({"standing": it.standing} if it.standing else {}),
    }


def _units(units: Units) -> dict[str, object]:
    return {"kept": units.kept, "again": units.again, "new": units.new, "gone": units.gone}


def _risk(risk: Risk) -> dict[str, object]:
    return {"risk": risk.sort.value, "object": risk.key, "message": risk.sentence}
