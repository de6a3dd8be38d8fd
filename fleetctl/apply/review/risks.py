"""Picks the parts of a review that a reader should see first. Called by compare.py; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from fleetctl.apply.change import Change
from fleetctl.apply.consent import deletes_data
from fleetctl.apply.cost.plan_report import PlanReport
from fleetctl.apply.policies.judge import POLICY
from fleetctl.apply.review.budgets import sum_budgets
from fleetctl.apply.review.live import LiveState
from fleetctl.apply.review.review import Review, ReviewAction, ReviewedObject, Risk, RiskType
from fleetctl.common.text import count_noun
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import Rollout
from fleetctl.specs.kinds.registry import KINDS


def risks_of(
    review: Review,
    rows: Mapping[str, Resource],
    priced: tuple[PlanReport, PlanReport],
    live: LiveState | None,
) -> list[Risk]:
    """Returns the risks. rows: the objects as they will be, or deleted ones as they are. priced:
    both sides; a risk that was there before is no risk of this change.
    """
    before, after = priced
    found = [risk for it in review.objects for risk in _list_object_risks(it, rows[it.key], live)]
    was = sum_budgets(before)
    found += (
        Risk(RiskType.BUDGET, "", it.sentence)
        for it in sum_budgets(after)
        if it.over and it not in was
    )
    unknown = (it.key for it in review.objects if it.after is not None and it.after.high is None)
    found += (Risk(RiskType.UNKNOWN, key, "nothing bounds what it costs") for key in unknown)
    return found


def in_order(risks: Iterable[Risk]) -> list[Risk]:
    """The worst first."""
    order = list(RiskType)
    return sorted(risks, key=lambda it: (order.index(it.sort), it.key, it.sentence))


def of_changes(changes: Iterable[Change]) -> Iterator[Risk]:
    """Yields the verdicts of policies; an exempt object is a warning."""
    for change in changes:
        for it in change.verdicts:
            sort = RiskType.POLICY if it.deny else RiskType.WARNING
            exempt = f" (exempt {it.exempt})" if it.exempt else ""
            yield Risk(sort, change.key, f"policy/{it.policy}: {it.message}{exempt}")


def _list_object_risks(
    it: ReviewedObject,
    row: Resource,
    live: LiveState | None,
) -> Iterator[Risk]:
    gone = it.turn is ReviewAction.DELETED
    if gone and deletes_data(row):
        yield Risk(RiskType.DATA, it.key, "deleting it deletes its data (deletionPolicy is Delete)")
    yield from _list_work_risks(it, row, live)
    if it.units is not None and it.units.again:
        done = count_noun(it.units.again, it.unit)
        again = f"runs again: {done} done under the old content"
        yield Risk(RiskType.AGAIN, it.key, again, count=it.units.again)
    if row.kind == POLICY and it.turn is not ReviewAction.CREATED:
        word = "is deleted" if gone else "changes"
        yield Risk(RiskType.WARNING, it.key, f"this policy itself {word}")
    if gone:
        yield Risk(RiskType.DELETES, it.key, "leaves the repository")


def _list_work_risks(
    it: ReviewedObject,
    row: Resource,
    live: LiveState | None,
) -> Iterator[Risk]:
    """Yields running work that would end, from a store; without one, work that would end if it runs
    then."""
    if live is not None:
        if count := live.stopped.get(it.key):
            yield Risk(
                RiskType.WORK, it.key, f"{count_noun(count, f'running {it.unit}')} would be stopped"
            )
        return
    if not KINDS[row.kind].runs or it.turn is ReviewAction.CREATED or it.units is None:
        return
    if it.turn is ReviewAction.DELETED:
        yield Risk(RiskType.WORK, it.key, "its running work would be stopped")
        return
    finishes = json.loads(row.spec).get("rollout") == Rollout.FINISH_RUNNING
    unknown = it.units.again is None
    if it.units.gone or unknown or (it.units.again and not finishes):
        yield Risk(RiskType.WORK, it.key, "its running work under the old content would be stopped")
