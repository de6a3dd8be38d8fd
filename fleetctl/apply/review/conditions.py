"""`--fail-on cost>50,destroys-data`: what a person does not want to see merged, or applied. Pure.

Called by the CLI with what is at stake: of a review, or of the plan of an apply.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fleetctl.apply.change import PRUNED, Change
from fleetctl.apply.consent import deletes_data
from fleetctl.apply.cost.report import ObjectPlan, Report
from fleetctl.apply.review.review import Review, Risk, Sort
from fleetctl.apply.review.risks import of_changes
from fleetctl.common.errors import UsageError
from fleetctl.common.text import and_more, did_you_mean, plural, usd

COST, INCREASE, CHANGES = "cost", "cost-increase", "changes"
KEYS_SHOWN_MAX = 3
# By name: what it means, and whether a number may or must follow.
MEANINGS: dict[str, str] = {
    COST: "all of it may cost more than so many USD, or nothing bounds it",
    INCREASE: "it may cost so many USD more than before, or nobody can tell",
    Sort.UNKNOWN.value: "nothing bounds what something costs",
    Sort.BUDGET.value: "the work under a budget may cost more than that",
    Sort.DATA.value: "a volume goes with its data",
    Sort.WORK.value: "work that runs would be stopped, as far as can be told",
    Sort.AGAIN.value: "finished work would run again; `reruns>10`: more than so many units",
    Sort.DELETES.value: "objects are deleted; `deletes>3`: more than so many",
    Sort.POLICY.value: "a policy denies something",
    Sort.WARNING.value: "a policy warns of something",
    CHANGES: "anything changes at all",
}
_NEEDS_NUMBER = (COST, INCREASE)
_MAY_COUNT = (Sort.AGAIN.value, Sort.DELETES.value)
_TERM = re.compile(r"(?P<name>[^<>=\s]*)\s*(?:(?P<sign>[<>=]+)\s*(?P<number>.*))?")
_NUMBER = re.compile(r"\$?(?P<number>\d{1,9}(?:\.\d{1,6})?)(?:USD)?")


@dataclass(frozen=True, slots=True)
class Condition:
    """above: the number that it must go beyond; 0 where a first one is enough."""

    name: str
    above: float = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Stakes:
    """most_usd: None where nothing bounds it, as with increase_usd."""

    most_usd: float | None
    increase_usd: float | None
    changes: bool
    risks: tuple[Risk, ...]


def conditions_of(texts: Iterable[str]) -> list[Condition]:
    """Of comma-separated lists. Raises UsageError for what is not one."""
    terms = [term.strip() for text in texts for term in text.split(",")]
    return [_condition(term) for term in terms if term]


def _condition(term: str) -> Condition:
    match = _TERM.fullmatch(term)
    name = match["name"] if match is not None else term
    if match is None or name not in MEANINGS:
        raise UsageError(
            f"`--fail-on {term[:80]}`: there is no condition `{name[:80]}`",
            hint=did_you_mean(name, [*MEANINGS]) or f"there are {', '.join(MEANINGS)}",
        )
    if match["sign"] is None:
        if name in _NEEDS_NUMBER:
            raise UsageError(f"`--fail-on {name}` needs an amount in USD", hint=f"{name}>50")
        return Condition(name, text=term)
    number = _NUMBER.fullmatch(match["number"])
    if name not in (*_NEEDS_NUMBER, *_MAY_COUNT):
        raise UsageError(f"`--fail-on {term[:80]}`: {name} takes no number", hint=name)
    if match["sign"] != ">" or number is None:
        raise UsageError(f"`--fail-on {term[:80]}` is not NAME>NUMBER", hint=f"{name}>50")
    return Condition(name, float(number["number"]), term)


def holding(conditions: Iterable[Condition], stakes: Stakes) -> list[str]:
    """A sentence for each that holds."""
    found = (f"{it.text}: {why}" for it in conditions if (why := _why(it, stakes)))
    return list(dict.fromkeys(found))


def _why(it: Condition, stakes: Stakes) -> str:
    if it.name == CHANGES:
        return "something changes" if stakes.changes else ""
    if it.name == COST:
        return _beyond(stakes.most_usd, it.above, "it may cost", "nothing bounds what it costs")
    if it.name == INCREASE:
        unknown = "nobody can tell how much more it may cost"
        return _beyond(stakes.increase_usd, it.above, "it may cost more by", unknown)
    risks = [risk for risk in stakes.risks if risk.sort.value == it.name]
    if sum(risk.count for risk in risks) <= it.above:
        return ""
    keys = list(dict.fromkeys(risk.key for risk in risks if risk.key))
    return and_more(keys, most=KEYS_SHOWN_MAX) if keys else risks[0].sentence


def _beyond(found_usd: float | None, above_usd: float, may: str, unknown: str) -> str:
    if found_usd is None:
        return unknown
    return f"{may} {usd(found_usd)}" if found_usd > above_usd else ""


def of_review(found: Review) -> Stakes:
    bill = found.bill
    return Stakes(bill.after.high, bill.most_difference, bool(found.objects), found.risks)


def of_plan(found: Report, changes: Iterable[Change]) -> Stakes:
    """Of one apply: what it costs is what it adds. What stays warm has no bound. changes: its own,
    with what policies say of them.
    """
    warm = any(it.warm is not None for it in found.objects)
    most_usd = None if warm else found.now.high
    risks = [risk for it in found.objects for risk in _of_object(it)]
    risks += of_changes(changes)
    return Stakes(most_usd, most_usd, found.changes, tuple(risks))


def _of_object(it: ObjectPlan) -> Iterator[Risk]:
    change = it.change
    if change.outcome == PRUNED:
        if deletes_data(change.after):
            yield Risk(Sort.DATA, change.key, "deleting it deletes its data")
        yield Risk(Sort.DELETES, change.key, "leaves the set")
    if runs := change.destroyed:
        yield Risk(Sort.WORK, change.key, f"{plural(len(runs), 'running unit')} would be stopped")
    if change.impact is not None and (again := change.impact.again.units):
        yield Risk(Sort.AGAIN, change.key, "runs again", count=again)
    if it.work is None:
        return
    if it.work.now.high is None:
        yield Risk(Sort.UNKNOWN, change.key, "nothing bounds what it costs")
    for cap in it.work.caps:
        left_usd = cap.max_usd - cap.used_usd
        if cap.high_usd is None or cap.high_usd > left_usd:
            yield Risk(Sort.BUDGET, change.key, cap.sentence)
