"""Units of one object that share a template: how long they last, where they go, what they cost.

Called by plan.py. Most objects are one part; a TrainingRun has one a stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from fleetctl.apply.cost.estimate import FREE, UNKNOWN, Cost, Lasting, cost, lasting, shared_out
from fleetctl.apply.cost.lifetimes import Limit
from fleetctl.apply.cost.offers import Market
from fleetctl.apply.cost.report import Place
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.placement import Capacity, Judgement, Offer, Placement, judge
from fleetctl.controllers.reuse.impact import Impact
from fleetctl.specs.blocks.nodes import ONE, nodes_of
from fleetctl.specs.blocks.resources import Gpu
from fleetctl.specs.blocks.template import Template
from fleetctl.stores.read.read_only import Snapshot


@dataclass(frozen=True, slots=True)
class Part:
    """units None: nobody knows how many. at_once: how many run at the same time, at most."""

    units: int | None
    lasts: Lasting
    places: tuple[Place, ...]
    cost: Cost
    at_once: int
    gpu: str
    limits: tuple[Limit, ...] = ()  # of the places where it fits

    @property
    def usd_per_s(self) -> float | None:
        """Of all that run at the same time, at most; None when a price is not known. Should a place
        fail, all of it may run at another one.
        """
        here = [_rate(it, it.slots) for it in self.places if it.units]
        each = [_rate(it, self._most_at(it)) for it in self.places if it.judged.fits]
        rates = [*here, *each]
        if any(rate is None for rate in rates):
            return None
        return max(sum(it or 0.0 for it in here), *(it or 0.0 for it in each), 0.0)

    def _most_at(self, place: Place) -> int:
        free = place.judged.free
        return self.at_once if free is None else min(self.at_once, free)


def _rate(place: Place, count: int) -> float | None:
    usd_per_s = place.judged.usd_per_s
    return None if usd_per_s is None else usd_per_s * count


def parts_of(
    stored: Snapshot, desired: Resource, found: Impact, unit: str, market: Market
) -> tuple[Part, ...]:
    """One for each template that a unit will start with, first to start first."""
    made = [_part(stored, desired, found, unit, market, group) for group in _groups(found, unit)]
    return tuple(made)


@dataclass(frozen=True, slots=True)
class _Group:
    """name: of its only unit."""

    digest: str
    template: Template
    units: int | None
    name: str = ""


def _groups(found: Impact, kind: str) -> Iterator[_Group]:
    """kind: what a unit is called, and the parameter that names it where it has a name."""
    if found.to_run == 0:
        return
    controller = found.controller
    if controller.template_hash:
        index = _some_index(found)
        # Of a search that works out its points the next one may not be known yet.
        at = controller.first if index is None else index
        known = controller.content(at) if index is None else controller.template(at)
        yield _Group(controller.template_hash, known, found.to_run)
        return
    running = {run.index for run in found.going_on}
    for index in controller.indexes():
        unit = controller.unit(index)
        if unit is not None and not found.history.is_done(index) and index not in running:
            name = str(unit.params.get(kind, ""))
            yield _Group(unit.template_hash, controller.template(index), 1, name)


def _some_index(found: Impact) -> int | None:
    """Any unit that will start: they share their template."""
    if found.replaced:
        return found.replaced[0].index
    fresh = next(found.controller.next(found.history), None)
    if fresh is not None:
        return fresh.index
    waiting = (it for it in found.history.unfinished if found.controller.unit(it) is not None)
    return next(islice(waiting, 1), None)


def _part(
    stored: Snapshot, desired: Resource, found: Impact, unit: str, market: Market, group: _Group
) -> Part:
    policy, namespace = found.controller.policy, desired.namespace
    placement = found.controller.placement(group.digest)
    offers = market.offers(placement, group.template, namespace)
    judged, capacities = _judged(placement, offers, market, found)
    limits = tuple(market.limits([it.provider for it in judged if it.fits], group.template))
    quanta_s = (market.quantum_s(it.provider) for it in judged)
    after_s = policy.grace_s + max(quanta_s, default=0.0)
    lasts = _bounded(_lasting(stored, desired.uid, found, unit, group, after_s=after_s), limits)
    winner = next((it for it in judged if it.won), None)
    at_once = policy.parallelism
    if at_once is None:
        at_once = sum(market.parallelism(it.provider) for it in judged)
    if group.units is not None:
        at_once = min(at_once, group.units)
    slots = _slots(judged, at_once, capacities)
    shares = shared_out(group.units or 0, slots)
    whole = market.whole(group.template, namespace)
    wanted = whole.resources.gpu if whole is not None else None
    gpu = _words(wanted) if wanted else ""
    places = tuple(
        _place(it, group, lasts, market, namespace=namespace, units=units, slots=room, gpu=gpu)
        for it, room, units in zip(judged, slots, shares, strict=True)
    )
    return Part(
        units=group.units,
        lasts=lasts,
        places=places,
        cost=_bound(
            _total([it.cost for it in places], known=winner is not None and bool(group.units)),
            [cost(group.units, lasts, it.usd_per_s) for it in judged if it.fits],
        ),
        at_once=min(at_once, sum(slots)),
        gpu=gpu,
        limits=limits,
    )


def _judged(
    placement: Placement, offers: Mapping[str, Offer], market: Market, found: Impact
) -> tuple[Sequence[Judgement], Mapping[str, Capacity]]:
    """Where it goes now. With room nowhere, where it goes when what is there has ended: it runs,
    and costs, all the same.
    """
    now = market.free_now((*found.replaced, *found.cancelled))
    judged = judge(placement, offers, now)
    if any(it.won for it in judged):
        return judged, now
    whole = market.capacities()
    full = {it.provider: it.why for it in judged if it.fits}
    later = judge(placement, offers, whole)
    if not any(it.won for it in later):
        return judged, now
    return [
        replace(it, why=f"{it.why}; full now: {full[it.provider]}") if it.fits else it
        for it in later
    ], whole


def _slots(
    judged: Sequence[Judgement], at_once: int, capacities: Mapping[str, Capacity]
) -> list[int]:
    """How many run at each place at the same time, best first, when all do."""
    slots: list[int] = []
    left = at_once
    for it in judged:
        capacity = capacities.get(it.provider, Capacity())
        room = [left] if capacity.free is None else [left, capacity.free]
        if capacity.spare_usd_per_s is not None:
            paid = capacity.spare_usd_per_s / it.usd_per_s if it.usd_per_s else left
            room.append(int(paid + 1e-9) if it.usd_per_s is not None else 0)
        slots.append(min(room) if it.fits else 0)
        left -= slots[-1]
    return slots


def _place(
    judgement: Judgement,
    group: _Group,
    lasts: Lasting,
    market: Market,
    *,
    namespace: str,
    units: int,
    slots: int,
    gpu: str,
) -> Place:
    least = market.least_usd_per_s(judgement.provider, group.template, namespace)
    nodes = nodes_of(group.template)
    return Place(
        judged=judgement,
        units=units,
        cost=cost(units, lasts, judgement.usd_per_s, least_usd_per_s=least),
        slots=slots,
        source=market.source(judgement.provider),
        least_usd_per_s=least,
        name=group.name,
        gpu=gpu,
        nodes="" if nodes == ONE else str(nodes),
    )


def _total(costs: Sequence[Cost], *, known: bool) -> Cost:
    """known: there is a place, and it is known how many units there are."""
    total = FREE
    for one in costs:
        total += one
    return total if known else UNKNOWN


def _bound(total: Cost, anywhere: Sequence[Cost]) -> Cost:
    """The same, bounded by the dearest place that the placement allows: a place may fill up or
    fail, and then all of it runs there.
    """
    if len(anywhere) < 2 or total.high is None:
        return total
    highs = [it.high for it in anywhere]
    known = [it for it in highs if it is not None]
    high = max(total.high, *known) if len(known) == len(highs) else None
    at_most = total.at_most or any(it.at_most for it in anywhere)
    return replace(total, high=high, at_most=at_most)


def _lasting(
    stored: Snapshot, uid: str, found: Impact, unit: str, group: _Group, *, after_s: float
) -> Lasting:
    """By runs with the very template, whoever's they were; else by the object's own."""
    same = stored.durations_of_template(group.digest)
    past = same or stored.durations_of_object(uid)
    return lasting(
        past,
        basis=_basis(len(past), unit) + ("" if same else " of another template"),
        timeout_s=group.template.timeout_seconds,
        after_s=after_s,
        attempts=found.controller.limits.backoff_limit_per_index + 1,
        unit=unit,
    )


def _bounded(lasts: Lasting, limits: Sequence[Limit]) -> Lasting:
    """What begins anew as often as it takes is bounded by no limit of one attempt."""
    if not limits or lasts.most_s is None:
        return lasts
    return replace(lasts, most_s=None, basis=f"{lasts.basis}; {limits[0].short}")


def _basis(count: int, unit: str) -> str:
    return f"from {count:,} past {unit}{'' if count == 1 else 's'}"


def _words(gpu: Gpu) -> str:
    """`T4:1`, `T4:1 or H100:8`, `T4:1 or 3 others`."""
    first, *others = map(str, gpu.each)
    if len(others) > 1:
        return f"{first} or {len(others)} others"
    return " or ".join((first, *others))
