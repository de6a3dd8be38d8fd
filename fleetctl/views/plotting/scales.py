"""The position of a value on an axis, and the text beside it. Pure.

A scale of numbers is linear or logarithmic; a scale of words gives each its own position, in equal
steps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

LINEAR = "linear"
LOG = "log"
WORDS = "words"

# For values without a known distribution: this factor from least to most, few values high.
SKEWED_RATIO = 100.0
SKEWED_MIDDLE = 0.1
# For lists such as [16, 32, 64, 128]: equal factors, within this factor of each other, not equal
# steps.
SPACED_RATIO = 8.0
SPACED_EVENLY = 2.5
DIGITS = 4
POWER_MAX = 308  # of ten, as a float
WORD_CHARS_MAX = 40


class AxisTick(NamedTuple):
    """A mark on an axis. position: from 0, where the axis begins, to 1."""

    position: float
    text: str


class AxisScale(NamedTuple):
    """An axis. low, high: the values at the ends. words: those of a scale of words, from its
    beginning. whole: there are no values between 1 and 2.
    """

    name: str
    kind: str
    low: float = 0.0
    high: float = 1.0
    words: tuple[str, ...] = ()
    whole: bool = False

    @property
    def title(self) -> str:
        if self.kind == LOG:
            return f"{self.name} (log)"
        return self.name

    def position(self, value: float | str) -> float:
        """Returns a position from 0 to 1. The value must be of the scale's sort, and within its
        ends."""
        if self.kind == WORDS:
            at = self.words.index(str(value))
            if len(self.words) > 1:
                return at / (len(self.words) - 1)
            return 0.5
        number = float(value)
        if self.high <= self.low:
            return 0.5
        if self.kind == LOG:
            low = math.log(self.low)
            return (math.log(number) - low) / (math.log(self.high) - low)
        # Halves, as the distance of the two largest floats is not a float.
        return (number / 2 - self.low / 2) / (self.high / 2 - self.low / 2)

    def ticks(self, most: int) -> list[AxisTick]:
        """Returns ticks at round values; at most `most`, but for the ends of a scale that has no
        round ones."""
        if self.kind == WORDS:
            return [AxisTick(self.position(word), word) for word in self.words]
        if self.high <= self.low:
            return [AxisTick(0.5, format_number(self.low))]
        values = _list_powers(self, most) if self.kind == LOG else _list_steps(self, most)
        if self.whole:
            values = [value for value in values if value == int(value)]
        if len(values) < 2:
            values = [self.low, self.high]
        texts = _format_distinct(values)
        return [
            AxisTick(self.position(value), text) for value, text in zip(values, texts, strict=True)
        ]


def format_number(value: float) -> str:
    """Returns the digits that matter: `0.9878`, `3e-05`, `64`."""
    whole = abs(value) < 10**6 and value == int(value)
    if whole:
        return str(int(value))
    return f"{value:.{DIGITS}g}"


def of_numbers(
    name: str,
    values: Collection[float],
    *,
    log: bool,
) -> AxisScale:
    """Returns a scale from the least value to the most. log is ignored where a value is not above
    0."""
    low = min(values)
    high = max(values)
    return AxisScale(name, LOG if log and low > 0 else LINEAR, low, high)


def of_words(name: str, values: Iterable[str]) -> AxisScale:
    """Returns words in alphabetical order, so that the plot does not depend on which trial was
    first."""
    return AxisScale(name, WORDS, words=tuple(sorted(set(values))))


def widen_scale(scale: AxisScale) -> AxisScale:
    """Returns the scale with ends a little beyond the values, so that no mark lies on the frame."""
    low = scale.low
    high = scale.high
    if high <= low:
        # Halves first: a value near the largest float must not become infinite.
        spread = abs(low) / 20 or 1.0
        return scale._replace(
            kind=LINEAR,
            low=low - spread,
            high=_clamp_finite(high + spread),
        )
    if scale.kind == LOG:
        factor = math.exp((math.log(high) - math.log(low)) / 20)
        return scale._replace(low=low / factor or low, high=_clamp_finite(high * factor))
    spread = high / 20 - low / 20
    return scale._replace(low=-_clamp_finite(spread - low), high=_clamp_finite(high + spread))


def looks_skewed(values: Collection[float]) -> bool:
    """Returns true where a linear axis would press most of the values to its beginning."""
    ordered = sorted(values)
    if len(ordered) < 3 or ordered[0] <= 0 or ordered[-1] / ordered[0] < SKEWED_RATIO:
        return False
    return ordered[len(ordered) // 2] <= ordered[-1] * SKEWED_MIDDLE


def looks_geometric(values: Collection[float]) -> bool:
    """Returns true where the distinct values, such as 16, 32, 64 or 1e-4, 1e-3, 3e-3, go by
    factors."""
    ordered = sorted(set(values))
    if len(ordered) < 3 or ordered[0] <= 0 or ordered[-1] / ordered[0] < SPACED_RATIO:
        return False
    factors = [math.log(b) - math.log(a) for a, b in pairwise(ordered)]
    steps = [b - a for a, b in pairwise(ordered)]
    even = max(factors) <= SPACED_EVENLY * min(factors)
    return even and max(factors) / min(factors) < max(steps) / min(steps)


def _clamp_finite(value: float) -> float:
    return max(-1.7e308, min(value, 1.7e308))


def _list_steps(scale: AxisScale, most: int) -> list[float]:
    """Returns multiples of 1, 2 or 5 times a power of ten."""
    rough = (scale.high / 2 - scale.low / 2) / max(most - 1, 1) * 2
    power = math.floor(math.log10(rough)) if rough > 0 else -300
    for factor in (1, 2, 5, 10):
        step = factor * 10.0 ** max(power, -300)
        first = math.ceil(scale.low / step - 1e-9)
        last = math.floor(scale.high / step + 1e-9)
        if last - first < most:
            values = [n * step for n in range(first, last + 1)]
            return [value for value in values if scale.low <= value <= scale.high]
    return []


def _list_powers(scale: AxisScale, most: int) -> list[float]:
    """Returns powers of ten, every second or third where there are many; where there are hardly
    any, with 2 and 5 times each.
    """
    first = math.floor(math.log10(scale.low))
    last = math.ceil(math.log10(scale.high))
    last = min(last, POWER_MAX)
    found: list[float] = []
    for factors in ((1,), (1, 2, 5)):
        values = [f * 10.0**n for n in range(first, last + 1) for f in factors]
        inside = [value for value in values if scale.low <= value <= scale.high]
        if len(inside) <= most or factors == (1,):
            found = inside[:: -(-len(inside) // most) or 1]
        if len(found) >= 3:
            break
    return found


def _format_distinct(values: Sequence[float]) -> list[str]:
    """Returns their texts, with more digits where two would read alike."""
    for digits in (DIGITS, 8, 17):
        texts = [format_number(v) if digits == DIGITS else f"{v:.{digits}g}" for v in values]
        if len(set(texts)) == len(texts):
            break
    return texts
