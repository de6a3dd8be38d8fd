"""Phrases of a review that its screen and its comment share. Pure."""

from __future__ import annotations

from typing import NamedTuple

from fleetctl.apply.review.review import CostComparison, Review, ReviewAction, ReviewedObject
from fleetctl.common.text import and_more, count_noun, format_money

KEYS_SHOWN_MAX = 20
KEYS_ON_SCREEN_MAX = 3


class RiskGroup(NamedTuple):
    """Risks that share a sentence. key: of their objects, as a list, or ""."""

    sort: str
    keys: tuple[str, ...]
    sentence: str

    @property
    def key(self) -> str:
        return and_more(list(self.keys), most=KEYS_ON_SCREEN_MAX)


def group_risks(found: Review) -> list[RiskGroup]:
    """Returns the risks, in order; risks with the same sentence together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for risk in found.risks:
        groups.setdefault((risk.sort.value, risk.sentence), []).append(risk.key)
    return [
        RiskGroup(sort, tuple(key for key in keys if key), sentence)
        for (sort, sentence), keys in groups.items()
    ]


def format_cost_change(bill: CostComparison) -> str:
    """`+$12.40`, `upper bound -$3.00`, or unknown."""
    changed = bill.difference
    if changed is None:
        return "cost difference unknown"
    if not round(changed, 2):
        return "cost unchanged"
    bound = "upper bound " if bill.bounds else ""
    return f"{bound}{'+' if changed > 0 else '-'}{format_money(abs(changed))}"


def format_units(it: ReviewedObject) -> str:
    """`12 to run again, 4 new, 96 kept`."""
    if it.units is None or it.turn is ReviewAction.DELETED:
        return ""
    if it.units.kept is None:
        if it.total is None:
            return f"{it.unit}s unknown"
        return count_noun(it.total, it.unit)
    counts = (("to run again", it.units.again), ("new", it.units.new), ("gone", it.units.gone))
    parts = [f"{count:,} {word}" for word, count in counts if count]
    parts += [f"{it.units.kept:,} kept"] if it.units.kept else []
    return ", ".join(parts)
