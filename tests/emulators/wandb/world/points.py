"""Points of a sweep's search space, in the order in which agents are handed them.

From the documented distributions of sweep configurations. A grid's last parameter by name varies
fastest; other points are drawn by a seed, as the service's own are not known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

SEED = 7
NESTED = "parameters"
Parameters = Mapping[str, Any]
Axis = tuple[tuple[str, ...], Parameters]  # names down to a parameter, and its configuration


@dataclass(frozen=True, slots=True)
class DistributionKeys:
    """needs: keys that a parameter must have. countable: a grid may have it."""

    name: str
    needs: tuple[str, ...] = ()
    countable: bool = False


_BOUNDS = ("min", "max")
_DISTRIBUTIONS = {
    "constant": DistributionKeys("constant", ("value",), True),
    "categorical": DistributionKeys("categorical", ("values",), True),
    "categorical_w_probabilities": DistributionKeys(
        "categorical_w_probabilities", ("values", "probabilities")
    ),
    "int_uniform": DistributionKeys("int_uniform", _BOUNDS, True),
    "q_uniform": DistributionKeys("q_uniform", _BOUNDS, True),
    **{
        name: DistributionKeys(name, _BOUNDS)
        for base in ("uniform", "log_uniform", "log_uniform_values")
        for name in (base, f"q_{base}")
        if name != "q_uniform"
    },
    **{
        name: DistributionKeys(name, _BOUNDS)
        for name in ("inv_log_uniform", "inv_log_uniform_values")
    },
    **{
        name: DistributionKeys(name)
        for base in ("normal", "log_normal", "beta")
        for name in (base, f"q_{base}")
    },
}


def distribution_of(parameter: Parameters) -> DistributionKeys | None:
    """The distribution that a parameter names or means; None when that is not one."""
    if (named := parameter.get("distribution")) is not None:
        return _DISTRIBUTIONS.get(str(named))
    if "value" in parameter:
        return _DISTRIBUTIONS["constant"]
    if "values" in parameter:
        weighted = "_w_probabilities" if "probabilities" in parameter else ""
        return _DISTRIBUTIONS[f"categorical{weighted}"]
    kinds = {type(parameter.get(key)) for key in _BOUNDS}
    if kinds == {int}:
        return _DISTRIBUTIONS["int_uniform"]
    return _DISTRIBUTIONS["uniform"] if kinds == {float} else None


def grid_size(parameters: Parameters) -> int:
    return math.prod(len(_choices(parameter)) for _, parameter in _axes(parameters))


def grid_point(parameters: Parameters, index: int) -> dict[str, Any]:
    """Raises IndexError for an index that the grid does not have."""
    chosen: list[tuple[tuple[str, ...], Any]] = []
    for names, parameter in reversed(_axes(parameters)):
        choices = _choices(parameter)
        index, position = divmod(index, len(choices))
        chosen.append((names, choices[position]))
    if index:
        raise IndexError("the grid has no such point")
    return _nest(chosen[::-1])


def random_point(parameters: Parameters, index: int) -> dict[str, Any]:
    random = Random(f"{SEED}/{index}")
    return _nest([(names, _draw(it, random)) for names, it in _axes(parameters)])


def _axes(parameters: Parameters, above: tuple[str, ...] = ()) -> list[Axis]:
    found: list[Axis] = []
    for name, parameter in sorted(parameters.items()):
        names = (*above, name)
        if NESTED in parameter:
            found += _axes(parameter[NESTED], names)
        else:
            found.append((names, parameter))
    return found


def _nest(values: list[tuple[tuple[str, ...], Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for names, value in values:
        inner = whole
        for name in names[:-1]:
            inner = inner.setdefault(name, {})
        inner[names[-1]] = value
    return whole


def _choices(parameter: Parameters) -> list[Any]:
    match _name_of(parameter):
        case "constant":
            return [parameter["value"]]
        case "categorical":
            return list(parameter["values"])
        case "int_uniform":
            return list(range(parameter["min"], parameter["max"] + 1))
        case "q_uniform":
            low, high, step = parameter["min"], parameter["max"], parameter.get("q", 1)
            return [round(low + step * it, 10) for it in range(math.ceil((high - low) / step))]
    raise AssertionError("a grid was checked to have countable values alone")


def _name_of(parameter: Parameters) -> str:
    found = distribution_of(parameter)
    assert found is not None, "a sweep's configuration was checked when it came"
    return found.name


def _draw(parameter: Parameters, random: Random) -> Any:
    name = _name_of(parameter)
    if name in ("constant", "categorical"):
        return random.choice(_choices(parameter))
    if name == "categorical_w_probabilities":
        return random.choices(parameter["values"], parameter["probabilities"])[0]
    if name == "int_uniform":
        return random.randint(parameter["min"], parameter["max"])
    value = _draw_number(name.removeprefix("q_"), parameter, random)
    if not name.startswith("q_"):
        return value
    step = parameter.get("q", 1)
    return round(round(value / step) * step, 10)


def _draw_number(name: str, parameter: Parameters, random: Random) -> float:
    if name in ("normal", "log_normal"):
        value = random.normalvariate(parameter.get("mu", 0), parameter.get("sigma", 1))
        return math.exp(value) if name == "log_normal" else value
    if name == "beta":
        return random.betavariate(parameter.get("a", 1), parameter.get("b", 1))
    low, high = parameter["min"], parameter["max"]
    if name.endswith("_values"):  # uniform between the logarithms of the bounds
        return math.exp(random.uniform(math.log(low), math.log(high)))
    drawn = random.uniform(low, high)
    if name == "uniform":
        return drawn
    return math.exp(drawn if name == "log_uniform" else -drawn)
