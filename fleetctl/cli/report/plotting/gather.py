"""What the store knows, as charts. The one module of plotting that reads; called by `plot`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from fleetctl.cli.report.plotting.charts import Chart, Nothing, charts_of
from fleetctl.cli.report.plotting.curves import Curve, metric_chart
from fleetctl.cli.report.plotting.trials import Study, trial
from fleetctl.common.errors import NotFound
from fleetctl.common.text import and_more, did_you_mean, safe
from fleetctl.views.objects import SUCCEEDED, View, mapping
from fleetctl.views.reading import Reading
from fleetctl.views.results import result_rows
from fleetctl.views.tasks import CACHED, Task

# Without `--metric`, so many charts; a run that logs hundreds of names is asked for by name.
METRICS_MAX = 4
NAMES_MAX = 8
# Of a job of 100,000 tasks that all report, the first tasks; `--index` picks others.
TASKS_MAX = 64
ROWS_MAX = 1_000_000  # reports in memory at once, some 100 MB


class Asked(NamedTuple):
    """kinds: of a sweep's charts. metrics: names, of curves over step. indexes: None = any task."""

    kinds: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    indexes: Container[int] | None = None


def gather(seen: View, asked: Asked, reading: Reading) -> list[Chart]:
    if seen.kind.searches and not asked.metrics and asked.indexes is None:
        return charts_of(study(seen, reading), asked.kinds)
    return _curves(seen, asked, reading)


def study(seen: View, reading: Reading) -> Study:
    """The trials that succeeded, with the score that the sweep itself goes by."""
    search = mapping(seen.spec().get("search"))
    metric = mapping(search.get("metric")) or seen.map("metric")
    logs, evens = _distributions(mapping(search.get("parameters")))
    ended = {one.run.index: one.run.ended_at_s or 0.0 for one in reading.tasks(seen)}
    trials = tuple(
        trial(
            int(str(row["index"])),
            ended.get(int(str(row["index"])), 0.0),
            mapping(row["params"]),
            mapping(row.get("metric")).get("value"),
        )
        for row in result_rows(seen, reading)
        if row["state"] in (SUCCEEDED, CACHED)
        # Of what is over, outdated trials are those that somebody wanted to keep.
        and (seen.over or not row["outdated"])
    )
    name, goal = safe(str(metric.get("name") or "")), str(metric.get("goal") or "minimize")
    return Study(name, goal, trials, frozenset(logs), frozenset(evens))


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
