"""`--fail-on cost>50,destroys-data`: conditions under which the user wants no merge, or no apply.
Pure.

Called by the CLI with the report of an apply or of a comparison.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fleetctl.apply.plan.plan_report import PlanReport, RiskType
from fleetctl.common.errors import UsageError
from fleetctl.common.text import and_more, did_you_mean, format_money

COST = "cost"
INCREASE = "cost-increase"
CHANGES = "changes"
KEYS_SHOWN_MAX = 3
# By name: the meaning, and whether a number may or must follow.
MEANINGS: dict[str, str] = {
    COST: "all of it may cost more than so many USD, or nothing bounds it",
    INCREASE: "it may cost so many USD more than before, or that is not known",
    RiskType.UNKNOWN.value: "nothing bounds what something costs",
    RiskType.BUDGET.value: "the work under a budget may cost more than that",
    RiskType.DATA.value: "a volume goes with its data",
    RiskType.WORK.value: "work that runs would be stopped, as far as is known",
    RiskType.AGAIN.value: "finished work would run again; `reruns>10`: more than so many units",
    RiskType.DELETES.value: "objects are deleted; `deletes>3`: more than so many",
    RiskType.POLICY.value: "a policy denies something",
    RiskType.WARNING.value: "a policy warns of something",
    CHANGES: "anything changes at all",
}
_NEEDS_NUMBER = (COST, INCREASE)
_MAY_COUNT = (RiskType.AGAIN.value, RiskType.DELETES.value)
_TERM = re.compile(r"(?P<name>[^<>=\s]*)\s*(?:(?P<sign>[<>=]+)\s*(?P<number>.*))?")
_NUMBER = re.compile(r"\$?(?P<number>\d{1,9}(?:\.\d{1,6})?)(?:USD)?")


@dataclass(frozen=True, slots=True)
class FailCondition:
    """One condition. above: the number to exceed; 0 where a first one is enough."""

    name: str
    above: float = 0.0
    text: str = ""


def conditions_of(texts: Iterable[str]) -> list[FailCondition]:
    """Reads comma-separated lists. Raises UsageError for an invalid condition."""
    terms = [term.strip() for text in texts for term in text.split(",")]
    return [_parse_condition(term) for term in terms if term]


def _parse_condition(term: str) -> FailCondition:
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
        return FailCondition(name, text=term)
    number = _NUMBER.fullmatch(match["number"])
    if name not in (*_NEEDS_NUMBER, *_MAY_COUNT):
        raise UsageError(f"`--fail-on {term[:80]}`: {name} takes no number", hint=name)
    if match["sign"] != ">" or number is None:
        raise UsageError(f"`--fail-on {term[:80]}` is not NAME>NUMBER", hint=f"{name}>50")
    return FailCondition(name, float(number["number"]), term)


def list_met_conditions(conditions: Iterable[FailCondition], report: PlanReport) -> list[str]:
    """Returns a sentence for each condition that is met."""
    found = (f"{it.text}: {why}" for it in conditions if (why := _explain_condition(it, report)))
    return list(dict.fromkeys(found))


def _explain_condition(it: FailCondition, report: PlanReport) -> str:
    if it.name == CHANGES:
        if report.changes:
            return "something changes"
        return ""
    both = report.comparison
    # Warm containers of an apply have no bound.
    warm = both is None and any(plan.warm is not None for plan in report.objects)
    most_usd = None if warm else report.cost.high
    if it.name == COST:
        return _describe_excess(most_usd, it.above, "it may cost", "nothing bounds what it costs")
    if it.name == INCREASE:
        # The cost of an apply is added cost.
        increase_usd = most_usd if both is None else both.most_difference
        unknown = "it is not known how much more it may cost"
        return _describe_excess(increase_usd, it.above, "it may cost more by", unknown)
    risks = [risk for risk in report.risks if risk.sort.value == it.name]
    if sum(risk.count for risk in risks) <= it.above:
        return ""
    keys = list(dict.fromkeys(risk.key for risk in risks if risk.key))
    if keys:
        return and_more(keys, most=KEYS_SHOWN_MAX)
    return risks[0].sentence


def _describe_excess(
    found_usd: float | None,
    above_usd: float,
    may: str,
    unknown: str,
) -> str:
    if found_usd is None:
        return unknown
    if found_usd > above_usd:
        return f"{may} {format_money(found_usd)}"
    return ""
