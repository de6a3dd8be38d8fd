"""Reads the store and returns charts. The one module of plotting that reads; called by `plot`."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from fleetctl.common.errors import NotFound
from fleetctl.common.text import and_more, did_you_mean, escape_line
from fleetctl.controllers.status_keys import EARLY_TERMINATED
from fleetctl.controllers.trials.early_terminate import parse_stop
from fleetctl.stores.read.rows import RunRow
from fleetctl.views.documents import metric_goals, metric_values, result_rows
from fleetctl.views.objects import SUCCEEDED, View, as_mapping
from fleetctl.views.plotting.charts import (
    FRONT,
    IMPORTANCE,
    KINDS,
    RUNGS,
    Chart,
    EmptyChart,
    build_charts,
    build_front,
)
from fleetctl.views.plotting.curves import (
    STEP,
    TIME,
    EarlyStop,
    Report,
    Rung,
    TaskCurve,
    metric_chart,
    rungs_chart,
)
from fleetctl.views.plotting.trials import PlottedTrial, Study, build_trial
from fleetctl.views.store_reading import StoreReading
from fleetctl.views.tasks import CACHED, Task, of_one_content

# Without `--metric`, the number of charts; for a run that logs hundreds of metrics the user names
# some.
METRICS_MAX = 4
NAMES_MAX = 8
# A job of 100,000 tasks that all report shows the first tasks; `--index` picks others.
TASKS_MAX = 64
ROWS_MAX = 1_000_000  # reports in memory at once, some 100 MB
TITLE_CHARS = 18  # of a curve, as a legend has room for
SEPARATORS = "-_./"
SYSTEM = "system"
SAMPLED_MAX = 8  # units whose machines are drawn
SYSTEM_CHARTS = {
    "gpu.percent": "GPU use in percent",
    "gpu.memory_mib": "GPU memory in MiB",
    "cpu.percent": "CPU use in percent of a core",
    "memory_mib": "memory in MiB",
}


class ChartRequest(NamedTuple):
    """The options. kinds: of a sweep's charts; empty for the usual ones. metrics: names, of curves;
    over: their x axis, one of AXES. indexes: None = any task; picks: those of single objects, by
    uid. rows_max: reports that are read.
    """

    kinds: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    indexes: Container[int] | None = None
    over: str = STEP
    picks: Mapping[str, Container[int]] | None = None
    rows_max: int = ROWS_MAX

    def indexes_of(self, seen: View) -> Container[int] | None:
        """Returns the tasks of an object that are drawn; None for any."""
        return (self.picks or {}).get(seen.resource.uid, self.indexes)


class PickedAttempt(NamedTuple):
    """An attempt whose reports are drawn. owner: the key of its object, "" where there is one
    object; unit: such as `trial 3`."""

    task: Task
    owner: str
    unit: str


class CurveOffer(NamedTuple):
    """A unit that has reported metrics, as a choice of a comparison. picked: it is among those that
    are compared now."""

    seen: View
    task: int
    unit: str
    picked: bool


def list_curves(
    views: Sequence[View],
    asked: ChartRequest,
    reading: StoreReading,
) -> tuple[list[CurveOffer], tuple[str, ...]]:
    """Returns (the units of these objects that have reported, the names of their metrics)."""
    offers: list[CurveOffer] = []
    names: set[str] = set()
    for seen in views:
        picked, _ = _pick_attempts([seen], ChartRequest(), reading)
        wanted = asked.indexes_of(seen)
        units = {one.task.run.index: one.unit for one in picked}
        offers += [
            CurveOffer(seen, index, unit, wanted is None or index in wanted)
            for index, unit in units.items()
        ]
        names |= set(_list_metrics(picked, reading))
    return offers, tuple(sorted(names))


def gather_charts(
    views: Sequence[View],
    asked: ChartRequest,
    reading: StoreReading,
) -> list[Chart]:
    """Returns an object's charts, or the curves of several objects in one plot."""
    if SYSTEM in asked.kinds:
        why = "no machine is sampled yet; runs that work for more than 15 s are"
        return gather_system(views, reading) or [EmptyChart("machines", why)]
    alone = len(views) == 1 and not asked.metrics and asked.indexes is None and asked.over == STEP
    if alone and views[0].kind.searches:
        return _of_search(views[0], asked.kinds, reading)
    return draw_curves(views, asked, reading)


def _of_search(
    seen: View,
    kinds: Sequence[str],
    reading: StoreReading,
) -> list[Chart]:
    """Returns a chart for each metric; with several metrics, the chart that compares metrics comes
    first."""
    found = build_studies(seen, reading)
    early = as_mapping(seen.spec().get("search")).get("early_terminate") is not None
    usual = (FRONT, IMPORTANCE) if len(found) > 1 else (*KINDS, *((RUNGS,) if early else ()))
    charts: list[Chart] = []
    for kind in kinds or usual:
        if kind == FRONT:
            charts.append(build_front(found))
        elif kind == RUNGS:
            charts.append(_draw_rungs(seen, reading, early=early))
        else:
            made = [build_charts(study, (kind,))[0] for study in found]
            several = len(found) > 1
            pairs = zip(made, found, strict=True)
            charts += [
                it._replace(title=f"{it.title} of {study.metric}") if several else it
                for it, study in pairs
            ]
    return charts


def gather_system(views: Sequence[View], reading: StoreReading) -> list[Chart]:
    """Returns charts of what runs use of their machines, over time: a line for each unit, or for
    each of its GPUs. Empty where nothing is sampled.
    """
    several = len(views) > 1
    sampled = [
        PickedAttempt(
            one,
            escape_line(seen.key) if several else "",
            _format_name(seen, one.run.index, one.run.params),
        )
        for seen in views
        for index in _pick_sampled(seen, reading)
        for one in of_one_content(reading.attempts(seen, index=index))
    ]
    titles, _ = name_curves(sampled)
    found: dict[str, dict[str, TaskCurve]] = {title: {} for title in SYSTEM_CHARTS.values()}
    begun_at_s: dict[str, float] = {}
    for one, owner, unit in sampled:
        title = titles[owner, unit]
        since_s = begun_at_s.setdefault(title, one.run.started_at_s or one.run.created_at_s)
        for name, reports in _read_samples(one, reading).items():
            measure, device = _split_sample(name)
            chart = found.get(SYSTEM_CHARTS.get(measure, ""))
            if chart is not None:
                line = f"{title} GPU {device}" if device else title
                chart.setdefault(line, TaskCurve(TIME, since_s)).add(reports)
    return [metric_chart(name, curves, "", over=TIME) for name, curves in found.items() if curves]


def _pick_sampled(seen: View, reading: StoreReading) -> list[int]:
    """Returns the units whose samples are drawn: those that run, else the first that have any."""
    live = sorted({run.index for run in reading.live_attempts(seen)})
    if live:
        return live[:SAMPLED_MAX]
    tasks = islice(reading.tasks(seen), TASKS_MAX)
    sampled = (one.run.index for one in tasks if next(reading.samples(one.run.name), None))
    return list(islice(sampled, SAMPLED_MAX))


def _read_samples(one: Task, reading: StoreReading) -> dict[str, list[Report]]:
    found: dict[str, list[Report]] = {}
    for row in reading.samples(one.run.name):
        found.setdefault(escape_line(row.name), []).append((row.step, row.value, row.at_s))
    return found


def _split_sample(name: str) -> tuple[str, str]:
    """Returns (`gpu.percent`, the device's index) of `system/gpu.3.percent`; others without one."""
    parts = name.removeprefix("system/").split(".")
    if parts[0] == "gpu" and len(parts) == 3:
        return f"gpu.{parts[2]}", parts[1]
    return ".".join(parts), ""


def build_studies(seen: View, reading: StoreReading) -> list[Study]:
    """Returns the trials that succeeded or that the search ended early, with the score that the
    sweep itself goes by: one study a metric, and one for a search without any.
    """
    search = as_mapping(seen.spec().get("search"))
    aims = _list_goals(seen)
    logs, evens = _classify_distributions(as_mapping(search.get("parameters")))
    runs = {one.run.index: one.run for one in reading.tasks(seen)}
    early = {index for index, run in runs.items() if run.reason == EARLY_TERMINATED}
    rows = [
        row
        for row in result_rows(seen, reading)
        if (row["state"] in (SUCCEEDED, CACHED) or row["index"] in early)
        # In a finished sweep, outdated trials are there because the user kept them.
        and (seen.over or not row["outdated"])
    ]
    return [
        Study(
            escape_line(name),
            goal,
            tuple(_build_trial(row, runs, metric_values(row).get(name)) for row in rows),
            frozenset(logs),
            frozenset(evens),
        )
        for name, goal in aims
    ]


def _list_goals(seen: View) -> list[tuple[str, str]]:
    """Returns (name, goal) of each metric; for a sweep without a status yet, from its spec."""
    spec = seen.spec()
    several = spec.get("metrics")
    written = (
        several if isinstance(several, list) else [as_mapping(spec.get("search")).get("metric")]
    )
    found = [as_mapping(it) for it in written]
    parts = [(str(it["name"]), str(it.get("goal") or "minimize")) for it in found if it.get("name")]
    return parts or metric_goals(seen) or [("", "minimize")]


def _build_trial(
    row: Mapping[str, object],
    runs: Mapping[int, RunRow],
    score: object,
) -> PlottedTrial:
    index = int(str(row["index"]))
    ended_at_s = runs[index].ended_at_s if index in runs else None
    return build_trial(index, ended_at_s or 0.0, as_mapping(row["params"]), score)


def _draw_rungs(
    seen: View,
    reading: StoreReading,
    *,
    early: bool,
) -> Chart:
    if not early:
        return EmptyChart("early stops", "the search has no `early_terminate`")
    value = seen.status.get("rungs")
    rungs = [as_mapping(it) for it in value] if isinstance(value, list) else []
    stops = []
    for one in reading.tasks(seen):
        at = parse_stop(one.run.message) if one.run.reason == EARLY_TERMINATED else None
        if at is not None:
            message = escape_line(f"trial {one.run.index}: {one.run.message}")
            stops.append(EarlyStop(one.run.index, *at, message))
    looks = [
        Rung(int(str(it["iteration"])), int(str(it["trials"])), float(str(it["threshold"])))
        for it in rungs
    ]
    return rungs_chart(escape_line(_list_goals(seen)[0][0]), looks, stops)


def _classify_distributions(parameters: object, above: str = "") -> tuple[set[str], set[str]]:
    """Returns names of parameters with a logarithmic distribution, and with a uniform one; lists
    are neither."""
    from fleetctl.specs.search.distributions import NESTED, distribution_of

    logs: set[str] = set()
    evens: set[str] = set()
    for name, written in as_mapping(parameters).items():
        given = as_mapping(written)
        if NESTED in given:
            inner_logs, inner_evens = _classify_distributions(given[NESTED], f"{above}{name}.")
            logs = logs | inner_logs
            evens = evens | inner_evens
            continue
        found = distribution_of(given)
        if found is not None and "log" in found.name:
            logs.add(escape_line(above + name))
        elif found is not None and not {"value", "values"} & set(found.needs):
            evens.add(escape_line(above + name))
    return logs, evens


def draw_curves(
    views: Sequence[View],
    asked: ChartRequest,
    reading: StoreReading,
) -> list[Chart]:
    """Returns a chart a metric; of every metric the tasks that reported it."""
    picked, notes = _pick_attempts(views, asked, reading)
    known = asked.metrics
    if not known:
        known = _list_metrics(picked, reading)
    names = known[: None if asked.metrics else METRICS_MAX]
    rows = 0
    found: dict[str, dict[str, TaskCurve]] = {name: {} for name in names}
    begun_at_s: dict[str, float] = {}
    titles, cut = name_curves(picked)
    shortened = [f"names without `{cut}`"] if cut else []
    for one, owner, unit in picked:
        title = titles[owner, unit]
        since_s = begun_at_s.setdefault(title, one.run.started_at_s or one.run.created_at_s)
        if rows > asked.rows_max:
            notes.append(f"what {title} and later ones reported is left out; `--index` picks them")
            break
        for name in names:
            reports = list(reading.points(one.run.name, name))
            rows += len(reports)
            if reports:
                found[name].setdefault(title, TaskCurve(asked.over, since_s)).add(reports)
    for name in names:
        if not found[name]:
            _refuse_unknown(views, name, picked, reading)
    if not any(found.values()):
        return [_make_empty_chart(views, asked)]
    notes += _explain_missing(views, found, {title: key for (key, _), title in titles.items()})
    if len(known) > len(names):
        reported = and_more([escape_line(name) for name in known], most=NAMES_MAX)
        notes.append(f"`--metric` picks of {reported}")
    last = names[-1]
    usual = "; ".join(shortened)
    whole = "; ".join([*shortened, *notes])
    return [
        metric_chart(escape_line(it), found[it], whole if it == last else usual, over=asked.over)
        for it in names
    ]


def _explain_missing(
    views: Sequence[View],
    found: Mapping[str, Mapping[str, TaskCurve]],
    owners: Mapping[str, str],
) -> list[str]:
    """Returns those of several objects that have no curve in a chart of the others. owners: the
    object of each curve, by its title."""
    if len(views) == 1:
        return []
    notes: list[str] = []
    for name, curves in found.items():
        there = {owners[title] for title in curves}
        left = [key for key in (escape_line(seen.key) for seen in views) if key not in there]
        if left:
            verb = "has" if len(left) == 1 else "have"
            notes.append(
                f"{and_more(left, most=NAMES_MAX)} {verb} reported no `{escape_line(name)}`"
            )
    return notes


def _pick_attempts(
    views: Sequence[View],
    asked: ChartRequest,
    reading: StoreReading,
) -> tuple[list[PickedAttempt], list[str]]:
    """Returns (the attempts that are drawn, notes on those that are left out)."""
    picked: list[PickedAttempt] = []
    parts: list[str] = []
    for seen in views:
        named: set[int] = set()
        owner = "" if len(views) == 1 else escape_line(seen.key)
        wanted = asked.indexes_of(seen)
        for one in of_one_content(reading.attempts(seen)):
            index = one.run.index
            if wanted is not None and index not in wanted:
                continue
            if not reading.has_reported(one.run.name):
                continue
            if index not in named and len(named) >= TASKS_MAX:
                until = f"only tasks {owner and f'of {owner} '}up to {max(named)} are looked at"
                parts.append(f"{until}; `--index` picks others")
                break
            named.add(index)
            picked.append(PickedAttempt(one, owner, _format_name(seen, index, one.run.params)))
    return picked, parts


def name_curves(picked: Sequence[PickedAttempt]) -> tuple[dict[tuple[str, str], str], str]:
    """Returns (the title of each curve, by object and unit; the beginning that long names share,
    which the titles leave out).

    The title has no more than tells the curves apart: the kind only where kinds differ, the unit
    only where an object has several.
    """
    pairs = list(dict.fromkeys((one.owner, one.unit) for one in picked))
    owners = dict.fromkeys(owner for owner, _ in pairs)
    if len(owners) < 2:
        return {(owner, unit): unit for owner, unit in pairs}, ""
    short = {owner: owner for owner in owners}
    if len({owner.partition("/")[0] for owner in owners}) == 1:
        short = {owner: owner.partition("/")[2] for owner in owners}
    shared = _find_shared_beginning(list(short.values()))
    alone = len(pairs) == len(owners)
    titles = {
        (owner, unit): short[owner].removeprefix(shared) + ("" if alone else f" {unit}")
        for owner, unit in pairs
    }
    return titles, shared


def _find_shared_beginning(names: Sequence[str]) -> str:
    """Returns what all names begin with, up to a separator; "" where all are short as they are."""
    if max(map(len, names)) <= TITLE_CHARS:
        return ""
    first, last = min(names), max(names)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    shared = "".join(sign for sign, _ in same)
    end = max(shared.rfind(sign) for sign in SEPARATORS) + 1
    return shared[:end]


def _list_metrics(picked: Sequence[PickedAttempt], reading: StoreReading) -> tuple[str, ...]:
    """Returns names of all metrics that these attempts reported."""
    return tuple(sorted({it for one in picked for it in reading.metric_names(one.task.run.name)}))


def _make_empty_chart(views: Sequence[View], asked: ChartRequest) -> EmptyChart:
    which = "" if asked.indexes is None else f"these {views[0].kind.unit}s of "
    verb = "has" if asked.indexes is None and len(views) == 1 else "have"
    keys = and_more([escape_line(seen.key) for seen in views], most=NAMES_MAX)
    way = "a task does by `report(loss=...)`"
    return EmptyChart("metrics", f"{which}{keys} {verb} reported no metrics yet: {way}")


def _refuse_unknown(
    views: Sequence[View],
    name: str,
    picked: Sequence[PickedAttempt],
    reading: StoreReading,
) -> None:
    """Raises NotFound where others were reported, and this one was not."""
    known = _list_metrics(picked, reading)
    if not known:
        return
    keys = and_more([escape_line(seen.key) for seen in views], most=NAMES_MAX)
    listed = and_more([escape_line(one) for one in known], most=NAMES_MAX)
    near = did_you_mean(name, known)
    verb = "has" if len(views) == 1 else "have"
    raise NotFound(
        f"{keys} {verb} reported no metric `{escape_line(name)}`",
        hint=escape_line(near)
        or f"{'it has' if len(views) == 1 else 'they have'} reported {listed}",
    )


def _format_name(
    seen: View,
    index: int,
    params: str,
) -> str:
    """Returns `trial 3`, `task 7`; for a stage its own name."""
    if seen.kind.named:
        import json

        name = as_mapping(json.loads(params or "{}")).get(seen.kind.unit)
        if isinstance(name, str):
            return escape_line(name)
    return f"{seen.kind.unit} {index}"
