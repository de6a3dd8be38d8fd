"""What the trials of a search reported of its metric, as far as decisions need it: of each how many
values, the best one, and those at the bands. A million reports cost a few numbers. Pure.

Fed by the engine as reports arrive and as they are read back; read by kinds.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fleetctl.controllers.model import Metric


@dataclass(slots=True)
class Curve:
    """Of one attempt: another one of the same unit begins anew. Lower values are better."""

    run: str
    seq: int = -1  # of the last value that was taken
    count: int = 0
    best: float = math.inf
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
        decision may follow: a band was passed, or the target reached.
        """
        due = False
        for it in metrics:
            if it.name != self.name or not math.isfinite(it.value):
                continue
            curve = self._curve(index, run)
            if it.seq > curve.seq:
                curve.seq = it.seq
                due |= self._add(curve, self._sign * it.value)
        return due

    def of(self, run: str) -> Curve | None:
        """None of an attempt that reported nothing yet, and of one that another has followed."""
        return self._runs.get(run)

    @property
    def reached(self) -> bool:
        """Whether a unit reported a value as good as the target, be it for a moment."""
        return any(curve.best <= self._target for curve in self._curves.values())

    def passed(self, band: int) -> Sequence[float]:
        """The values at a band, by its place in `bands`, the best first."""
        return self._passed[band] if band < len(self._passed) else ()

    def shown(self, value: float) -> float:
        """As it was reported."""
        return self._sign * value

    def rungs(self) -> Iterator[tuple[int, Sequence[float]]]:
        """Each band that a unit has passed, with its values."""
        yield from zip(self.bands, self._passed, strict=False)

    def _curve(self, index: int, run: str) -> Curve:
        known = self._curves.get(index)
        if known is not None and known.run == run:
            return known
        if known is not None:
            del self._runs[known.run]
            for values, value in zip(self._passed, known.at, strict=False):
                del values[bisect_left(values, value)]
        self._curves[index] = self._runs[run] = made = Curve(run)
        return made

    def _add(self, curve: Curve, value: float) -> bool:
        curve.count += 1
        curve.best = min(curve.best, value)
        due = value <= self._target
        while len(curve.at) < len(self.bands) and self.bands[len(curve.at)] == curve.count:
            if len(curve.at) == len(self._passed):
                self._passed.append([])
            insort(self._passed[len(curve.at)], value)
            curve.at.append(value)
            due = True
        return due
