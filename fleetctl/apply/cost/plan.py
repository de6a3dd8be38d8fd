"""From what an apply would change to the report that a person reads before it. Called by the CLI.

Decides nothing itself: changes come from propose.py, places from placement.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fleetctl.apply.change import CONFIGURED, CREATED, PRUNED, UNCHANGED, Change
from fleetctl.apply.cost.caps import caps_of
from fleetctl.apply.cost.estimate import FREE, Cost, Lasting, cost, whole_s
from fleetctl.apply.cost.lifetimes import warning
from fleetctl.apply.cost.offers import Market
from fleetctl.apply.cost.parts import Part, parts_of
from fleetctl.apply.cost.report import ObjectPlan, Report, Verb, Work
from fleetctl.apply.cost.warm import warm_cost
from fleetctl.apply.draft import winner_note
from fleetctl.controllers.model import Resource
from fleetctl.controllers.reuse.impact import NOT_AGAIN, Impact, spent_usd
from fleetctl.specs.content import asked_in
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.read.read_only import Snapshot


def report(stored: Snapshot, changes: Sequence[Change], market: Market, now_s: float) -> Report:
    """What the changes do, where and for how much."""
    objects = [_object(stored, change, market, now_s) for change in changes]
    works = [it.work for it in objects if it.work is not None]
    places = [place for it in works for place in it.places if place.judged.fits]
    used = {f"{place.judged.provider}: {place.source}" for place in places}
    used |= {it.warm.source for it in objects if it.warm is not None}
    return Report(
        objects=tuple(objects),
        now=_sum(it.now for it in works),
        total=_sum(it.total for it in works),
        sources=tuple(sorted(used)),
    )


def _object(stored: Snapshot, change: Change, market: Market, now_s: float) -> ObjectPlan:
    verb, found = _verb(change), change.impact
    work = None
    if found is not None and verb is not Verb.KEEP:
        work = _work(stored, change, found, market, now_s)
    stays = verb in (Verb.CREATE, Verb.UPDATE)
    return ObjectPlan(
        verb,
        change,
        _about(change),
        work,
        tuple(_notes(change, verb, work)),
        warm_cost(change.after, market) if stays else None,
    )


def _verb(change: Change) -> Verb:
    if change.outcome == CONFIGURED and change.impact is not None and change.impact.replaced:
        return Verb.REPLACE
    return {
        CREATED: Verb.CREATE,
        CONFIGURED: Verb.UPDATE,
        UNCHANGED: Verb.KEEP,
        PRUNED: Verb.DESTROY,
    }[change.outcome]


def _about(change: Change) -> str:
    """What a volume, a function or a secret is, in a phrase."""
    if KINDS[change.after.kind].runs:
        return ""
    spec = json.loads(change.after.spec)
    names = ("provider", "size", "deletionPolicy", "fromEnv")
    parts = [spec[name] for name in names if name in spec]
    message = ", ".join(it if isinstance(it, str) else json.dumps(it) for it in parts)
    return "; ".join(text for text in (message, change.note) if text)


def _notes(change: Change, verb: Verb, work: Work | None) -> Iterator[str]:
    if verb is Verb.DESTROY:
        if change.after.kind == "Volume":
            doomed = json.loads(change.after.spec).get("deletionPolicy") == "Delete"
            yield "its data is deleted" if doomed else "its data is kept (deletionPolicy Retain)"
        return
    if json.loads(change.after.spec).get("suspend"):
        yield "spec.suspend is true: nothing starts until it is resumed"
    if verb is Verb.CREATE and (note := winner_note(change.after)):
        yield note
    if work is not None and work.to_run != 0 and (asked := _asked(change.after)):
        yield f"calls of {asked} are charged as they are made, and are not in this bill"
    if work is not None and not _goes_on(change):
        text = warning(work.limits, long=KINDS[change.after.kind].lasting)
        yield from (text,) if text else ()


def _asked(resource: Resource) -> str:
    """The endpoints that its work asks, or ""."""
    return ", ".join(f"endpoint/{name}" for name in asked_in(json.loads(resource.spec)))


def _goes_on(change: Change) -> bool:
    """What ends before it is done goes on from where it was."""
    checkpoint = json.loads(change.after.spec).get("checkpoint")
    return checkpoint is not None and checkpoint.get("resume") != "None"


def _work(stored: Snapshot, change: Change, found: Impact, market: Market, now_s: float) -> Work:
    unit = KINDS[change.after.kind].unit
    goes = change.outcome == PRUNED
    parts = () if goes else parts_of(stored, change.after, found, unit, market)
    now = _sum(part.cost for part in parts)
    live = (*found.going_on, *found.replaced, *found.cancelled)
    ends = live if goes else (*found.replaced, *found.cancelled)
    return Work(
        unit=unit,
        to_run=0 if goes else found.to_run,
        kept=0 if goes else found.kept,
        cached=0 if goes else found.cached,
        going_on=0 if goes else len(found.going_on),
        replaced=0 if goes else len(found.replaced),
        cancelled=len(live) if goes else len(found.cancelled),
        failed=found.failed,
        gpu=parts[0].gpu if parts else "",
        lasts=_least_known(parts),
        places=tuple(place for part in parts for place in part.places),
        now=now,
        total=_total(found, parts, now, now_s),
        spent_usd=found.history.spent_usd,
        unpriced=found.history.unpriced,
        lost_usd=spent_usd(ends, now_s),
        first_s=parts[0].lasts.middle_s if parts else None,
        whole_s=_whole_s(parts),
        rate_usd_per_s=_rate_usd_per_s(parts),
        again=NOT_AGAIN if goes else found.again,
        limits=tuple(limit for part in parts for limit in part.limits),
        caps=()
        if goes
        else caps_of(
            change.after,
            market.objects.values(),
            # Nobody knows how much it will ask.
            Cost(now.low, None, None) if _asked(change.after) else now,
            spent_usd=found.history.charged_usd,
        ),
    )


def _total(found: Impact, parts: Sequence[Part], now: Cost, now_s: float) -> Cost:
    """With what ended runs cost, what live ones have cost, and what is left of those."""
    history = found.history
    total = Cost(history.spent_usd, history.spent_usd, history.spent_usd) + now
    for run in found.going_on:
        if parts:
            total += cost(1, parts[0].lasts, run.usd_per_s)
        elif (spent := spent_usd((run,), now_s)) is not None:
            total += Cost(spent, spent, None)
    unknown = bool(history.unpriced)
    return replace(total, expected=None, high=None) if unknown else total


def _least_known(parts: Sequence[Part]) -> Lasting | None:
    """What the time of the whole hangs on: a part that nothing bounds, else the first."""
    unbounded = (it for it in parts if it.lasts.middle_s is None and it.lasts.most_s is None)
    part = next(unbounded, parts[0] if parts else None)
    return part.lasts if part is not None else None


def _whole_s(parts: Sequence[Part]) -> float | None:
    """Parts run one after the other: they are the stages of one run."""
    spans = [whole_s(part.units, part.at_once, part.lasts) for part in parts]
    known = [span for span in spans if span is not None]
    return sum(known) if spans and len(known) == len(spans) else None


def _rate_usd_per_s(parts: Sequence[Part]) -> float | None:
    """With as many at once as there may be; None when a price is not known."""
    rates = [it.usd_per_s for it in parts]
    known = [rate for rate in rates if rate is not None]
    return max(known, default=0.0) if len(known) == len(rates) else None


def _sum(costs: Iterable[Cost]) -> Cost:
    total = FREE
    for one in costs:
        total += one
    return total
