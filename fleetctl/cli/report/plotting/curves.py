"""What tasks reported while they ran, over their steps. Called by gather; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.cli.report.plotting.charts import Chart, Dot, Line, Nothing, Plane
from fleetctl.cli.report.plotting.scales import looks_skewed, number, of_numbers, roomy
from fleetctl.common.text import and_more, plural

# No screen has more columns, and a page stays small.
POINTS_MAX = 1000
STOPS_MAX = 8  # that a line under a drawing names
LINES_MAX = 8  # that colours and characters tell apart

Points = list[tuple[float, float]]


class Curve:
    """One metric of one task, attempt after attempt: a later one takes over where it begins.

    A run that restarts from a checkpoint reports some steps again; those are what counts.
    """

    def __init__(self) -> None:
        self.points: Points = []
        self.not_numbers = 0

    def add(self, reports: Iterable[tuple[int, float | None]]) -> None:
        """Of one attempt, in its order: step and value, None for what is not a number."""
        fresh = dict[int, float]()
        for step, value in reports:
            if value is None or not math.isfinite(value):
                self.not_numbers += 1
            else:
                fresh[step] = value
        if fresh:
            first = min(fresh)
            kept = [point for point in self.points if point[0] < first]
            self.points = kept + sorted((float(step), v) for step, v in fresh.items())


def metric_chart(metric: str, curves: Mapping[str, Curve], note: str) -> Chart:
    """A line for each task, by its name."""
    drawn = {name: curve for name, curve in curves.items() if curve.points}
    broken = sum(curve.not_numbers for curve in curves.values())
    gaps = f"{plural(broken, 'report')} without a finite number" if broken else ""
    if not drawn:
        return Nothing(metric, gaps or f"nothing has been reported as `{metric}` yet")
    shown = list(drawn)[:LINES_MAX]
    values = [y for name in shown for _, y in drawn[name].points]
    steps = [x for name in shown for x, _ in drawn[name].points]
    lines = tuple(Line(name, tuple(thinned(drawn[name].points))) for name in shown)
    hidden = len(drawn) - len(shown)
    more = f"the first {LINES_MAX} of {len(drawn)}; `--index` picks others" if hidden else ""
    y = roomy(of_numbers(metric, values, log=looks_skewed(values)))
    x = of_numbers("step", steps, log=False)._replace(whole=True)
    if x.low == x.high:
        x = roomy(x)
    notes = "; ".join(part for part in (note, _last(metric, lines), gaps, more) if part)
    return Plane(f"{metric} over step", notes, x, y, lines)


class Stop(NamedTuple):
    """Of a trial that its search ended early."""

    trial: int
    iteration: int
    value: float
    said: str


class Rung(NamedTuple):
    """A look of the search: how many trials came so far, and what it takes to go on."""

    iteration: int
    trials: int
    threshold: float


def rungs_chart(metric: str, rungs: Sequence[Rung], stops: Sequence[Stop]) -> Chart:
    """The looks of a search, ascending, and who was stopped by which value."""
    title = "early stops"
    if not rungs:
        return Nothing(title, f"no trial has reported `{metric}` often enough to be judged")
    values = [it.threshold for it in rungs] + [it.value for it in stops]
    places = [float(it.iteration) for it in rungs] + [float(it.iteration) for it in stops]
    y = roomy(of_numbers(metric, values, log=looks_skewed(values)))
    x = of_numbers("iteration", places, log=min(places) > 0)._replace(whole=True)
    x = roomy(x) if x.low == x.high else x
    line = Line("threshold", tuple((float(it.iteration), it.threshold) for it in rungs))
    dots = tuple(Dot(float(it.iteration), it.value, it.trial, it.said) for it in stops)
    looks = ", ".join(f"{plural(it.trials, 'trial')} at {it.iteration:,}" for it in rungs)
    told = [f"{it.trial} by {number(it.value)} at {it.iteration:,}" for it in stops]
    said = [f"came so far: {looks}"]
    said += [f"stopped: trial {and_more(told, most=STOPS_MAX)}"] if told else ["nobody is stopped"]
    names = ("", "stopped by this value", "what it takes to go on")
    return Plane(title, "; ".join(said), x, y, (line,), dots, names)


def thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most POINTS_MAX: of each stretch the least and the most, so that no spike is lost."""
    if len(points) <= POINTS_MAX:
        return points
    stretch = -(-len(points) * 2 // (POINTS_MAX - 2))
    kept = {points[0], points[-1]}
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        kept |= {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
    return sorted(kept)


def _last(metric: str, lines: Sequence[Line]) -> str:
    """`loss 1.602 at step 2`, of a single line."""
    if len(lines) != 1:
        return ""
    step, value = lines[0].points[-1]
    return f"last {metric} {number(value)} at step {number(step)}"
