"""Computes the points of a sweep: every point of a grid, or drawn from distributions, by index.

Called by controllers/kinds/sweep.py with a search that specs/kinds/sweep.py has checked. A point is
a pure function of (search, seed, index): each can be computed alone, in any order, after any
restart, and a huge space is free until a point is requested.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from random import Random
from typing import Any, Protocol

from fleetctl.controllers.trials.command import command_line
from fleetctl.specs.search.distributions import NESTED, Distribution, distribution_of

__all__ = [
    "command_line",
    "count_points",
    "grid_point",
    "iterate_points",
    "make_point",
    "random_point",
]

Point = dict[str, Any]
Names = tuple[str, ...]  # down to a parameter
Axis = tuple[Names, Mapping[str, Any]]


class SearchSpace(Protocol):
    """The fields of a W&B configuration that are read here; fleetctl.specs.kinds.sweep.Search has
    them.
    """

    @property
    def method(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Any] | None: ...


# exp() beyond this is not a finite float.
_EXPONENT_MAX = 709.0


def count_points(search: SearchSpace) -> int | None:
    """Returns how many points there are; None when they never end."""
    if search.method != "grid":
        return None
    return math.prod(choices.count for _, choices in _list_grid(search))


def make_point(
    search: SearchSpace,
    *,
    seed: int,
    index: int,
) -> Point:
    """Returns point `index`, from 0, by the search's method. A grid's index must be below its
    size.
    """
    if search.method == "grid":
        return grid_point(search, index)
    return random_point(search, seed, index)


def iterate_points(search: SearchSpace, seed: int) -> Iterator[Point]:
    """Yields all points in order; endless unless the method is grid."""
    if search.method != "grid":
        for index in count():
            yield random_point(search, seed, index)
    axes = _list_grid(search)
    index = 0
    while index < math.prod(choices.count for _, choices in axes):
        yield _grid_point(axes, index)
        index += 1


def grid_point(search: SearchSpace, index: int) -> Point:
    """Returns point `index` of the product of all parameters, sorted by name; the last varies
    fastest.
    """
    return _grid_point(_list_grid(search), index)


def random_point(
    search: SearchSpace,
    seed: int,
    index: int,
) -> Point:
    """Draws every parameter from its distribution.

    Each has randomness of its own, so that adding or removing one leaves the others as they were.
    """
    return nest_values(
        (names, _draw_value(parameter, Random(json.dumps([seed, index, *names]))))  # noqa: S311
        for names, parameter in list_axes(search.parameters or {})
    )


def list_axes(parameters: Mapping[str, Any], above: Names = ()) -> list[Axis]:
    """Returns all parameters, nested ones included, by name."""
    found: list[Axis] = []
    for name in sorted(parameters):
        parameter = parameters[name]
        if NESTED in parameter:
            found.extend(list_axes(parameter[NESTED], (*above, name)))
        else:
            found.append(((*above, name), parameter))
    return found


def nest_values(values: Iterator[tuple[Names, Any]]) -> Point:
    whole: Point = {}
    for names, value in values:
        inner = whole
        for name in names[:-1]:
            inner = inner.setdefault(name, {})
        inner[names[-1]] = value
    return whole


@dataclass(frozen=True, slots=True)
class _GridChoices:
    """The values that a parameter takes in a grid, each once; made on request."""

    count: int
    at: Callable[[int], Any]


def _list_grid(search: SearchSpace) -> list[tuple[Names, _GridChoices]]:
    return [
        (names, _build_choices(parameter))
        for names, parameter in list_axes(search.parameters or {})
    ]


def _grid_point(axes: Sequence[tuple[Names, _GridChoices]], index: int) -> Point:
    chosen: list[tuple[Names, Any]] = []
    for names, choices in reversed(axes):
        index, position = divmod(index, choices.count)
        chosen.append((names, choices.at(position)))
    if index:
        raise IndexError("the grid has no such point")
    return nest_values(reversed(chosen))


def _build_choices(parameter: Mapping[str, Any]) -> _GridChoices:
    distribution = _find_distribution(parameter)
    match distribution.name:
        case "constant":
            return _GridChoices(1, lambda _: parameter["value"])
        case "categorical":
            values = _list_distinct(parameter["values"])
            return _GridChoices(len(values), values.__getitem__)
        case "int_uniform":
            low = parameter["min"]
            return _GridChoices(parameter["max"] - low + 1, lambda position: low + position)
        case "q_uniform":
            low = parameter["min"]
            high = parameter["max"]
            q = parameter.get("q", 1)
            # As numpy.arange does: the upper bound itself is left out.
            count = math.ceil((_to_fraction(high) - _to_fraction(low)) / _to_fraction(q))
            return _GridChoices(count, lambda position: _exact_multiple(q, position, offset=low))
    raise AssertionError(f"`{distribution.name}` has no countable values; the loader refuses it")


def _list_distinct(values: Sequence[Any]) -> list[Any]:
    """Returns the first of each equal value, by YAML's idea of equal: 3e6 is 3000000, but 1 is not
    true.
    """
    seen: set[str] = set()
    kept: list[Any] = []
    for value in values:
        text = json.dumps(_plain_numbers(value), sort_keys=True)
        if text not in seen:
            seen.add(text)
            kept.append(value)
    return kept


def _plain_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain_numbers(it) for it in value]
    if isinstance(value, dict):
        return {key: _plain_numbers(it) for key, it in value.items()}
    return value


def _draw_value(parameter: Mapping[str, Any], random: Random) -> Any:
    distribution = _find_distribution(parameter)
    keys = {**distribution.defaults, **parameter}
    name = distribution.name.removeprefix("q_")
    value = _DRAWS[name](keys, random)
    if "q" in distribution.defaults:
        return quantise_value(value, keys["q"])
    return value


def _find_distribution(parameter: Mapping[str, Any]) -> Distribution:
    found = distribution_of(parameter)
    assert found is not None, "the loader refuses a parameter without a distribution"
    return found


def _draw_uniform(
    low: float,
    high: float,
    random: Random,
) -> float:
    share = random.random()
    # Not low + share * (high - low): the difference of two large bounds is infinite.
    return min(max(low * (1 - share) + high * share, low), high)


def _log_uniform_values(keys: Mapping[str, Any], random: Random) -> float:
    low = keys["min"]
    high = keys["max"]
    value = math.exp(_draw_uniform(math.log(low), math.log(high), random))
    return float(min(max(value, low), high))


def _bounded_exp(exponent: float) -> float:
    return math.exp(min(exponent, _EXPONENT_MAX))


Draw = Callable[[Mapping[str, Any], Random], Any]
_DRAWS: Mapping[str, Draw] = {
    "constant": lambda keys, _: keys["value"],
    "categorical": lambda keys, random: random.choice(keys["values"]),
    "categorical_w_probabilities": lambda keys, random: random.choices(
        keys["values"], keys["probabilities"]
    )[0],
    "int_uniform": lambda keys, random: random.randint(keys["min"], keys["max"]),
    "uniform": lambda keys, random: float(_draw_uniform(keys["min"], keys["max"], random)),
    "log_uniform": lambda keys, random: _bounded_exp(
        _draw_uniform(keys["min"], keys["max"], random)
    ),
    "log_uniform_values": _log_uniform_values,
    # log(1/X) is uniform between the bounds.
    "inv_log_uniform": lambda keys, random: _bounded_exp(
        -_draw_uniform(keys["min"], keys["max"], random)
    ),
    # log(1/X) is uniform between log(1/max) and log(1/min), which is the same as log(X) is.
    "inv_log_uniform_values": _log_uniform_values,
    "normal": lambda keys, random: random.normalvariate(keys["mu"], keys["sigma"]),
    "log_normal": lambda keys, random: _bounded_exp(
        random.normalvariate(keys["mu"], keys["sigma"])
    ),
    "beta": lambda keys, random: random.betavariate(keys["a"], keys["b"]),
}


def quantise_value(value: float, q: float) -> float:
    """Returns round(value / q) * q; whole when q is."""
    if not math.isfinite(value / q):
        return value
    return _exact_multiple(q, round(value / q))


def _exact_multiple(
    q: float,
    times: int,
    *,
    offset: float = 0,
) -> float:
    """Returns offset + q * times as a user writes it: 3 times 0.1 is 0.3, not
    0.30000000000000004.
    """
    if isinstance(q, int) and isinstance(offset, int):
        return offset + q * times
    return float(_to_fraction(offset) + _to_fraction(q) * times)


def _to_fraction(number: float) -> Fraction:
    """Returns the number as it was written: 0.1 is one tenth."""
    return Fraction(repr(number))
