"""The plan as text on a terminal. Called by plan.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fleetctl.apply.cost.caps import BudgetCap
from fleetctl.apply.cost.cost_text import UNKNOWN, format_cost, format_hourly, format_with_range
from fleetctl.apply.cost.estimate import per_hour
from fleetctl.apply.cost.plan_report import (
    ObjectPlan,
    PlanAction,
    PlannedPlacement,
    PlannedWork,
    PlanReport,
)
from fleetctl.apply.cost.warm import WarmCost
from fleetctl.cli.output.screen import Screen
from fleetctl.common.text import count_noun, escape_line, format_duration, format_money
from fleetctl.controllers.planning.placement import HOUR_S
from fleetctl.specs.values.changes import FieldChange, value_text

WORDS = {
    PlanAction.CREATE: "create",
    PlanAction.UPDATE: "update in place",
    PlanAction.REPLACE: "replace running work",
    PlanAction.DESTROY: "destroy",
}
FIELDS_SHOWN_MAX = 20
# Printed once for all lines that follow, and as wide as the widest of them.
HEADING = {word: f"  {word:<8}" for word in ("Cost", "Time", "Budget", "")}


def print_plan(
    found: PlanReport,
    screen: Screen,
    *,
    saved: str,
) -> None:
    screen.data(_format_headline(found))
    changing = [it for it in found.objects if it.verb is not PlanAction.KEEP]
    if changing:
        screen.data("")
        for line in screen.table_lines((), list(_build_head_rows(changing))):
            screen.data(screen.marked(line, sign=line.strip()[:1]))
    for it in changing:
        if it.work is not None and it.work.places:
            _print_placement(it, it.work, screen)
    if any(it.work is not None or it.warm is not None for it in changing):
        screen.data("")
        blocks = (
            _build_cost_rows(found, changing),
            _build_warm_rows(changing),
            _build_time_rows(changing),
            _build_budget_rows(changing),
        )
        for block in blocks:
            screen.table((), block)
    screen.data("")
    screen.data(_format_counts(found, saved))


def _format_headline(found: PlanReport) -> str:
    count = len(found.objects)
    prices = f"   (prices: {'; '.join(found.sources)})" if found.sources else ""
    return f"Plan for {count} object{'' if count == 1 else 's'}{escape_line(prices)}"


def _build_head_rows(changing: list[ObjectPlan]) -> Iterator[list[str]]:
    """Yields a line an object, and one for each field that changes."""
    for it in changing:
        about = "; ".join(text for text in (it.about, *it.notes) if text)
        yield [
            f"  {it.verb.value} {escape_line(it.change.key)}",
            WORDS[it.verb],
            escape_line(about),
        ]
        fields = it.change.fields
        for field in fields[:FIELDS_SHOWN_MAX]:
            yield [f"      {escape_line(_format_path(field))}", escape_line(_format_change(field))]
        if len(fields) > FIELDS_SHOWN_MAX:
            yield [f"      and {len(fields) - FIELDS_SHOWN_MAX} more fields"]
        if it.work is not None:
            yield [f"      {it.work.unit}s", _format_units(it.work)]


def _format_path(field: FieldChange) -> str:
    if field.difference:
        return field.path  # the value behind a name, not the text of the spec
    outside = field.path.startswith(("labels", "annotations"))
    if outside:
        return f"metadata.{field.path}"
    return f"spec.{field.path}"


def _format_change(field: FieldChange) -> str:
    if field.difference:
        return field.difference
    old = value_text(field.before)
    new = value_text(field.after)
    if not old and not new:
        return "changed; `fleetctl diff` shows its lines"
    return f"{old or '(long)'} -> {new or '(long)'}"


def _format_units(work: PlannedWork) -> str:
    """`48 kept, 24 new, 0 replaced`: always these three, other counts where above zero."""
    new = UNKNOWN if work.new is None else f"{work.new:,} new"
    parts = [f"{work.kept:,} kept", new, f"{work.replaced:,} replaced"]
    for count, word in (
        (work.again.units, f"to run again{_format_rerun_time(work)}"),
        (work.cached, "cached"),
        (work.going_on, "running on"),
        (work.cancelled, "cancelled"),
        (work.failed, "failed before and not tried again"),
    ):
        if count:
            parts.append(f"{count:,} {word}")
    lost = (
        f" (about {format_money(work.lost_usd)} already spent on what stops)"
        if work.lost_usd
        else ""
    )
    return ", ".join(parts) + lost


def _format_rerun_time(work: PlannedWork) -> str:
    """Returns the time and cost of finished work that is repeated."""
    cost = f", {format_money(work.again.usd)}" if work.again.usd else ""
    return f" (had taken {format_duration(work.again.work_s)}{cost})"


def _print_placement(
    planned: ObjectPlan,
    work: PlannedWork,
    screen: Screen,
) -> None:
    screen.data("")
    new = UNKNOWN if work.to_run is None else f"{work.to_run:,}"
    title = (
        f"  PLACEMENT of {escape_line(planned.change.key)} ({new} "
        f"{work.unit}{_plural_s(work.to_run)})"
    )
    header = [title, "GPU", "$/H", "SLOTS", work.unit.upper() + "S", "EST. COST", "WHY"]
    gangs = any(place.nodes for place in work.places)
    if gangs:
        header.insert(1, "NODES")
    rows = []
    ranks = Counter[str]()
    for place in work.places:
        ranks[place.name] += 1
        row = _build_placement_row(ranks[place.name], place)
        if gangs:
            row.insert(1, place.nodes or "1")
        rows.append(row)
    screen.table(header, rows)


def _build_placement_row(rank: int, place: PlannedPlacement) -> list[str]:
    """Returns the cells of a provider; a unit with a name is named instead of a count of one."""
    judged = place.judged
    mark = str(rank) if judged.fits else "-"
    where = f"  {mark} {escape_line(judged.provider)}"
    name = escape_line(place.name)
    if not judged.fits:
        return [where, "-", "-", "-", name or "-", "-", escape_line(judged.why)]
    return [
        where,
        escape_line(place.gpu) or "-",
        _per_hour(place),
        f"{place.slots:,}",
        name or f"{place.units:,}",
        format_cost(place.cost) if place.units else "-",
        escape_line(judged.why),
    ]


def _per_hour(place: PlannedPlacement) -> str:
    """`$31.61`, and for a list of GPUs `$0.60-$31.61`."""
    most = per_hour(place.judged.usd_per_s)
    if most is None:
        return UNKNOWN
    return format_hourly(per_hour(place.least_usd_per_s), most)


def _build_cost_rows(found: PlanReport, changing: list[ObjectPlan]) -> Iterator[list[str]]:
    works = [it.work for it in changing if it.work is not None]
    if not works:
        return
    unpriced = sum(work.unpriced for work in works)
    why = f" ({count_noun(unpriced, 'past run')} without a known price)" if unpriced else ""
    rates = [work.rate_usd_per_s for work in works]
    rates += [it.warm.usd_per_s for it in changing if it.warm is not None]
    known = [rate for rate in rates if rate is not None]
    rate = f"{format_money(sum(known) * HOUR_S)}/h" if len(known) == len(rates) else UNKNOWN
    total = f"in total {format_with_range(found.total)}{why}"
    yield [
        f"{HEADING['Cost']}this apply {format_with_range(found.now)}",
        total,
        f"rate at most {rate}",
    ]


def _build_warm_rows(changing: list[ObjectPlan]) -> Iterator[list[str]]:
    """Yields the costs by the hour, which do not depend on running work."""
    heading = HEADING["" if any(it.work is not None for it in changing) else "Cost"]
    for it in changing:
        if it.warm is not None:
            yield [heading + escape_line(it.change.key), it.warm.sentence]
            heading = HEADING[""]


def _build_time_rows(changing: list[ObjectPlan]) -> Iterator[list[str]]:
    timed = [it for it in changing if it.work is not None and it.work.lasts is not None]
    for number, it in enumerate(timed):
        assert it.work is not None and it.work.lasts is not None
        heading = HEADING["Time" if number == 0 else ""]
        yield [heading + escape_line(it.change.key), _format_time(it.work), it.work.lasts.basis]


def _build_budget_rows(changing: list[ObjectPlan]) -> Iterator[list[str]]:
    capped = [(it, cap.sentence) for it in changing if it.work is not None for cap in it.work.caps]
    capped += [
        (it, _describe_drain(cap, it.warm))
        for it in changing
        if it.warm is not None
        for cap in it.warm.caps
    ]
    for number, (it, sentence) in enumerate(capped):
        heading = HEADING["Budget" if number == 0 else ""]
        yield [heading + escape_line(it.change.key), escape_line(sentence)]


def _describe_drain(cap: BudgetCap, warm: WarmCost) -> str:
    """Returns how long a budget lasts for warm containers. They do not end when the budget does."""
    left_usd = max(0.0, cap.max_usd - cap.used_usd)
    lasts = (
        f", which pays {format_duration(left_usd / warm.usd_per_s)} of it" if warm.usd_per_s else ""
    )
    left = f"{format_money(left_usd)} of {format_money(cap.max_usd)} left{lasts}"
    beyond = "warm containers stay beyond it" if warm.idle_s is None else "then none is started"
    return f"{cap.owner}: {left}; {beyond}"


def _format_time(work: PlannedWork) -> str:
    if work.first_s is None:
        if work.whole_s is None:
            return UNKNOWN
        return f"at most {format_duration(work.whole_s)}"
    done = f", all done ~{format_duration(work.whole_s)}" if work.whole_s is not None else ""
    return f"first result ~{format_duration(work.first_s)}{done}"


def _format_counts(found: PlanReport, saved: str) -> str:
    counts = (
        (PlanAction.CREATE, "create"),
        (PlanAction.UPDATE, "update"),
        (PlanAction.REPLACE, "replace"),
        (PlanAction.DESTROY, "destroy"),
    )
    message = ", ".join(f"{found.count(verb)} to {word}" for verb, word in counts)
    kept = found.count(PlanAction.KEEP)
    rest = f", {kept} unchanged" if kept else ""
    kept_in = f"Saved: {escape_line(saved)}" if saved else "Saved: no (use --out)"
    return f"Plan: {message}{rest}. {kept_in}"


def _plural_s(count: int | None) -> str:
    if count == 1:
        return ""
    return "s"
