"""Keeps the reports of a search's metric, as far as decisions need them: for each trial the best
value, and the values at the steps that an early end looks at.

Kinds read the curves; the engine feeds them with reports as these arrive and as they are read
back. Steps are kept as strides, so that a million reports take a few numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from fleetctl.controllers.model import Metric

# A program that reports every step, or every tenth, needs one stride; irregular steps that need
# more strides are not kept.
STRIDES_MAX = 32


@dataclass(slots=True)
class StepStride:
    """`count` steps from `first` on, `by` apart."""

    first: int
    by: int
    count: int

    @property
    def last(self) -> int:
        return self.first + self.by * (self.count - 1)


class ReportedSteps:
    """At which steps an attempt reported, as long as these only grow: a few numbers."""

    def __init__(self) -> None:
        self._strides: list[StepStride] | None = []

    def add(self, step: int) -> None:
        strides = self._strides
        if strides is None:
            return
        end = strides[-1] if strides else None
        if end is None:
            strides.append(StepStride(step, 1, 1))
        elif step <= end.last or len(strides) > STRIDES_MAX:
            self._strides = None
        elif end.count == 1 or step == end.last + end.by:
            end.by = step - end.last
            end.count = end.count + 1
        else:
            strides.append(StepStride(step, 1, 1))

    def below(self, step: int) -> int:
        """Counts the steps less than `step`; 0 where that is not known."""
        return sum(
            min(it.count, -(-(step - it.first) // it.by))
            for it in self._strides or ()
            if it.first < step
        )

    def cut(self, step: int) -> ReportedSteps:
        """Returns the steps below `step`."""
        kept = ReportedSteps()
        kept._strides = [
            StepStride(it.first, it.by, min(it.count, -(-(step - it.first) // it.by)))
            for it in self._strides or ()
            if it.first < step
        ]
        return kept


@dataclass(slots=True)
class MetricCurve:
    """The reports of an attempt. Another attempt of the same unit starts empty, unless its first
    step shows that it resumes: then the reports before that step stay. Lower values are better.
    """

    run: str
    seq: int = -1  # of the last value that was taken
    steps: ReportedSteps = field(default_factory=ReportedSteps)
    count: int = 0
    best: float = math.inf
    worst: float = -math.inf
    last: float = math.inf
    at: list[float] = field(default_factory=list)  # the value at each band that it has passed


class MetricCurves:
    """name: of the metric. bands: counts of values, ascending, at which units are compared. target:
    a value that ends the search.
    """

    def __init__(
        self,
        name: str,
        *,
        maximize: bool,
        bands: Sequence[int],
        target: float | None = None,
    ) -> None:
        self.name = name
        self.bands = bands
        self._sign = -1.0 if maximize else 1.0
        self._target = -math.inf if target is None else self._sign * target
        self._curves: dict[int, MetricCurve] = {}  # by unit: of the newest attempt that reported
        self._runs: dict[str, MetricCurve] = {}  # the same by run
        self._passed: list[list[float]] = []  # by band: values of the units that passed it, sorted

    def take(
        self,
        index: int,
        run: str,
        metrics: Iterable[Metric],
    ) -> bool:
        """Adds reports of the attempt `run` of a unit; a repeated report is taken once. Returns
        True when a decision may follow: a band was passed, the target reached, or an attempt has
        resumed.
        """
        due = False
        for it in metrics:
            if it.name != self.name or not math.isfinite(it.value):
                continue
            curve = self._curve(index, run, it.step)
            if it.seq > curve.seq:
                due |= curve.seq < 0 and bool(curve.at)  # it resumes, and others went on meanwhile
                curve.seq = it.seq
                due |= self._add(curve, it.step, self._sign * it.value)
        return due

    def of(self, run: str) -> MetricCurve | None:
        """Returns None for an attempt without a report, and for one that another has followed."""
        return self._runs.get(run)

    @property
    def reached(self) -> bool:
        """Returns true if a unit has reported a value as good as the target, if only once."""
        return any(curve.best <= self._target for curve in self._curves.values())

    def newest(self, index: int) -> MetricCurve | None:
        """Returns the curve of the newest attempt of a unit that has reported."""
        return self._curves.get(index)

    def passed(self, band: int) -> Sequence[float]:
        """Returns the values at a band, by its index in `bands`, the best first."""
        if band < len(self._passed):
            return self._passed[band]
        return ()

    def shown(self, value: float) -> float:
        """Returns the value as it was reported."""
        return self._sign * value

    def rungs(self) -> Iterator[tuple[int, Sequence[float]]]:
        """Yields each band that a unit has passed, with its values."""
        yield from zip(self.bands, self._passed, strict=False)

    def _curve(
        self,
        index: int,
        run: str,
        step: int,
    ) -> MetricCurve:
        """Returns the curve of the attempt that now reports at `step`."""
        known = self._curves.get(index)
        if known is not None and known.run == run:
            return known
        made = MetricCurve(run)
        if known is not None:
            del self._runs[known.run]
            made = _resume_curve(known, run, step, self.bands)
            for values, value in list(zip(self._passed, known.at, strict=False))[len(made.at) :]:
                del values[bisect_left(values, value)]
        self._curves[index] = self._runs[run] = made
        return made

    def _add(
        self,
        curve: MetricCurve,
        step: int,
        value: float,
    ) -> bool:
        curve.steps.add(step)
        curve.count += 1
        curve.best, curve.worst = min(curve.best, value), max(curve.worst, value)
        curve.last = value
        due = value <= self._target
        while len(curve.at) < len(self.bands) and self.bands[len(curve.at)] == curve.count:
            if len(curve.at) == len(self._passed):
                self._passed.append([])
            insort(self._passed[len(curve.at)], value)
            curve.at.append(value)
            due = True
        return due


def _resume_curve(
    known: MetricCurve,
    run: str,
    step: int,
    bands: Sequence[int],
) -> MetricCurve:
    """Returns the curve of an attempt that follows another one and first reports at `step`."""
    count = known.steps.below(step)
    if not count:
        return MetricCurve(run)
    # When values are reported once more, the extremes stay: they were reached.
    return replace(
        known,
        run=run,
        seq=-1,
        steps=known.steps.cut(step),
        count=count,
        at=known.at[: bisect_right(bands, count)],
    )
