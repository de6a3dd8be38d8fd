"""Reads the store and returns charts. The one module of plotting that reads; called by `plot`."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
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
    EarlyStop,
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


class ChartRequest(NamedTuple):
    """The options. kinds: of a sweep's charts; empty for the usual ones. metrics: names, of curves;
    over: their x axis, one of AXES. indexes: None = any task.
    """

    kinds: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    indexes: Container[int] | None = None
    over: str = STEP


def gather_charts(
    views: Sequence[View],
    asked: ChartRequest,
    reading: StoreReading,
) -> list[Chart]:
    """Returns an object's charts, or the curves of several objects in one plot."""
    alone = len(views) == 1 and not asked.metrics and asked.indexes is None and asked.over == STEP
    if alone and views[0].kind.searches:
        return _of_search(views[0], asked.kinds, reading)
    return _draw_curves(views, asked, reading)


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


def _draw_curves(
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
    for one, title in picked:
        since_s = begun_at_s.setdefault(title, one.run.started_at_s or one.run.created_at_s)
        if rows > ROWS_MAX:
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
    notes += _explain_missing(views, found)
    if len(known) > len(names):
        reported = and_more([escape_line(name) for name in known], most=NAMES_MAX)
        notes.append(f"`--metric` picks of {reported}")
    last = names[-1]
    note = "; ".join(notes)
    return [
        metric_chart(escape_line(it), found[it], note if it == last else "", over=asked.over)
        for it in names
    ]


def _explain_missing(
    views: Sequence[View], found: Mapping[str, Mapping[str, TaskCurve]]
) -> list[str]:
    """Returns those of several objects that have no curve in a chart of the others."""
    if len(views) == 1:
        return []
    notes: list[str] = []
    for name, curves in found.items():
        titles = tuple(curves)
        keys = [escape_line(seen.key) for seen in views]
        left = [key for key in keys if not any(it.startswith(f"{key} ") for it in titles)]
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
) -> tuple[list[tuple[Task, str]], list[str]]:
    """Returns (attempts with the name of their curve, names that are left out)."""
    picked: list[tuple[Task, str]] = []
    parts: list[str] = []
    for seen in views:
        named: set[int] = set()
        owner = "" if len(views) == 1 else f"{escape_line(seen.key)} "
        for one in of_one_content(reading.attempts(seen)):
            index = one.run.index
            if asked.indexes is not None and index not in asked.indexes:
                continue
            if not reading.has_reported(one.run.name):
                continue
            if index not in named and len(named) >= TASKS_MAX:
                until = f"only tasks {owner and 'of ' + owner}up to {max(named)} are looked at"
                parts.append(f"{until}; `--index` picks others")
                break
            named.add(index)
            picked.append((one, owner + _format_name(seen, index, one.run.params)))
    return picked, parts


def _list_metrics(picked: Sequence[tuple[Task, str]], reading: StoreReading) -> tuple[str, ...]:
    """Returns names of all metrics that these attempts reported."""
    return tuple(sorted({it for one, _ in picked for it in reading.metric_names(one.run.name)}))


def _make_empty_chart(views: Sequence[View], asked: ChartRequest) -> EmptyChart:
    which = "" if asked.indexes is None else f"these {views[0].kind.unit}s of "
    verb = "has" if asked.indexes is None and len(views) == 1 else "have"
    keys = and_more([escape_line(seen.key) for seen in views], most=NAMES_MAX)
    way = "a task does by `report(loss=...)`"
    return EmptyChart("metrics", f"{which}{keys} {verb} reported no metrics yet: {way}")


def _refuse_unknown(
    views: Sequence[View],
    name: str,
    picked: Sequence[tuple[Task, str]],
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
