"""What the store knows, as charts. The one module of plotting that reads; called by `plot`."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from fleetctl.cli.report.plotting.charts import (
    FRONT,
    IMPORTANCE,
    KINDS,
    RUNGS,
    Chart,
    Nothing,
    charts_of,
    front,
)
from fleetctl.cli.report.plotting.curves import STEP, Curve, Rung, Stop, metric_chart, rungs_chart
from fleetctl.cli.report.plotting.trials import Study, Trial, trial
from fleetctl.common.errors import NotFound
from fleetctl.common.text import and_more, did_you_mean, safe
from fleetctl.controllers.trials.early_terminate import stopped_at
from fleetctl.controllers.vocabulary.status_keys import EARLY_TERMINATED
from fleetctl.stores.read.rows import RunRow
from fleetctl.views.objects import SUCCEEDED, View, mapping
from fleetctl.views.reading import Reading
from fleetctl.views.results import metric_goals, metric_values, result_rows
from fleetctl.views.tasks import CACHED, Task, of_one_content

# Without `--metric`, so many charts; a run that logs hundreds of names is asked for by name.
METRICS_MAX = 4
NAMES_MAX = 8
# Of a job of 100,000 tasks that all report, the first tasks; `--index` picks others.
TASKS_MAX = 64
ROWS_MAX = 1_000_000  # reports in memory at once, some 100 MB


class Asked(NamedTuple):
    """kinds: of a sweep's charts; none for those that tell something of it. metrics: names, of
    curves; over: what they are drawn over, one of AXES. indexes: None = any task.
    """

    kinds: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    indexes: Container[int] | None = None
    over: str = STEP


def gather(views: Sequence[View], asked: Asked, reading: Reading) -> list[Chart]:
    """Of one object, or the curves of several in one picture."""
    alone = len(views) == 1 and not asked.metrics and asked.indexes is None and asked.over == STEP
    if alone and views[0].kind.searches:
        return _of_search(views[0], asked.kinds, reading)
    return _curves(views, asked, reading)


def _of_search(seen: View, kinds: Sequence[str], reading: Reading) -> list[Chart]:
    """Of several metrics a chart for each; what weighs them against each other comes first."""
    found = studies(seen, reading)
    early = mapping(seen.spec().get("search")).get("early_terminate") is not None
    usual = (FRONT, IMPORTANCE) if len(found) > 1 else (*KINDS, *((RUNGS,) if early else ()))
    charts: list[Chart] = []
    for kind in kinds or usual:
        if kind == FRONT:
            charts.append(front(found))
        elif kind == RUNGS:
            charts.append(_rungs(seen, reading, early=early))
        else:
            made = [charts_of(study, (kind,))[0] for study in found]
            several = len(found) > 1
            pairs = zip(made, found, strict=True)
            charts += [
                it._replace(title=f"{it.title} of {study.metric}") if several else it
                for it, study in pairs
            ]
    return charts


def studies(seen: View, reading: Reading) -> list[Study]:
    """The trials that succeeded or that the search ended early, with the score that the sweep
    itself goes by: one study a metric, and one of a search without any.
    """
    search = mapping(seen.spec().get("search"))
    aims = _aims(seen)
    logs, evens = _distributions(mapping(search.get("parameters")))
    runs = {one.run.index: one.run for one in reading.tasks(seen)}
    early = {index for index, run in runs.items() if run.reason == EARLY_TERMINATED}
    rows = [
        row
        for row in result_rows(seen, reading)
        if (row["state"] in (SUCCEEDED, CACHED) or row["index"] in early)
        # Of what is over, outdated trials are those that somebody wanted to keep.
        and (seen.over or not row["outdated"])
    ]
    return [
        Study(
            safe(name),
            goal,
            tuple(_trial(row, runs, metric_values(row).get(name)) for row in rows),
            frozenset(logs),
            frozenset(evens),
        )
        for name, goal in aims
    ]


def _aims(seen: View) -> list[tuple[str, str]]:
    """(name, goal) of each metric; of a sweep that has no status yet, as its spec says."""
    spec = seen.spec()
    several = spec.get("metrics")
    written = several if isinstance(several, list) else [mapping(spec.get("search")).get("metric")]
    found = [mapping(it) for it in written]
    parts = [(str(it["name"]), str(it.get("goal") or "minimize")) for it in found if it.get("name")]
    return parts or metric_goals(seen) or [("", "minimize")]


def _trial(row: Mapping[str, object], runs: Mapping[int, RunRow], score: object) -> Trial:
    index = int(str(row["index"]))
    ended_at_s = runs[index].ended_at_s if index in runs else None
    return trial(index, ended_at_s or 0.0, mapping(row["params"]), score)


def _rungs(seen: View, reading: Reading, *, early: bool) -> Chart:
    if not early:
        return Nothing("early stops", "the search has no `early_terminate`")
    value = seen.status.get("rungs")
    rungs = [mapping(it) for it in value] if isinstance(value, list) else []
    stops = []
    for one in reading.tasks(seen):
        at = stopped_at(one.run.message) if one.run.reason == EARLY_TERMINATED else None
        if at is not None:
            message = safe(f"trial {one.run.index}: {one.run.message}")
            stops.append(Stop(one.run.index, *at, message))
    looks = [
        Rung(int(str(it["iteration"])), int(str(it["trials"])), float(str(it["threshold"])))
        for it in rungs
    ]
    return rungs_chart(safe(_aims(seen)[0][0]), looks, stops)


def _distributions(parameters: object, above: str = "") -> tuple[set[str], set[str]]:
    """Names of what is drawn logarithmically, and of what is drawn evenly; lists are neither."""
    from fleetctl.specs.search.distributions import NESTED, distribution_of

    logs: set[str] = set()
    evens: set[str] = set()
    for name, written in mapping(parameters).items():
        given = mapping(written)
        if NESTED in given:
            inner_logs, inner_evens = _distributions(given[NESTED], f"{above}{name}.")
            logs, evens = logs | inner_logs, evens | inner_evens
            continue
        found = distribution_of(given)
        if found is not None and "log" in found.name:
            logs.add(safe(above + name))
        elif found is not None and not {"value", "values"} & set(found.needs):
            evens.add(safe(above + name))
    return logs, evens


def _curves(views: Sequence[View], asked: Asked, reading: Reading) -> list[Chart]:
    """A chart a metric; of every metric the tasks that reported it."""
    picked, notes = _picked(views, asked, reading)
    known = asked.metrics
    if not known:
        known = _known(picked, reading)
    names, rows = known[: None if asked.metrics else METRICS_MAX], 0
    found: dict[str, dict[str, Curve]] = {name: {} for name in names}
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
                found[name].setdefault(title, Curve(asked.over, since_s)).add(reports)
    for name in names:
        if not found[name]:
            _refuse_unknown(views, name, picked, reading)
    if not any(found.values()):
        return [_nothing(views, asked)]
    notes += _without(views, found)
    if len(known) > len(names):
        reported = and_more([safe(name) for name in known], most=NAMES_MAX)
        notes.append(f"`--metric` picks of {reported}")
    last, note = names[-1], "; ".join(notes)
    return [
        metric_chart(safe(it), found[it], note if it == last else "", over=asked.over)
        for it in names
    ]


def _without(views: Sequence[View], found: Mapping[str, Mapping[str, Curve]]) -> list[str]:
    """Of several objects those that have no curve in a chart of the others."""
    if len(views) == 1:
        return []
    notes: list[str] = []
    for name, curves in found.items():
        titles = tuple(curves)
        keys = [safe(seen.key) for seen in views]
        left = [key for key in keys if not any(it.startswith(f"{key} ") for it in titles)]
        if left:
            verb = "has" if len(left) == 1 else "have"
            notes.append(f"{and_more(left, most=NAMES_MAX)} {verb} reported no `{safe(name)}`")
    return notes


def _picked(
    views: Sequence[View], asked: Asked, reading: Reading
) -> tuple[list[tuple[Task, str]], list[str]]:
    """(attempts with the name of their curve, what is left out)."""
    picked: list[tuple[Task, str]] = []
    parts: list[str] = []
    for seen in views:
        named: set[int] = set()
        owner = "" if len(views) == 1 else f"{safe(seen.key)} "
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
            picked.append((one, owner + _name(seen, index, one.run.params)))
    return picked, parts


def _known(picked: Sequence[tuple[Task, str]], reading: Reading) -> tuple[str, ...]:
    """Names of all metrics that these attempts reported."""
    return tuple(sorted({it for one, _ in picked for it in reading.metric_names(one.run.name)}))


def _nothing(views: Sequence[View], asked: Asked) -> Nothing:
    which = "" if asked.indexes is None else f"these {views[0].kind.unit}s of "
    verb = "has" if asked.indexes is None and len(views) == 1 else "have"
    keys = and_more([safe(seen.key) for seen in views], most=NAMES_MAX)
    way = "a task does by `report(loss=...)`"
    return Nothing("metrics", f"{which}{keys} {verb} reported no metrics yet: {way}")


def _refuse_unknown(
    views: Sequence[View], name: str, picked: Sequence[tuple[Task, str]], reading: Reading
) -> None:
    """Raises NotFound where others were reported, and this one was not."""
    known = _known(picked, reading)
    if not known:
        return
    keys = and_more([safe(seen.key) for seen in views], most=NAMES_MAX)
    listed = and_more([safe(one) for one in known], most=NAMES_MAX)
    near = did_you_mean(name, known)
    verb = "has" if len(views) == 1 else "have"
    raise NotFound(
        f"{keys} {verb} reported no metric `{safe(name)}`",
        hint=safe(near) or f"{'it has' if len(views) == 1 else 'they have'} reported {listed}",
    )


def _name(seen: View, index: int, params: str) -> str:
    """`trial 3`, `task 7`; a stage by its own name."""
    if seen.kind.named:
        import json

        name = mapping(json.loads(params or "{}")).get(seen.kind.unit)
        if isinstance(name, str):
            return safe(name)
    return f"{seen.kind.unit} {index}"
