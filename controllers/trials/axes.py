"""Maps the parameters of a search to axes of a unit cube and back; the model of a search works on
these axes. Pure; called by bayes.py and tpe.py.
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

from fleetctl.controllers.trials.points import Names, Point, list_axes, nest_values, quantise_value
from fleetctl.specs.search.distributions import distribution_of

INSIDE = 1e-6  # of a distribution without bounds: how near to its ends a point may lie
BETA_STEPS = 2000
EVERY_MAX = 100_000  # points that are looked through for one that is new
Map = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class SearchAxis:
    """One varying parameter. at: the value at a position in [0, 1). features: the coordinates of a
    value, as numbers; a category has one for each choice. count: how many values there are; None =
    endless. place: the position of each category, by its number. low, high: bounds of a number.
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
        """Returns true for a value within the axis. Raises KeyError for an unknown category,
        TypeError for a value that is not a number.
        """
        self.features(value)
        number = not isinstance(value, bool)
        return self.width > 1 or (number and self.low <= value <= self.high)


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """value: lower is better; None where it is not known, as for a running trial. own: belongs to
    this search; the point of another search's trial may be suggested again, and need not have its
    constants.
    """

    point: Mapping[str, Any]
    value: float | None
    own: bool = True


def is_inside(parameters: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    """Returns true if a point lies in the space, with all of its parameters and no other."""
    vary, fixed = axes_of(parameters)
    try:
        same = all(value_at(point, names) == value for names, value in fixed)
        inside = all(axis.has(value_at(point, axis.names)) for axis in vary)
    except (KeyError, TypeError, ValueError):
        return False
    return same and inside and len(list_axes(parameters)) == _count_leaves(parameters, point)


def axes_of(parameters: Mapping[str, Any]) -> tuple[list[SearchAxis], list[tuple[Names, Any]]]:
    """Returns the varying parameters as axes, and the constant ones with their values."""
    vary: list[SearchAxis] = []
    fixed: list[tuple[Names, Any]] = []
    for names, parameter in list_axes(parameters):
        made = _build_axis(names, parameter)
        if made.count == 1:
            fixed.append((names, made.at(0.0)))
        else:
            vary.append(made)
    return vary, fixed


def value_at(point: Mapping[str, Any], names: Names) -> Any:
    """Returns the value at the path `names` of a point. Raises KeyError for a point of another
    space.
    """
    value: Any = point
    for name in names:
        if not isinstance(value, Mapping):
            raise KeyError(name)
        value = value[name]
    return value


def point_of(
    vary: Sequence[SearchAxis],
    fixed: Sequence[tuple[Names, Any]],
    cube: Sequence[float],
) -> Point:
    values = [(axis.names, axis.at(float(place))) for axis, place in zip(vary, cube, strict=True)]
    return nest_values(iter(sorted([*values, *fixed], key=lambda it: it[0])))


def key_of(point: Mapping[str, Any]) -> str:
    """Returns a text that is equal for equal points alone."""
    return json.dumps(point, sort_keys=True)


def features_of(vary: Sequence[SearchAxis], point: Mapping[str, Any]) -> list[float] | None:
    """Returns None for a point of another space: the search was changed."""
    try:
        return [it for axis in vary for it in axis.features(value_at(point, axis.names))]
    except (KeyError, TypeError, ValueError):
        return None


def first_new(
    vary: Sequence[SearchAxis],
    fixed: Sequence[tuple[Names, Any]],
    cubes: Iterable[Sequence[float]],
    taken: Container[str],
) -> Point | None:
    """Returns the first of these positions whose point is not taken, else any free point of the
    space.
    """
    for cube in cubes:
        point = point_of(vary, fixed, cube)
        if key_of(point) not in taken:
            return point
    for at, point in enumerate(list_points(vary, fixed)):
        if key_of(point) not in taken:
            return point
        if at == EVERY_MAX:
            break
    return None


def _count_leaves(parameters: Mapping[str, Any], point: Mapping[str, Any]) -> int:
    """Counts the values of a point, with nested groups of parameters flattened."""
    return sum(
        _count_leaves(parameters[name]["parameters"], value)
        if "parameters" in parameters.get(name, {})
        else 1
        for name, value in point.items()
    )


def list_points(vary: Sequence[SearchAxis], fixed: Sequence[tuple[Names, Any]]) -> Iterator[Point]:
    """Yields every point of a countable space; an empty iterator for any other."""
    counts = [axis.count for axis in vary if axis.count is not None]
    if len(counts) < len(vary):
        return
    for number in range(math.prod(counts)):
        cube: list[float] = []
        for axis, count in zip(vary, counts, strict=True):
            number, at = divmod(number, count)
            cube.append(axis.place(at))
        yield point_of(vary, fixed, cube)


def _build_axis(names: Names, parameter: Mapping[str, Any]) -> SearchAxis:
    distribution = distribution_of(parameter)
    assert distribution is not None, "the loader refuses a parameter without a distribution"
    keys = {**distribution.defaults, **parameter}
    match distribution.name:
        case "constant":
            return SearchAxis(
                names,
                lambda _: keys["value"],
                lambda _: (),
                0,
                1,
            )
        case "categorical":
            return _build_category(names, keys["values"], [1.0] * len(keys["values"]))
        case "categorical_w_probabilities":
            return _build_category(names, keys["values"], keys["probabilities"])
        case "int_uniform":
            low = keys["min"]
            count = keys["max"] - keys["min"] + 1
            return SearchAxis(
                names,
                lambda u: low + min(int(u * count), count - 1),
                lambda value: ((_require_whole(value) - low + 0.5) / count,),
                1,
                count,
                lambda at: (at + 0.5) / count,
                low,
                keys["max"],
            )
    into, back = _build_scale(distribution.name.removeprefix("q_"), keys)
    low = keys.get("min", -math.inf)
    high = keys.get("max", math.inf)

    def features(value: Any) -> Sequence[float]:
        return (min(max(into(value), 0.0), 1.0),)

    if "q" not in distribution.defaults:
        return SearchAxis(
            names,
            back,
            features,
            1,
            low=low,
            high=high,
        )
    q = keys["q"]
    return SearchAxis(
        names,
        lambda u: quantise_value(back(u), q),
        features,
        1,
        *_count_multiples(low, high, q, into),
        low=low - q,  # a multiple may lie just outside
        high=high + q,
    )


def _require_whole(value: float) -> float:
    if value % 1:
        raise ValueError(value)
    return value


def _count_multiples(
    low: float,
    high: float,
    q: float,
    into: Map,
) -> tuple[int | None, Callable[[int], float]]:
    """Returns how many multiples of q lie between two bounds, and the value of each."""
    if not (math.isfinite(low / q) and math.isfinite(high / q)):
        return None, lambda _: 0.0
    first = round(low / q)
    return (
        round(high / q) - first + 1,
        lambda at: min(max(into(min(max((first + at) * q, low), high)), 0.0), 1.0),
    )


def _build_category(
    names: Names,
    values: Sequence[Any],
    weights: Sequence[float],
) -> SearchAxis:
    """Builds an axis of categories. They are compared as JSON, so that 0, false and "" are distinct
    categories. A value with weight 0 is left out, as it is never drawn.
    """
    kept: dict[str, tuple[Any, float]] = {}
    for value, weight in zip(values, weights, strict=True):
        text = json.dumps(value, sort_keys=True)
        if weight > 0:
            _, before = kept.get(text, (value, 0.0))
            kept[text] = (value, before + weight)

    order = {text: at for at, text in enumerate(kept)}
    found = [value for value, _ in kept.values()]
    ends = list(accumulate(weight for _, weight in kept.values()))

    def features(value: Any) -> list[float]:
        place = order[json.dumps(value, sort_keys=True)]
        return [1.0 if at == place else 0.0 for at in range(len(found))]

    def at(u: float) -> Any:
        return found[min(bisect_right(ends, u * ends[-1]), len(found) - 1)]

    def place(at: int) -> float:
        if at:
            return (ends[at - 1] + ends[at]) / 2 / ends[-1]
        return ends[0] / 2 / ends[-1]

    return SearchAxis(
        names,
        at,
        features,
        len(found),
        len(found),
        place,
    )


def _build_scale(name: str, keys: Mapping[str, Any]) -> tuple[Map, Map]:
    """Returns (cumulative distribution, its inverse) of a distribution of numbers."""
    match name:
        case "uniform":
            return _linear_scale(float(keys["min"]), float(keys["max"]))
        case "log_uniform_values" | "inv_log_uniform_values":
            low = float(keys["min"])
            high = float(keys["max"])
            into, back = _linear_scale(math.log(low), math.log(high))
            return (
                lambda value: into(math.log(max(value, low))),
                lambda u: min(max(math.exp(back(u)), low), high),
            )
        case "normal":
            bell = NormalDist(keys["mu"], keys["sigma"])
            return bell.cdf, lambda u: bell.inv_cdf(_clip_inside(u))
        case "log_normal":
            bell = NormalDist(keys["mu"], keys["sigma"])
            return (
                lambda value: bell.cdf(math.log(value)) if value > 0 else 0.0,
                lambda u: math.exp(min(bell.inv_cdf(_clip_inside(u)), 709.0)),
            )
        case "beta":
            return _beta_scale(float(keys["a"]), float(keys["b"]))
    raise AssertionError(f"`{name}` is not a distribution of numbers; the loader refuses it")


def _linear_scale(low: float, high: float) -> tuple[Map, Map]:
    return (
        lambda value: (value - low) / (high - low),
        lambda u: min(max(low * (1 - u) + high * u, low), high),
    )


def _clip_inside(u: float) -> float:
    return min(max(u, INSIDE), 1.0 - INSIDE)


def _beta_scale(a: float, b: float) -> tuple[Map, Map]:
    """Returns the maps of a beta distribution by a table: the inverse has no closed form."""
    places = [(step + 0.5) / BETA_STEPS for step in range(BETA_STEPS)]
    logs = [(a - 1) * math.log(x) + (b - 1) * math.log1p(-x) for x in places]
    top = max(logs)
    sums = list(accumulate(math.exp(it - top) for it in logs))

    def back(u: float) -> float:
        return places[min(bisect_right(sums, u * sums[-1]), BETA_STEPS - 1)]

    def into(value: float) -> float:
        return sums[min(bisect_right(places, value), BETA_STEPS - 1)] / sums[-1]

    return into, back
