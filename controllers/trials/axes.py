"""The parameters of a search as axes of a unit cube, and back: what a model of a search works on.
Pure; called by bayes.py and tpe.py.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist
from typing import Any

from fleetctl.controllers.trials.points import Names, Point, axes, nested, quantised
from fleetctl.specs.search.distributions import distribution_of

INSIDE = 1e-6  # of a distribution without bounds: how near to its ends a point may lie
BETA_STEPS = 2000
EVERY_MAX = 100_000  # points that are looked through for one that is new
Map = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Axis:
    """at: the value at a place in [0, 1). features: where a value lies, as numbers; of a category
    one for each of them. count: how many values there are; None = endless. place: of each of them,
    by its number. low, high: of numbers that have bounds.
    """

    names: Names
    at: Callable[[float], Any]
    features: Callable[[Any], Sequence[float]]
    width: int
    count: int | None = None
    place: Callable[[int], float] = lambda _: 0.0
    low: float = -math.inf
    high: float = math.inf

    def has(self, value: Any) -> bool:
        """Raises KeyError for a category that there is not, TypeError for what is no number."""
        self.features(value)
        number = not isinstance(value, bool)
        return self.width > 1 or (number and self.low <= value <= self.high)


@dataclass(frozen=True, slots=True)
class Trial:
    """value: lower is better; None where it is not known, as of a trial that runs. own: of this
    search; the point of another one's trial may be asked again, and need not have its constants.
    """

    point: Mapping[str, Any]
    value: float | None
    own: bool = True


def fits(parameters: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    """Whether a point lies in the space, with all of its parameters and no other."""
    vary, fixed = axes_of(parameters)
    try:
        same = all(value_at(point, names) == value for names, value in fixed)
        inside = all(axis.has(value_at(point, axis.names)) for axis in vary)
    except (KeyError, TypeError, ValueError):
        return False
    return same and inside and len(axes(parameters)) == _leaves(parameters, point)


def axes_of(parameters: Mapping[str, Any]) -> tuple[list[Axis], list[tuple[Names, Any]]]:
    """What varies, and what does not with its value."""
    vary: list[Axis] = []
    fixed: list[tuple[Names, Any]] = []
    for names, parameter in axes(parameters):
        made = _axis(names, parameter)
        if made.count == 1:
            fixed.append((names, made.at(0.0)))
        else:
            vary.append(made)
    return vary, fixed


def value_at(point: Mapping[str, Any], names: Names) -> Any:
    """Raises KeyError for a point of another space."""
    value: Any = point
    for name in names:
        if not isinstance(value, Mapping):
            raise KeyError(name)
        value = value[name]
    return value


def point_of(
    vary: Sequence[Axis], fixed: Sequence[tuple[Names, Any]], cube: Sequence[float]
) -> Point:
    values = [(axis.names, axis.at(float(place))) for axis, place in zip(vary, cube, strict=True)]
    return nested(iter(sorted([*values, *fixed], key=lambda it: it[0])))


def key_of(point: Mapping[str, Any]) -> str:
    """Equal for equal points alone."""
    return json.dumps(point, sort_keys=True)


def features_of(vary: Sequence[Axis], point: Mapping[str, Any]) -> list[float] | None:
    """None for a point of another space: the search was changed."""
    try:
        return [it for axis in vary for it in axis.features(value_at(point, axis.names))]
    except (KeyError, TypeError, ValueError):
        return None


def first_new(
    vary: Sequence[Axis],
    fixed: Sequence[tuple[Names, Any]],
    cubes: Iterable[Sequence[float]],
    taken: Container[str],
) -> Point | None:
    """The first of these places whose point is not taken, else any such of the space."""
    for cube in cubes:
        point = point_of(vary, fixed, cube)
        if key_of(point) not in taken:
            return point
    for at, point in enumerate(every_point(vary, fixed)):
        if key_of(point) not in taken:
            return point
        if at == EVERY_MAX:
            break
    return None


def _leaves(parameters: Mapping[str, Any], point: Mapping[str, Any]) -> int:
    """How many values a point has, where groups of parameters are groups of it."""
    return sum(
        _leaves(parameters[name]["parameters"], value)
        if "parameters" in parameters.get(name, {})
        else 1
        for name, value in point.items()
    )


def every_point(vary: Sequence[Axis], fixed: Sequence[tuple[Names, Any]]) -> Iterator[Point]:
    """All of a space whose values can be counted; nothing of another one."""
    counts = [axis.count for axis in vary if axis.count is not None]
    if len(counts) < len(vary):
        return
    for number in range(math.prod(counts)):
        cube: list[float] = []
        for axis, count in zip(vary, counts, strict=True):
            number, at = divmod(number, count)
            cube.append(axis.place(at))
        yield point_of(vary, fixed, cube)


def _axis(names: Names, parameter: Mapping[str, Any]) -> Axis:
    distribution = distribution_of(parameter)
    assert distribution is not None, "the loader refuses a parameter without a distribution"
    keys = {**distribution.defaults, **parameter}
    match distribution.name:
        case "constant":
            return Axis(names, lambda _: keys["value"], lambda _: (), 0, 1)
        case "categorical":
            return _category(names, keys["values"], [1.0] * len(keys["values"]))
        case "categorical_w_probabilities":
            return _category(names, keys["values"], keys["probabilities"])
        case "int_uniform":
            low, count = keys["min"], keys["max"] - keys["min"] + 1
            return Axis(
                names,
                lambda u: low + min(int(u * count), count - 1),
                lambda value: ((_whole(value) - low + 0.5) / count,),
                1,
                count,
                lambda at: (at + 0.5) / count,
                low,
                keys["max"],
            )
    into, back = _scale(distribution.name.removeprefix("q_"), keys)
    low, high = keys.get("min", -math.inf), keys.get("max", math.inf)

    def features(value: Any) -> Sequence[float]:
        return (min(max(into(value), 0.0), 1.0),)

    if "q" not in distribution.defaults:
        return Axis(names, back, features, 1, low=low, high=high)
    q = keys["q"]
    return Axis(
        names,
        lambda u: quantised(back(u), q),
        features,
        1,
        *_multiples(low, high, q, into),
        low=low - q,  # a multiple may lie just outside
        high=high + q,
    )


def _whole(value: float) -> float:
    if value % 1:
        raise ValueError(value)
    return value


def _multiples(
    low: float, high: float, q: float, into: Map
) -> tuple[int | None, Callable[[int], float]]:
    """How many values q leaves between two bounds, and where each lies."""
    if not (math.isfinite(low / q) and math.isfinite(high / q)):
        return None, lambda _: 0.0
    first = round(low / q)
    return (
        round(high / q) - first + 1,
        lambda at: min(max(into(min(max((first + at) * q, low), high)), 0.0), 1.0),
    )


def _category(names: Names, values: Sequence[Any], weights: Sequence[float]) -> Axis:
    """Told apart as JSON is, so that 0, false and "" are categories as any other. What is never
    drawn is none.
    """
    kept: dict[str, tuple[Any, float]] = {}
    for value, weight in zip(values, weights, strict=True):
        text = json.dumps(value, sort_keys=True)
        if weight > 0:
            kept[text] = (value, weight + kept.get(text, (value, 0.0))[1])
    order = {text: at for at, text in enumerate(kept)}
    found = [value for value, _ in kept.values()]
    ends = list(accumulate(weight for _, weight in kept.values()))

    def features(value: Any) -> list[float]:
        place = order[json.dumps(value, sort_keys=True)]
        return [1.0 if at == place else 0.0 for at in range(len(found))]

    def at(u: float) -> Any:
        return found[min(bisect_right(ends, u * ends[-1]), len(found) - 1)]

    def place(at: int) -> float:
        return (ends[at - 1] + ends[at]) / 2 / ends[-1] if at else ends[0] / 2 / ends[-1]

    return Axis(names, at, features, len(found), len(found), place)


def _scale(name: str, keys: Mapping[str, Any]) -> tuple[Map, Map]:
    """(cumulative distribution, its inverse) of a distribution of numbers."""
    match name:
        case "uniform":
            return _between(float(keys["min"]), float(keys["max"]))
        case "log_uniform_values" | "inv_log_uniform_values":
            low, high = float(keys["min"]), float(keys["max"])
            into, back = _between(math.log(low), math.log(high))
            return (
                lambda value: into(math.log(max(value, low))),
                lambda u: min(max(math.exp(back(u)), low), high),
            )
        case "normal":
            bell = NormalDist(keys["mu"], keys["sigma"])
            return bell.cdf, lambda u: bell.inv_cdf(_inside(u))
        case "log_normal":
            bell = NormalDist(keys["mu"], keys["sigma"])
            return (
                lambda value: bell.cdf(math.log(value)) if value > 0 else 0.0,
                lambda u: math.exp(min(bell.inv_cdf(_inside(u)), 709.0)),
            )
        case "beta":
            return _beta(float(keys["a"]), float(keys["b"]))
    raise AssertionError(f"`{name}` is not a distribution of numbers; the loader refuses it")


def _between(low: float, high: float) -> tuple[Map, Map]:
    return (
        lambda value: (value - low) / (high - low),
        lambda u: min(max(low * (1 - u) + high * u, low), high),
    )


def _inside(u: float) -> float:
    return min(max(u, INSIDE), 1.0 - INSIDE)


def _beta(a: float, b: float) -> tuple[Map, Map]:
    """By a table: the inverse has no closed form."""
    places = [(step + 0.5) / BETA_STEPS for step in range(BETA_STEPS)]
    logs = [(a - 1) * math.log(x) + (b - 1) * math.log1p(-x) for x in places]
    top = max(logs)
    sums = list(accumulate(math.exp(it - top) for it in logs))

    def back(u: float) -> float:
        return places[min(bisect_right(sums, u * sums[-1]), BETA_STEPS - 1)]

    def into(value: float) -> float:
        return sums[min(bisect_right(places, value), BETA_STEPS - 1)] / sums[-1]

    return into, back
