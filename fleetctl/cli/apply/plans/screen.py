"""The plan as people read it on a terminal. Called by plan.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fleetctl.apply.cost.caps import Cap
from fleetctl.apply.cost.estimate import per_hour
from fleetctl.apply.cost.report import ObjectPlan, Place, Report, Verb, Work
from fleetctl.apply.cost.warm import WarmCost
from fleetctl.apply.cost.words import UNKNOWN, figure, hourly, ranged
from fleetctl.cli.output.render import Screen
from fleetctl.common.text import duration, plural, safe, usd
from fleetctl.controllers.planning.placement import HOUR_S
from fleetctl.specs.values.changes import FieldChange, value_text

WORDS = {
    Verb.CREATE: "create",
    Verb.UPDATE: "update in place",
    Verb.REPLACE: "replace running work",
    Verb.DESTROY: "destroy",
}
FIELDS_SHOWN_MAX = 20
# Said once for all lines that follow, and as wide as the widest of them.
HEADING = {word: f"  {word:<8}" for word in ("Cost", "Time", "Budget", "")}


def show(found: Report, screen: Screen, *, saved: str) -> None:
    screen.data(_headline(found))
    changing = [it for it in found.objects if it.verb is not Verb.KEEP]
    if changing:
        screen.data("")
        for line in screen.table_lines((), list(_heads(changing))):
            screen.data(screen.marked(line, sign=line.strip()[:1]))
    for it in changing:
        if it.work is not None and it.work.places:
            _placement(it, it.work, screen)
    if any(it.work is not None or it.warm is not None for it in changing):
        screen.data("")
        blocks = (_bill(found, changing), _standing(changing), _times(changing), _budgets(changing))
        for block in blocks:
            screen.table((), block)
    screen.data("")
    screen.data(_counts(found, saved))


def _headline(found: Report) -> str:
    count = len(found.objects)
    prices = f"   (prices: {'; '.join(found.sources)})" if found.sources else ""
    return f"Plan for {count} object{'' if count == 1 else 's'}{safe(prices)}"


def _heads(changing: list[ObjectPlan]) -> Iterator[list[str]]:
    """A line an object, and one for each field of it that changes."""
    for it in changing:
        about = "; ".join(text for text in (it.about, *it.notes) if text)
        yield [f"  {it.verb.value} {safe(it.change.key)}", WORDS[it.verb], safe(about)]
        fields = it.change.fields
        for field in fields[:FIELDS_SHOWN_MAX]:
            yield [f"      {safe(_path(field))}", safe(_values(field))]
        if len(fields) > FIELDS_SHOWN_MAX:
            yield [f"      and {len(fields) - FIELDS_SHOWN_MAX} more fields"]
        if it.work is not None:
            yield [f"      {it.work.unit}s", _units(it.work)]


def _path(field: FieldChange) -> str:
    if field.difference:
        return field.path  # what a name stands for, not what the spec says
    outside = field.path.startswith(("labels", "annotations"))
    return f"metadata.{field.path}" if outside else f"spec.{field.path}"


def _values(field: FieldChange) -> str:
    if field.difference:
        return field.difference
    old, new = value_text(field.before), value_text(field.after)
    if not old and not new:
        return "changed; `fleetctl diff` shows its lines"
    return f"{old or '(long)'} -> {new or '(long)'}"


def _units(work: Work) -> str:
    """`48 kept, 24 new, 0 replaced`: always these three, the rest where there is any."""
    new = UNKNOWN if work.new is None else f"{work.new:,} new"
    parts = [f"{work.kept:,} kept", new, f"{work.replaced:,} replaced"]
    for count, word in (
        (work.again.units, f"to run again{_had_taken(work)}"),
        (work.cached, "cached"),
        (work.going_on, "running on"),
        (work.cancelled, "cancelled"),
        (work.failed, "failed before and not tried again"),
    ):
        if count:
            parts.append(f"{count:,} {word}")
    lost = f" (about {usd(work.lost_usd)} already spent on what stops)" if work.lost_usd else ""
    return ", ".join(parts) + lost


def _had_taken(work: Work) -> str:
    """What finished work had taken that is done again."""
    cost = f", {usd(work.again.usd)}" if work.again.usd else ""
    return f" (had taken {duration(work.again.work_s)}{cost})"


def _placement(planned: ObjectPlan, work: Work, screen: Screen) -> None:
    screen.data("")
    new = UNKNOWN if work.to_run is None else f"{work.to_run:,}"
    title = f"  PLACEMENT of {safe(planned.change.key)} ({new} {work.unit}{_s(work.to_run)})"
    header = [title, "GPU", "$/H", "SLOTS", work.unit.upper() + "S", "EST. COST", "WHY"]
    gangs = any(place.nodes for place in work.places)
    if gangs:
        header.insert(1, "NODES")
    rows, ranks = [], Counter[str]()
    for place in work.places:
        ranks[place.name] += 1
        row = _place(ranks[place.name], place)
        if gangs:
            row.insert(1, place.nodes or "1")
        rows.append(row)
    screen.table(header, rows)


def _place(rank: int, place: Place) -> list[str]:
    """A unit that has a name is told by it in place of a count of one."""
    judged = place.judged
    mark = str(rank) if judged.fits else "-"
    where, name = f"  {mark} {safe(judged.provider)}", safe(place.name)
    if not judged.fits:
        return [where, "-", "-", "-", name or "-", "-", safe(judged.why)]
    return [
        where,
        safe(place.gpu) or "-",
        _per_hour(place),
        f"{place.slots:,}",
        name or f"{place.units:,}",
        figure(place.cost) if place.units else "-",
        safe(judged.why),
    ]


def _per_hour(place: Place) -> str:
    """`$31.61`, and of a list of GPUs `$0.60-$31.61`."""
    most = per_hour(place.judged.usd_per_s)
    return UNKNOWN if most is None else hourly(per_hour(place.least_usd_per_s), most)


def _bill(found: Report, changing: list[ObjectPlan]) -> Iterator[list[str]]:
    works = [it.work for it in changing if it.work is not None]
    if not works:
        return
    unpriced = sum(work.unpriced for work in works)
    why = f" ({plural(unpriced, 'past run')} without a known price)" if unpriced else ""
    rates = [work.rate_usd_per_s for work in works]
    rates += [it.warm.usd_per_s for it in changing if it.warm is not None]
    known = [rate for rate in rates if rate is not None]
    rate = f"{usd(sum(known) * HOUR_S)}/h" if len(known) == len(rates) else UNKNOWN
    total = f"in total {ranged(found.total)}{why}"
    yield [f"{HEADING['Cost']}this apply {ranged(found.now)}", total, f"rate at most {rate}"]


def _standing(changing: list[ObjectPlan]) -> Iterator[list[str]]:
    """What is paid by the hour whether or not anything runs."""
    heading = HEADING["" if any(it.work is not None for it in changing) else "Cost"]
    for it in changing:
        if it.warm is not None:
            yield [heading + safe(it.change.key), it.warm.sentence]
            heading = HEADING[""]


def _times(changing: list[ObjectPlan]) -> Iterator[list[str]]:
    timed = [it for it in changing if it.work is not None and it.work.lasts is not None]
    for number, it in enumerate(timed):
        assert it.work is not None and it.work.lasts is not None
        heading = HEADING["Time" if number == 0 else ""]
        yield [heading + safe(it.change.key), _time(it.work), it.work.lasts.basis]


def _budgets(changing: list[ObjectPlan]) -> Iterator[list[str]]:
    capped = [(it, cap.sentence) for it in changing if it.work is not None for cap in it.work.caps]
    capped += [
        (it, _drained(cap, it.warm))
        for it in changing
        if it.warm is not None
        for cap in it.warm.caps
    ]
    for number, (it, sentence) in enumerate(capped):
        heading = HEADING["Budget" if number == 0 else ""]
        yield [heading + safe(it.change.key), safe(sentence)]


def _drained(cap: Cap, warm: WarmCost) -> str:
    """How long a budget lasts for what stays warm. It does not end when the budget does."""
    left_usd = max(0.0, cap.max_usd - cap.used_usd)
    lasts = f", which pays {duration(left_usd / warm.usd_per_s)} of it" if warm.usd_per_s else ""
    left = f"{usd(left_usd)} of {usd(cap.max_usd)} left{lasts}"
    beyond = "what is warm stays so beyond it" if warm.idle_s is None else "then none is started"
    return f"{cap.owner}: {left}; {beyond}"


def _time(work: Work) -> str:
    if work.first_s is None:
        return UNKNOWN if work.whole_s is None else f"at most {duration(work.whole_s)}"
    done = f", all done ~{duration(work.whole_s)}" if work.whole_s is not None else ""
    return f"first result ~{duration(work.first_s)}{done}"


def _counts(found: Report, saved: str) -> str:
    counts = (
        (Verb.CREATE, "create"),
        (Verb.UPDATE, "update"),
        (Verb.REPLACE, "replace"),
        (Verb.DESTROY, "destroy"),
    )
    message = ", ".join(f"{found.count(verb)} to {word}" for verb, word in counts)
    kept = found.count(Verb.KEEP)
    rest = f", {kept} unchanged" if kept else ""
    kept_in = f"Saved: {safe(saved)}" if saved else "Saved: no (use --out)"
    return f"Plan: {message}{rest}. {kept_in}"


def _s(count: int | None) -> str:
    return "" if count == 1 else "s"
