"""What the controller says and notes of costs when it takes an apply: the planner's own figures.

Called in the controller, in a thread, through apply/forecast.py. Reads the store as `plan` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fleetctl.apply.cost.offers import market_of
from fleetctl.apply.cost.plan import report
from fleetctl.apply.cost.report import ObjectPlan, Place, Verb, Work
from fleetctl.apply.cost.warm import Standing
from fleetctl.apply.cost.words import figure, span, stands
from fleetctl.apply.forecast import Forecast
from fleetctl.apply.options import Order
from fleetctl.apply.propose import propose
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.money.estimate import Estimate
from fleetctl.manifest import Manifest
from fleetctl.providers.base import Backend
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.stores.read.read_only import open_readonly

NOTHING = Estimate(None, 0.0, None)


def forecast(
    home: Path, providers: Mapping[str, Backend], manifests: Sequence[Manifest], order: Order
) -> dict[str, Forecast]:
    """By key, of all that does work and changes. Raises as the apply itself would."""
    now_s = SystemClock().now_s()
    with open_readonly(home) as stored:
        changes = propose(stored, manifests, order, now_s)
        found = report(stored, changes, market_of(stored, changes, providers), now_s)
    worked = {it.change.key: _forecast(it, it.work) for it in found.objects if it.work is not None}
    stood = {it.change.key: _standing(it.standing) for it in found.objects if it.standing}
    return worked | stood


def _standing(it: Standing) -> Forecast:
    """Of a Function: no sum bounds what goes on as long as it exists, so none is noted."""
    budgets = "".join(f"   {cap.short}" for cap in it.caps)
    return Forecast(NOTHING, (f"cost       {stands(it)}{budgets}",))


def _forecast(it: ObjectPlan, work: Work) -> Forecast:
    total = work.total
    estimate = Estimate(total.expected, total.low, total.high)
    told = it.verb is Verb.CREATE and not all(map(_plain, work.places))
    return Forecast(estimate, tuple(_lines(work)) if told else ())


def _plain(place: Place) -> bool:
    """Here, and for nothing: what one expects where nothing else is said."""
    return place.judged.provider == DEFAULT_PROVIDER and place.judged.usd_per_s == 0.0


def _lines(work: Work) -> Iterator[str]:
    yield f"placement  {_placement(work)}"
    caps = "".join(f"   {cap.short}" for cap in work.caps)
    yield f"estimate   {_estimate(work)}{caps}"


def _placement(work: Work) -> str:
    """`modal L4:1 (36 slots), then local (4); not daytona: no L4 there`. Stages share places."""
    by_name = {place.judged.provider: place for place in reversed(work.places)}
    places = [by_name[name] for name in dict.fromkeys(it.judged.provider for it in work.places)]
    fitting = [it for it in places if it.judged.fits]
    said = ", then ".join(_slots(it, work.gpu) for it in fitting) or "nowhere"
    lost = [f"not {it.judged.provider}: {it.judged.why}" for it in places if not it.judged.fits]
    return "; ".join((said, *lost))


def _slots(place: Place, gpu: str) -> str:
    name = f"{place.judged.provider}{' ' if gpu else ''}{gpu}"
    many = "slot" if place.slots == 1 else "slots"
    return f"{name} ({place.slots:,} {many})" if place.slots else name


def _estimate(work: Work) -> str:
    """`$6.10  (range $4.80-$8.90; from 212 past tasks)`."""
    basis = [span(work.now), work.lasts.basis if work.lasts is not None else ""]
    said = "; ".join(text for text in basis if text)
    if not said or work.now.high == 0.0:
        return figure(work.now)
    return f"{figure(work.now)}  ({said})"
