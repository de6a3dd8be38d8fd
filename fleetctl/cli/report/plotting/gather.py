"""What the store knows, as charts. The one module of plotting that reads; called by `plot`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
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
from fleetctl.cli.report.plotting.curves import Curve, Rung, Stop, metric_chart, rungs_chart
from fleetctl.cli.report.plotting.trials import Study, Trial, trial
from fleetctl.common.errors import NotFound
from fleetctl.common.text import and_more, did_you_mean, safe
from fleetctl.controllers.status_keys import EARLY_TERMINATED
from fleetctl.controllers.trials.early_terminate import stopped_at
from fleetctl.stores.read.reader import RunRow
from fleetctl.views.objects import SUCCEEDED, View, mapping
from fleetctl.views.reading import Reading
from fleetctl.views.results import metric_goals, metric_values, result_rows
from fleetctl.views.tasks import CACHED, Task

# Without `--metric`, so many charts; a run that logs hundreds of names is asked for by name.
METRICS_MAX = 4
NAMES_MAX = 8
# Of a job of 100,000 tasks that all report, the first tasks; `--index` picks others.
TASKS_MAX = 64
ROWS_MAX = 1_000_000  # reports in memory at once, some 100 MB


class Asked(NamedTuple):
    """kinds: of a sweep's charts; none for those that tell something of it. metrics: names, of
    curves over step. indexes: None = any task.
    """

    kinds: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    indexes: Container[int] | None = None


def gather(seen: View, asked: Asked, reading: Reading) -> list[Chart]:
    if seen.kind.searches and not asked.metrics and asked.indexes is None:
        return _of_search(seen, asked.kinds, reading)
    return _curves(seen, asked, reading)


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
            told = zip(made, found, strict=True)
            charts += [
                it._replace(title=f"{it.title} of {study.metric}") if several else it
                for it, study in told
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
    told = [(str(it["name"]), str(it.get("goal") or "minimize")) for it in found if it.get("name")]
    return told or metric_goals(seen) or [("", "minimize")]


def _trial(row: Mapping[str, object], runs: Mapping[int, RunRow], score: object) -> Trial:
    index = int(str(row["index"]))
    ended_at_s = runs[index].ended_at_s if index in runs else None
    return trial(index, ended_at_s or 0.0, mapping(row["params"]), score)


def _rungs(seen: View, reading: Reading, *, early: bool) -> Chart:
    if not early:
        return Nothing("early stops", "the search has no `early_terminate`")
    told = seen.status.get("rungs")
    rungs = [mapping(it) for it in told] if isinstance(told, list) else []
    stops = []
    for one in reading.tasks(seen):
        at = stopped_at(one.run.message) if one.run.reason == EARLY_TERMINATED else None
        if at is not None:
            said = safe(f"trial {one.run.index}: {one.run.message}")
            stops.append(Stop(one.run.index, *at, said))
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


def _curves(seen: View, asked: Asked, reading: Reading) -> list[Chart]:
    """A chart a metric; of every metric the tasks that reported it."""
    found: dict[str, dict[str, Curve]] = {}
    rows, note, named = 0, "", dict[int, str]()
    for one in _of_one_content(reading.attempts(seen)):
        index = one.run.index
        if asked.indexes is not None and index not in asked.indexes:
            continue
        if (index not in named and len(named) >= TASKS_MAX) or rows > ROWS_MAX:
            note = f"only tasks up to {max(named)} are looked at; `--index` picks others"
            break
        reports: dict[str, list[tuple[int, float | None]]] = {}
        for row in reading.metrics(one.run.name):
            reports.setdefault(row.name, []).append((row.step, row.value))
            rows += 1
        if reports:
            named[index] = _name(seen, index, one.run.params)
        for metric, values in reports.items():
            curves = found.setdefault(metric, {})
            curves.setdefault(named[index], Curve()).add(values)
    return _charts(seen, asked, found, note)


def _of_one_content(attempts: Iterable[Task]) -> Iterator[Task]:
    """Of each task the attempts that ran what its newest one ran: a curve is of one program."""
    for _, group in groupby(attempts, key=lambda one: one.run.index):
        tried = list(group)
        yield from (one for one in tried if one.run.content == tried[-1].run.content)


def _charts(seen: View, asked: Asked, found: dict[str, dict[str, Curve]], note: str) -> list[Chart]:
    names = asked.metrics or tuple(sorted(found)[:METRICS_MAX])
    for name in asked.metrics:
        if name not in found and found:
            raise _unknown(seen, name, sorted(found))
    if not names or not found:
        which = "" if asked.indexes is None else f"these {seen.kind.unit}s of "
        verb = "has" if asked.indexes is None else "have"
        return [Nothing("metrics", f"{which}{safe(seen.key)} {verb} reported no metrics yet")]
    if not asked.metrics and len(found) > len(names):
        known = and_more([safe(name) for name in sorted(found)], most=NAMES_MAX)
        note = "; ".join(part for part in (note, f"`--metric` picks of {known}") if part)
    last = len(names) - 1
    return [
        metric_chart(safe(name), found[name], note if at == last else "")
        for at, name in enumerate(names)
    ]


def _unknown(seen: View, name: str, known: Sequence[str]) -> NotFound:
    listed = and_more([safe(one) for one in known], most=NAMES_MAX)
    near = did_you_mean(name, known)
    return NotFound(
        f"{safe(seen.key)} has reported no metric `{safe(name)}`",
        hint=safe(near) or f"it has reported {listed}",
    )


def _name(seen: View, index: int, params: str) -> str:
    """`trial 3`, `task 7`; a stage by its own name."""
    if seen.kind.named:
        import json

        name = mapping(json.loads(params or "{}")).get(seen.kind.unit)
        if isinstance(name, str):
            return safe(name)
    return f"{seen.kind.unit} {index}"
