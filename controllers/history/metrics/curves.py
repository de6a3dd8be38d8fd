"""What the trials of a search reported of its metric, as far as decisions need it: of each how many
values, the best one, and those at the bands. A million reports cost a few numbers. Pure.

Fed by the engine as reports arrive and as they are read back; read by kinds.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from fleetctl.controllers.model import Metric

# Who reports every step, or every tenth, needs one; irregular steps that need more are not kept.
STRIDES_MAX = 32


@dataclass(slots=True)
class Stride:
    """`count` steps from `first` on, `by` apart."""

    first: int
    by: int
    count: int

    @property
    def last(self) -> int:
        return self.first + self.by * (self.count - 1)


class Steps:
    """At which steps an attempt reported, as long as these only grow: a few numbers."""

    def __init__(self) -> None:
        self._strides: list[Stride] | None = []

    def add(self, step: int) -> None:
        strides = self._strides
        if strides is None:
            return
        end = strides[-1] if strides else None
        if end is None:
            strides.append(Stride(step, 1, 1))
        elif step <= end.last or len(strides) > STRIDES_MAX:
            self._strides = None
        elif end.count == 1 or step == end.last + end.by:
            end.by, end.count = step - end.last, end.count + 1
        else:
            strides.append(Stride(step, 1, 1))

    def below(self, step: int) -> int:
        """How many are less than `step`; 0 where that is not known."""
        return sum(
            min(it.count, -(-(step - it.first) // it.by))
            for it in self._strides or ()
            if it.first < step
        )

    def cut(self, step: int) -> Steps:
        """Those below `step`."""
        kept = Steps()
        kept._strides = [
            Stride(it.first, it.by, min(it.count, -(-(step - it.first) // it.by)))
            for it in self._strides or ()
            if it.first < step
        ]
        return kept


@dataclass(slots=True)
class Curve:
    """Of one attempt. Another one of the same unit begins anew, unless its first step says that it
    resumes: then what was reported before that step stands. Lower values are better.
    """

    run: str
    seq: int = -1  # of the last value that was taken
    steps: Steps = field(default_factory=Steps)
    count: int = 0
    best: float = math.inf
    worst: float = -math.inf
    last: float = math.inf
    at: list[float] = field(default_factory=list)  # the value at each band that it has passed


class Curves:
    """name: of the metric. bands: counts of values, ascending, at which units are compared. target:
    a value that ends the search.
    """

    def __init__(
        self, name: str, *, maximize: bool, bands: Sequence[int], target: float | None = None
    ) -> None:
        self.name, self.bands = name, bands
        self._sign = -1.0 if maximize else 1.0
        self._target = -math.inf if target is None else self._sign * target
        self._curves: dict[int, Curve] = {}  # by unit: of the newest attempt that reported
        self._runs: dict[str, Curve] = {}  # the same by run
        self._passed: list[list[float]] = []  # by band: values of the units that passed it, sorted

    def take(self, index: int, run: str, metrics: Iterable[Metric]) -> bool:
        """What the attempt `run` of a unit reported; what is told again is taken once. True when a
        decision may follow: a band was passed, the target reached, or an attempt has resumed.
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

    def of(self, run: str) -> Curve | None:
        """None of an attempt that reported nothing yet, and of one that another has followed."""
        return self._runs.get(run)

    @property
    def reached(self) -> bool:
        """Whether a unit reported a value as good as the target, be it for a moment."""
        return any(curve.best <= self._target for curve in self._curves.values())

    def newest(self, index: int) -> Curve | None:
        """Of the newest attempt of a unit that has reported."""
        return self._curves.get(index)

    def passed(self, band: int) -> Sequence[float]:
        """The values at a band, by its place in `bands`, the best first."""
        return self._passed[band] if band < len(self._passed) else ()

    def shown(self, value: float) -> float:
        """As it was reported."""
        return self._sign * value

    def rungs(self) -> Iterator[tuple[int, Sequence[float]]]:
        """Each band that a unit has passed, with its values."""
        yield from zip(self.bands, self._passed, strict=False)

    def _curve(self, index: int, run: str, step: int) -> Curve:
        """Of the attempt that now reports at `step`."""
        known = self._curves.get(index)
        if known is not None and known.run == run:
            return known
        made = Curve(run)
        if known is not None:
            del self._runs[known.run]
            made = _resumed(known, run, step, self.bands)
            for values, value in list(zip(self._passed, known.at, strict=False))[len(made.at) :]:
                del values[bisect_left(values, value)]
        self._curves[index] = self._runs[run] = made
        return made

    def _add(self, curve: Curve, step: int, value: float) -> bool:
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


def _resumed(known: Curve, run: str, step: int, bands: Sequence[int]) -> Curve:
    """The curve of an attempt that follows another one and first reports at `step`."""
    count = known.steps.below(step)
    if not count:
        return Curve(run)
    # Of values that are reported once more the extremes stay: they were reached.
    return replace(
        known,
        run=run,
        seq=-1,
        steps=known.steps.cut(step),
        count=count,
        at=known.at[: bisect_right(bands, count)],
    )
