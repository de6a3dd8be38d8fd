"""What tasks reported while they ran, over their steps. Called by gather; pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from fleetctl.cli.report.plotting.charts import Chart, Dot, Line, Nothing, Plane
from fleetctl.cli.report.plotting.scales import looks_skewed, number, of_numbers, roomy
from fleetctl.common.text import and_more, duration, plural

# No screen has more columns, and a page stays small.
POINTS_MAX = 1000
STOPS_MAX = 8  # that a line under a drawing names
LINES_MAX = 8  # that colours and characters tell apart

STEP, TIME = "step", "time"

Points = list[tuple[float, float]]
# Step, value (None: not a number), seconds since the epoch.
Report = tuple[int, float | None, float]


class Curve:
    """One metric of one task, attempt after attempt: a later one takes over where it begins.

    A run that restarts from a checkpoint reports some steps again; those are what counts.
    over: `time` draws it over the seconds since its first attempt began.
    """

    def __init__(self, over: str = STEP, begun_at_s: float = 0.0) -> None:
        self.points: Points = []
        self.gaps: list[float] = []  # where something was reported that is no number, ascending
        self.not_numbers = 0
        self.first_odd: int | None = None  # the first step without a number
        self._over, self._begun_at_s = over, begun_at_s
        self._steps: list[int] = []  # of the points

    def add(self, reports: Iterable[Report]) -> None:
        """Of one attempt, in its order."""
        fresh, odd = dict[int, Report](), set[float]()
        for report in reports:
            step, value, _ = report
            if value is None or value - value != 0:
                self.not_numbers += 1
                self.first_odd = step if self.first_odd is None else self.first_odd
                odd.add(self._place(report))
            else:
                fresh[step] = report
        steps = sorted(fresh)
        if steps:
            kept = bisect_left(self._steps, steps[0])
            self._steps[kept:] = steps
            self.points[kept:] = [(self._place(fresh[it]), fresh[it][1] or 0.0) for it in steps]
            del self.gaps[bisect_left(self.gaps, self.points[kept][0]) :]
        self.gaps = sorted({*self.gaps, *odd})

    def _place(self, report: Report) -> float:
        return report[2] - self._begun_at_s if self._over == TIME else float(report[0])


def metric_chart(metric: str, curves: Mapping[str, Curve], note: str, *, over: str = STEP) -> Chart:
    """A line for each task, by its name."""
    drawn = {name: curve for name, curve in curves.items() if curve.points}
    broken = sum(curve.not_numbers for curve in curves.values())
    first = min((it.first_odd for it in curves.values() if it.first_odd is not None), default=0)
    gaps = (
        f"{plural(broken, 'report')} without a finite number, from step {first}" if broken else ""
    )
    if not drawn:
        return Nothing(metric, gaps or f"nothing has been reported as `{metric}` yet")
    shown = list(drawn)[:LINES_MAX]
    lines = tuple(
        Line(name, tuple(thinned(drawn[name].points)), gaps=tuple(drawn[name].gaps))
        for name in shown
    )
    values = [y for line in lines for _, y in line.points]
    places = [x for line in lines for x, _ in line.points]
    hidden = len(drawn) - len(shown)
    more = f"the first {LINES_MAX} of {len(drawn)}; `--index` picks others" if hidden else ""
    y = roomy(of_numbers(metric, values, log=looks_skewed(values)))
    x = of_numbers("step" if over == STEP else "seconds", places, log=False)
    x = x._replace(whole=over == STEP)
    if x.low == x.high:
        x = roomy(x)
    message = "; ".join(part for part in (note, _last(metric, lines, over), gaps, more) if part)
    return Plane(f"{metric} over {over}", message, x, y, lines)


class Stop(NamedTuple):
    """Of a trial that its search ended early."""

    trial: int
    iteration: int
    value: float
    why: str


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
    dots = tuple(Dot(float(it.iteration), it.value, it.trial, it.why) for it in stops)
    looks = ", ".join(f"{plural(it.trials, 'trial')} at {it.iteration:,}" for it in rungs)
    texts = [f"{it.trial} by {number(it.value)} at {it.iteration:,}" for it in stops]
    parts = [f"came so far: {looks}"]
    parts += (
        [f"stopped: trial {and_more(texts, most=STOPS_MAX)}"] if texts else ["nobody is stopped"]
    )
    names = ("", "stopped by this value", "what it takes to go on")
    return Plane(title, "; ".join(parts), x, y, (line,), dots, names)


def thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most POINTS_MAX: of each stretch the least and the most, so that no spike is lost."""
    if len(points) <= POINTS_MAX:
        return points
    stretch = -(-len(points) * 2 // (POINTS_MAX - 2))
    kept, value = {points[0], points[-1]}, itemgetter(1)
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        kept |= {min(part, key=value), max(part, key=value)}
    return sorted(kept)


def _last(metric: str, lines: Sequence[Line], over: str) -> str:
    """`loss 1.602 at step 2`, of a single line."""
    if len(lines) != 1:
        return ""
    place, value = lines[0].points[-1]
    where = f"at step {number(place)}" if over == STEP else f"after {duration(place)}"
    return f"last {metric} {number(value)} {where}"
