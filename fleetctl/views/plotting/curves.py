"""The metrics of tasks over their steps. Called by gather; pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from fleetctl.common.text import and_more, count_noun, format_duration
from fleetctl.views.plotting.charts import Chart, ChartDot, ChartLine, EmptyChart, PlaneChart
from fleetctl.views.plotting.scales import format_number, looks_skewed, of_numbers, widen_scale

# No screen has more columns, and a page stays small.
POINTS_MAX = 1000
STOPS_MAX = 8  # that a line under a drawing names
RESTARTS_MAX = 6  # that a line under a drawing names; the marks show all
LINES_MAX = 8  # that colours and characters distinguish

STEP = "step"
TIME = "time"

Points = list[tuple[float, float]]
# Step, value (None: not a number), seconds since the epoch.
Report = tuple[int, float | None, float]


class TaskCurve:
    """One metric of one task, attempt after attempt: a later one takes over where it begins.

    A run that restarts from a checkpoint reports some steps again; the later reports count. over:
    `time` draws it over the seconds since its first attempt began.
    """

    def __init__(self, over: str = STEP, begun_at_s: float = 0.0) -> None:
        self.points: Points = []
        self.gaps: list[float] = []  # positions of reports without a number, ascending
        self.not_numbers = 0
        self.first_odd: int | None = None  # the first step without a number
        self.restarts: Points = []  # the first points of later attempts, ascending
        self._over = over
        self._begun_at_s = begun_at_s
        self._steps: list[int] = []  # of the points

    def add(self, reports: Iterable[Report]) -> None:
        """Adds an attempt's reports, in its order."""
        fresh = dict[int, Report]()
        odd = set[float]()
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
            later = bool(self._steps)
            self._steps[kept:] = steps
            self.points[kept:] = [(self._place(fresh[it]), fresh[it][1] or 0.0) for it in steps]
            first = self.points[kept]
            del self.gaps[bisect_left(self.gaps, first[0]) :]
            # The mark of an attempt whose reports do not count any more would be beside the line.
            self.restarts = [it for it in self.restarts if it[0] < first[0]]
            self.restarts += [first] if later else []
        self.gaps = sorted({*self.gaps, *odd})

    def _place(self, report: Report) -> float:
        if self._over == TIME:
            return report[2] - self._begun_at_s
        return float(report[0])


def metric_chart(
    metric: str,
    curves: Mapping[str, TaskCurve],
    note: str,
    *,
    over: str = STEP,
) -> Chart:
    """Returns a line for each task, by its name."""
    drawn = {name: curve for name, curve in curves.items() if curve.points}
    broken = sum(curve.not_numbers for curve in curves.values())
    first = min((it.first_odd for it in curves.values() if it.first_odd is not None), default=0)
    gaps = (
        f"{count_noun(broken, 'report')} without a finite number, from step {first}"
        if broken
        else ""
    )
    if not drawn:
        return EmptyChart(metric, gaps or f"nothing has been reported as `{metric}` yet")
    shown = list(drawn)[:LINES_MAX]
    lines = tuple(
        ChartLine(
            name,
            tuple(thin_points(drawn[name].points)),
            gaps=tuple(drawn[name].gaps),
            restarts=tuple(drawn[name].restarts),
        )
        for name in shown
    )
    values = [y for line in lines for _, y in line.points]
    places = [x for line in lines for x, _ in line.points]
    hidden = len(drawn) - len(shown)
    more = f"the first {LINES_MAX} of {len(drawn)}; `--index` picks others" if hidden else ""
    y = widen_scale(of_numbers(metric, values, log=looks_skewed(values)))
    x = of_numbers("step" if over == STEP else "seconds", places, log=False)
    x = x._replace(whole=over == STEP)
    if x.low == x.high:
        x = widen_scale(x)
    message = "; ".join(
        part
        for part in (
            note,
            _describe_last(metric, lines, over),
            _describe_restarts(lines, over),
            gaps,
            more,
        )
        if part
    )
    return PlaneChart(
        f"{metric} over {over}",
        message,
        x,
        y,
        lines,
    )


class EarlyStop(NamedTuple):
    """A trial that its search ended early."""

    trial: int
    iteration: int
    value: float
    why: str


class Rung(NamedTuple):
    """One look of the search: how many trials came so far, and the value needed to continue."""

    iteration: int
    trials: int
    threshold: float


def rungs_chart(
    metric: str,
    rungs: Sequence[Rung],
    stops: Sequence[EarlyStop],
) -> Chart:
    """Returns the looks of a search, ascending, and the stopped trials with their values."""
    title = "early stops"
    if not rungs:
        return EmptyChart(title, f"no trial has reported `{metric}` often enough to be judged")
    values = [it.threshold for it in rungs] + [it.value for it in stops]
    places = [float(it.iteration) for it in rungs] + [float(it.iteration) for it in stops]
    y = widen_scale(of_numbers(metric, values, log=looks_skewed(values)))
    x = of_numbers("iteration", places, log=min(places) > 0)._replace(whole=True)
    x = widen_scale(x) if x.low == x.high else x
    line = ChartLine("threshold", tuple((float(it.iteration), it.threshold) for it in rungs))
    dots = tuple(ChartDot(float(it.iteration), it.value, it.trial, it.why) for it in stops)
    looks = ", ".join(f"{count_noun(it.trials, 'trial')} at {it.iteration:,}" for it in rungs)
    texts = [f"{it.trial} by {format_number(it.value)} at {it.iteration:,}" for it in stops]
    parts = [f"came so far: {looks}"]
    parts += [f"stopped: trial {and_more(texts, most=STOPS_MAX)}"] if texts else ["none is stopped"]
    names = ("", "stopped by this value", "what it takes to go on")
    return PlaneChart(
        title,
        "; ".join(parts),
        x,
        y,
        (line,),
        dots,
        names,
    )


def thin_points(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Returns at most POINTS_MAX: of each stretch the least and the most, so that no spike is
    lost."""
    if len(points) <= POINTS_MAX:
        return points
    stretch = -(-len(points) * 2 // (POINTS_MAX - 2))
    kept = {points[0], points[-1]}
    value = itemgetter(1)
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        kept |= {min(part, key=value), max(part, key=value)}
    return sorted(kept)


def _describe_last(
    metric: str,
    lines: Sequence[ChartLine],
    over: str,
) -> str:
    """Returns `loss 1.602 at step 2`, of a single line."""
    if len(lines) != 1:
        return ""
    place, value = lines[0].points[-1]
    return f"last {metric} {format_number(value)} {_format_place(place, over)}"


def _describe_restarts(lines: Sequence[ChartLine], over: str) -> str:
    """Returns `restarts: a at step 40, b at step 8`; of a single line `restarted at step 40`."""
    parts = []
    for line in lines:
        name = f"{line.name} " if len(lines) > 1 else ""
        parts += [f"{name}{_format_place(x, over)}" for x, _ in line.restarts]
    if not parts:
        return ""
    word = "restarts:" if len(lines) > 1 else "restarted"
    return f"{word} {and_more(parts, most=RESTARTS_MAX)}"


def _format_place(place: float, over: str) -> str:
    if over == STEP:
        return f"at step {format_number(place)}"
    return f"after {format_duration(place)}"
