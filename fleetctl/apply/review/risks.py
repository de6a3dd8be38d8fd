"""What of a review a person should see before all else. Called by compare.py; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from fleetctl.apply.change import Change
from fleetctl.apply.consent import deletes_data
from fleetctl.apply.cost.report import Report
from fleetctl.apply.policies.judge import POLICY
from fleetctl.apply.review.budgets import held
from fleetctl.apply.review.live import Live
from fleetctl.apply.review.review import Review, Reviewed, Risk, Sort, Turn
from fleetctl.common.text import plural
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import Rollout
from fleetctl.specs.kinds.registry import KINDS


def risks_of(
    review: Review,
    rows: Mapping[str, Resource],
    priced: tuple[Report, Report],
    live: Live | None,
) -> list[Risk]:
    """rows: the objects as they will be, or as those that go are. priced: both sides; what is as it
    was is no risk of this change.
    """
    before, after = priced
    found = [risk for it in review.objects for risk in _of(it, rows[it.key], live)]
    was = held(before)
    found += (Risk(Sort.BUDGET, "", it.sentence) for it in held(after) if it.over and it not in was)
    unknown = (it.key for it in review.objects if it.after is not None and it.after.high is None)
    found += (Risk(Sort.UNKNOWN, key, "nothing bounds what it costs") for key in unknown)
    return found


def in_order(risks: Iterable[Risk]) -> list[Risk]:
    """The worst first."""
    order = list(Sort)
    return sorted(risks, key=lambda it: (order.index(it.sort), it.key, it.sentence))


def of_changes(changes: Iterable[Change]) -> Iterator[Risk]:
    """What policies say of them; what is exempt is a warning."""
    for change in changes:
        for it in change.verdicts:
            sort = Sort.POLICY if it.deny else Sort.WARNING
            exempt = f" (exempt {it.exempt})" if it.exempt else ""
            yield Risk(sort, change.key, f"policy/{it.policy}: {it.message}{exempt}")


def _of(it: Reviewed, row: Resource, live: Live | None) -> Iterator[Risk]:
    gone = it.turn is Turn.DELETED
    if gone and deletes_data(row):
        yield Risk(Sort.DATA, it.key, "deleting it deletes its data (deletionPolicy is Delete)")
    yield from _work(it, row, live)
    if it.units is not None and it.units.again:
        done = plural(it.units.again, it.unit)
        again = f"runs again: {done} done under the old content"
        yield Risk(Sort.AGAIN, it.key, again, count=it.units.again)
    if row.kind == POLICY and it.turn is not Turn.CREATED:
        word = "is taken away" if gone else "changes"
        yield Risk(Sort.WARNING, it.key, f"this policy {word} itself")
    if gone:
        yield Risk(Sort.DELETES, it.key, "leaves the repository")


def _work(it: Reviewed, row: Resource, live: Live | None) -> Iterator[Risk]:
    """Known of a store; without one, what would end if it runs then."""
    if live is not None:
        if count := live.stopped.get(it.key):
            yield Risk(Sort.WORK, it.key, f"{plural(count, f'running {it.unit}')} would be stopped")
        return
    if not KINDS[row.kind].runs or it.turn is Turn.CREATED or it.units is None:
        return
    if it.turn is Turn.DELETED:
        yield Risk(Sort.WORK, it.key, "what runs of it would be stopped")
        return
    finishes = json.loads(row.spec).get("rollout") == Rollout.FINISH_RUNNING
    unknown = it.units.again is None
    if it.units.gone or unknown or (it.units.again and not finishes):
        yield Risk(Sort.WORK, it.key, "what runs of it under the old content would be stopped")
