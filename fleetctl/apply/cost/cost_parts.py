"""The parts of an object's cost: its units that share a template, with their duration and their
providers, and the warm containers of a Function for as long as it exists.

Most objects are one part; a TrainingRun has one a stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from fleetctl.apply.cost.estimate import (
    FREE,
    UNKNOWN,
    BudgetCap,
    Cost,
    DurationEstimate,
    caps_of,
    estimate_cost,
    estimate_duration,
    format_hourly,
    share_units,
)
from fleetctl.apply.cost.offers import LifetimeLimit, OfferBook
from fleetctl.common.text import count_noun, format_duration
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.placement import (
    CandidateJudgement,
    Placement,
    ProviderCapacity,
    ProviderOffer,
    judge_candidates,
)
from fleetctl.controllers.reuse.impact import Impact
from fleetctl.specs.blocks.nodes import ONE, nodes_of
from fleetctl.specs.blocks.resources import Gpu
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.read.read_only import StoreSnapshot

KIND = "Function"


@dataclass(frozen=True, slots=True)
class PlannedPlacement:
    """A candidate of the placement and its share of the units. least_usd_per_s: where its template
    lists several GPUs, the price of the cheapest; the judgement has that of the dearest. name: of
    the unit, where each has its own template. nodes: of an attempt, `4` or `2 to 4`; "" for one.
    """

    judged: CandidateJudgement
    units: int
    cost: Cost
    slots: int  # units at the same time, when all providers are full
    source: str  # of its price
    least_usd_per_s: float | None = None
    name: str = ""
    gpu: str = ""
    nodes: str = ""


@dataclass(frozen=True, slots=True)
class CostPart:
    """One part of an object. units None: unknown number. at_once: how many run at the same time, at
    most."""

    units: int | None
    lasts: DurationEstimate
    places: tuple[PlannedPlacement, ...]
    cost: Cost
    at_once: int
    gpu: str
    limits: tuple[LifetimeLimit, ...] = ()  # of the providers where it fits

    @property
    def usd_per_s(self) -> float | None:
        """Returns the price of all units that run at the same time, at most; None when a price is
        unknown. Should a provider fail, all units may run at another one.
        """
        here = [_multiply_rate(it, it.slots) for it in self.places if it.units]
        each = [_multiply_rate(it, self._most_at(it)) for it in self.places if it.judged.fits]
        rates = [*here, *each]
        if any(rate is None for rate in rates):
            return None
        return max(sum(it or 0.0 for it in here), *(it or 0.0 for it in each), 0.0)

    def _most_at(self, place: PlannedPlacement) -> int:
        free = place.judged.free
        if free is None:
            return self.at_once
        return min(self.at_once, free)


def _multiply_rate(place: PlannedPlacement, count: int) -> float | None:
    usd_per_s = place.judged.usd_per_s
    if usd_per_s is None:
        return None
    return usd_per_s * count


def parts_of(
    stored: StoreSnapshot,
    desired: Resource,
    found: Impact,
    unit: str,
    market: OfferBook,
) -> tuple[CostPart, ...]:
    """Returns one part for each template that a unit will start with, first to start first."""
    made = [
        _build_part(
            stored,
            desired,
            found,
            unit,
            market,
            group,
        )
        for group in _group_units(found, KINDS[desired.kind].unit)
    ]
    return tuple(made)


@dataclass(frozen=True, slots=True)
class _UnitGroup:
    """name: of its only unit."""

    digest: str
    template: Template
    units: int | None
    name: str = ""


def _group_units(found: Impact, named_by: str) -> Iterator[_UnitGroup]:
    """Groups the units by template. named_by: the parameter that names a unit that has a name."""
    if found.to_run == 0:
        return
    controller = found.controller
    if controller.template_hash:
        index = _some_index(found)
        # The next point of a search that works out its points may still be unknown.
        at = controller.first if index is None else index
        known = controller.content(at) if index is None else controller.template(at)
        yield _UnitGroup(controller.template_hash, known, found.to_run)
        return
    running = {run.index for run in found.going_on}
    for index in controller.indexes():
        unit = controller.unit(index)
        if unit is not None and not found.history.is_done(index) and index not in running:
            name = str(unit.params.get(named_by, ""))
            yield _UnitGroup(unit.template_hash, controller.template(index), 1, name)


def _some_index(found: Impact) -> int | None:
    """Returns any unit that will start: they share their template."""
    if found.replaced:
        return found.replaced[0].index
    fresh = next(found.controller.next(found.history), None)
    if fresh is not None:
        return fresh.index
    waiting = (it for it in found.history.unfinished if found.controller.unit(it) is not None)
    return next(islice(waiting, 1), None)


def _build_part(
    stored: StoreSnapshot,
    desired: Resource,
    found: Impact,
    unit: str,
    market: OfferBook,
    group: _UnitGroup,
) -> CostPart:
    policy = found.controller.policy
    namespace = desired.namespace
    placement = found.controller.placement(group.digest)
    offers = market.offers(placement, group.template, namespace)
    judged, capacities = _judge_placement(placement, offers, market, found)
    fitting = [it for it in judged if it.fits]
    limits = tuple(market.limits([it.provider for it in fitting], group.template))

    quanta_s = (market.quantum_s(it.provider) for it in judged)
    after_s = policy.grace_s + max(quanta_s, default=0.0)
    lasts = _estimate_lasting(stored, desired.uid, found, unit, group, after_s=after_s)
    lasts = _drop_bound(lasts, limits)

    at_once = policy.parallelism
    if at_once is None:
        at_once = sum(market.parallelism(it.provider) for it in judged)
    if group.units is not None:
        at_once = min(at_once, group.units)
    slots = _assign_slots(judged, at_once, capacities)
    shares = share_units(group.units or 0, slots)

    whole = market.whole(group.template, namespace)
    wanted = whole.resources.gpu if whole is not None else None
    gpu = _describe_gpu(wanted) if wanted else ""
    places = tuple(
        _plan_placement(
            it, group, lasts, market, namespace=namespace, units=units, slots=room, gpu=gpu
        )
        for it, room, units in zip(judged, slots, shares, strict=True)
    )
    known = bool(group.units) and any(it.won for it in judged)
    total = _total_cost([it.cost for it in places], known=known)
    bounds = [estimate_cost(group.units, lasts, it.usd_per_s) for it in fitting]
    return CostPart(
        units=group.units,
        lasts=lasts,
        places=places,
        cost=_bound_total(total, bounds),
        at_once=min(at_once, sum(slots)),
        gpu=gpu,
        limits=limits,
    )


def _judge_placement(
    placement: Placement,
    offers: Mapping[str, ProviderOffer],
    market: OfferBook,
    found: Impact,
) -> tuple[Sequence[CandidateJudgement], Mapping[str, ProviderCapacity]]:
    """Returns the judgements on where the units go now. Without room anywhere they are judged as if
    the present runs had ended: the work runs, and costs, all the same.
    """
    now = market.free_now((*found.replaced, *found.cancelled))
    judged = judge_candidates(placement, offers, now)
    if any(it.won for it in judged):
        return judged, now
    whole = market.capacities()
    full = {it.provider: it.why for it in judged if it.fits}
    later = judge_candidates(placement, offers, whole)
    if not any(it.won for it in later):
        return judged, now
    return [
        replace(it, why=f"{it.why}; full now: {full[it.provider]}") if it.fits else it
        for it in later
    ], whole


def _assign_slots(
    judged: Sequence[CandidateJudgement],
    at_once: int,
    capacities: Mapping[str, ProviderCapacity],
) -> list[int]:
    """Returns how many units run at each provider at the same time, best first, when all do."""
    slots: list[int] = []
    left = at_once
    for it in judged:
        capacity = capacities.get(it.provider, ProviderCapacity())
        room = [left] if capacity.free is None else [left, capacity.free]
        if capacity.spare_usd_per_s is not None:
            paid = capacity.spare_usd_per_s / it.usd_per_s if it.usd_per_s else left
            room.append(int(paid + 1e-9) if it.usd_per_s is not None else 0)
        slots.append(min(room) if it.fits else 0)
        left -= slots[-1]
    return slots


def _plan_placement(
    judgement: CandidateJudgement,
    group: _UnitGroup,
    lasts: DurationEstimate,
    market: OfferBook,
    *,
    namespace: str,
    units: int,
    slots: int,
    gpu: str,
) -> PlannedPlacement:
    least = market.least_usd_per_s(judgement.provider, group.template, namespace)
    nodes = nodes_of(group.template)
    return PlannedPlacement(
        judged=judgement,
        units=units,
        cost=estimate_cost(units, lasts, judgement.usd_per_s, least_usd_per_s=least),
        slots=slots,
        source=market.source(judgement.provider),
        least_usd_per_s=least,
        name=group.name,
        gpu=gpu,
        nodes="" if nodes == ONE else str(nodes),
    )


def _total_cost(costs: Sequence[Cost], *, known: bool) -> Cost:
    """Sums up costs. known: a provider fits, and the number of units is known."""
    total = FREE
    for one in costs:
        total += one
    if known:
        return total
    return UNKNOWN


def _bound_total(total: Cost, anywhere: Sequence[Cost]) -> Cost:
    """Bounds the total by the dearest provider that the placement allows: a provider may fill up or
    fail, and then all units run there.
    """
    if len(anywhere) < 2 or total.high is None:
        return total
    highs = [it.high for it in anywhere]
    known = [it for it in highs if it is not None]
    high = max(total.high, *known) if len(known) == len(highs) else None
    at_most = total.at_most or any(it.at_most for it in anywhere)
    return replace(total, high=high, at_most=at_most)


def _estimate_lasting(
    stored: StoreSnapshot,
    uid: str,
    found: Impact,
    unit: str,
    group: _UnitGroup,
    *,
    after_s: float,
) -> DurationEstimate:
    """Estimates from runs of the very template, by any object; else from the object's own."""
    same = stored.durations_of_template(group.digest)
    past = same or stored.durations_of_object(uid)
    return estimate_duration(
        past,
        basis=_describe_basis(len(past), unit) + ("" if same else " of another template"),
        timeout_s=group.template.timeout_seconds,
        after_s=after_s,
        attempts=found.controller.limits.backoff_limit_per_index + 1,
        unit=unit,
    )


def _drop_bound(lasts: DurationEstimate, limits: Sequence[LifetimeLimit]) -> DurationEstimate:
    """Removes the bound of work that restarts as often as needed: an attempt's limit does not bound
    it."""
    if not limits or lasts.most_s is None:
        return lasts
    return replace(lasts, most_s=None, basis=f"{lasts.basis}; {limits[0].short}")


def _describe_basis(count: int, unit: str) -> str:
    return f"from {count:,} past {unit}{'' if count == 1 else 's'}"


def _describe_gpu(gpu: Gpu) -> str:
    """`T4:1`, `T4:1 or H100:8`, `T4:1 or 3 others`."""
    first, *others = map(str, gpu.each)
    if len(others) > 1:
        return f"{first} or {len(others)} others"
    return " or ".join((first, *others))


@dataclass(frozen=True, slots=True)
class WarmCost:
    """The cost of all containers together, USD a second; None where the price is unknown.
    least_usd_per_s: with the cheapest GPU, where the Function lists several. caps: the budgets that
    it counts against. A server that keeps no container warm counts with its maximal number of
    containers.
    """

    containers: int
    usd_per_s: float | None
    least_usd_per_s: float | None
    source: str
    caps: tuple[BudgetCap, ...]
    idle_s: float | None = None  # of a server: how long its containers outlive the last request

    @property
    def sentence(self) -> str:
        """Returns `$63.20/h while it exists: 2 containers stay warm, ...`, or for a server `$0.84/h
        while it is asked, and 60s after: at most 1 container`."""
        rate = format_hourly(self.least_usd_per_s, self.usd_per_s)
        rate += "" if self.usd_per_s is None else "/h"
        many = count_noun(self.containers, "container")
        if self.idle_s is not None:
            after = format_duration(self.idle_s)
            return f"{rate} while it is asked, and {after} after: at most {many}"
        stay = "stays" if self.containers == 1 else "stay"
        return f"{rate} while it exists: {many} {stay} warm, whether or not anything runs"


def warm_cost(desired: Resource, market: OfferBook) -> WarmCost | None:
    """Returns the cost, or None for a Function that keeps no container warm, or for free ones."""
    if desired.kind != KIND:
        return None
    spec = FunctionSpec.model_validate_json(desired.spec)
    sleeps = spec.port is not None and not spec.min_containers
    count = (spec.max_containers or 1) if sleeps else spec.min_containers
    if not count or spec.provider not in market.providers:
        return None
    template = spec.applied_to(Template())
    each = market.usd_per_s(spec.provider, template)
    if each == 0.0:
        return None
    least = market.least_usd_per_s(spec.provider, template, desired.namespace)
    return WarmCost(
        containers=count,
        usd_per_s=None if each is None else each * count,
        least_usd_per_s=None if least is None else least * count,
        source=f"{spec.provider}: {market.source(spec.provider)}",
        caps=caps_of(desired, market.objects.values(), UNKNOWN, spent_usd=0.0),
        idle_s=spec.scaledown_seconds if sleeps else None,
    )
