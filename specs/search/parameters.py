"""What may be wrong with the `parameters` block of a W&B sweep, each thing with its place.

Called by specs/kinds/sweep.py when a manifest is checked. Standard library only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from fleetctl.specs.search.distributions import (
    BOUNDS,
    DISTRIBUTIONS,
    NESTED,
    Distribution,
    distribution_of,
    is_int,
)
from fleetctl.specs.values.hints import with_hint

SUM_TOLERANCE = 1e-6  # probabilities such as 0.1 * 10 do not sum to 1 exactly

_CONSTANT = "for a constant write `{}: {{value: {}}}`"
_PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """path: from the parameters' mapping down to what is wrong."""

    path: Path
    message: str


def problems(parameters: object, *, grid: bool, path: Path = ()) -> Iterator[Problem]:
    """Everything wrong with the `parameters` block of a sweep, nested blocks included."""
    if not isinstance(parameters, Mapping) or not parameters:
        yield Problem(path, "it must map the name of each parameter to its values")
        return
    for name, parameter in parameters.items():
        here = (*path, name)
        if not _PARAMETER_NAME.fullmatch(name):
            yield Problem(
                here,
                "a parameter's name must be letters, digits, `_`, `.` and `-`, "
                "and begin with a letter or `_`",
            )
        if not isinstance(parameter, Mapping):
            listed = isinstance(parameter, list)
            key = "for a choice write `{}: {{values: {}}}`" if listed else _CONSTANT
            yield Problem(here, f"it must be a mapping; {key.format(name, _short(parameter))}")
        elif NESTED in parameter:
            yield from _nested_problems(parameter, here, grid=grid)
        else:
            yield from _parameter_problems(parameter, here, grid=grid)


def _nested_problems(
    parameter: Mapping[str, object], path: Path, *, grid: bool
) -> Iterator[Problem]:
    for key in parameter:
        if key != NESTED:
            yield Problem((*path, key), "a nested parameter holds nothing but `parameters`")
    yield from problems(parameter[NESTED], grid=grid, path=(*path, NESTED))


def _parameter_problems(
    parameter: Mapping[str, object], path: Path, *, grid: bool
) -> Iterator[Problem]:
    distribution = distribution_of(parameter)
    if distribution is None:
        yield _no_distribution(parameter, path)
        return
    if distribution.instead:
        yield Problem((*path, "distribution"), _deprecated(distribution, parameter))
        return
    allowed = ("distribution", *distribution.needs, *distribution.defaults)
    wrong = False
    for key in parameter:
        if key not in allowed:
            wrong = True
            only = _listed(allowed[1:])
            yield Problem((*path, key), f"`{distribution.name}` takes nothing but {only}")
    for key in distribution.needs:
        if key not in parameter:
            wrong = True
            yield Problem(path, f"`{distribution.name}` needs {_listed(distribution.needs)}")
            break
    if not wrong:
        yield from _value_problems(distribution, parameter, path)
    if grid and not distribution.grid:
        yield Problem(
            path,
            f"`grid` cannot count the points of `{distribution.name}`; "
            "list `values`, or use method `random`",
        )


def _no_distribution(parameter: Mapping[str, object], path: Path) -> Problem:
    named = parameter.get("distribution")
    if named is not None:
        text = "it must be one of " + _listed(tuple(DISTRIBUTIONS))
        return Problem((*path, "distribution"), with_hint(text, _near(str(named), parameter)))
    if all(_is_number(parameter.get(key)) for key in BOUNDS):
        return Problem(
            path,
            "`min` and `max` are ambiguous: one is a whole number and one is not; "
            "write both alike, or name a `distribution`",
        )
    return Problem(
        path, "it needs `value`, `values`, `min` and `max`, a `distribution` or nested `parameters`"
    )


def _no_list(value: object) -> str:
    text = "it must be a list of at least one value"
    if isinstance(value, list | Mapping):
        return text
    return with_hint(text, f"write `values: [{_short(value)}]`, or `value: {_short(value)}`")


def _near(word: str, parameter: Mapping[str, object]) -> str:
    """A hint on the distribution that is meant: bounds of a logarithmic one are exponents where it
    is not called `_values`, and people who come from elsewhere write the values themselves.
    """
    plain = word.lower().replace("-", "").replace("_", "")
    if plain in ("loguniform", "qloguniform", "log") and "min" in parameter:
        name = "q_log_uniform_values" if plain.startswith("q") else "log_uniform_values"
        return f"did you mean `{name}`?"
    by_letters = {name.replace("_", ""): name for name in DISTRIBUTIONS}
    near = get_close_matches(_ALSO.get(plain, plain), by_letters, n=1, cutoff=0.7)
    return f"did you mean `{by_letters[near[0]]}`?" if near else ""


# What Ray Tune, optuna and others call them.
_ALSO = {
    "choice": "categorical", "gridsearch": "categorical", "int": "intuniform",
    "randint": "intuniform", "float": "uniform", "gaussian": "normal", "randn": "normal",
}  # fmt: skip


def _deprecated(distribution: Distribution, parameter: Mapping[str, object]) -> str:
    message = (
        f"its bounds are exponents of e, which is deprecated; use `{distribution.instead}`, "
        "whose bounds are the values themselves"
    )
    low, high = (parameter.get(key) for key in BOUNDS)
    if not (_is_number(low) and _is_number(high)):
        return message
    assert isinstance(low, int | float) and isinstance(high, int | float)
    if distribution.name.startswith("inv_"):
        low, high = -high, -low
    if low < high and max(abs(low), abs(high)) <= 300:  # e^300 is far from overflow, and absurd
        message += f": the same with `min: {math.exp(low):.6g}` and `max: {math.exp(high):.6g}`"
    return message


def _value_problems(
    distribution: Distribution, parameter: Mapping[str, object], path: Path
) -> Iterator[Problem]:
    if "values" in distribution.needs:
        yield from _choice_problems(parameter, path)
        return
    numbers = [key for key in (*distribution.needs, *distribution.defaults) if key != "value"]
    wrong = False
    for key in numbers:
        value = parameter.get(key, 0)
        fits = is_int(value) if distribution.integer else _is_number(value)
        if not fits:
            wrong = True
            sort = "a whole number" if distribution.integer else "a number"
            yield Problem((*path, key), f"it must be {sort}")
    if not wrong:
        yield from _range_problems(distribution, parameter, path)


def _choice_problems(parameter: Mapping[str, object], path: Path) -> Iterator[Problem]:
    values = parameter["values"]
    if not isinstance(values, list) or not values:
        yield Problem((*path, "values"), _no_list(parameter["values"]))
        return
    if "probabilities" not in parameter:
        return
    chances = parameter["probabilities"]
    here = (*path, "probabilities")
    if not isinstance(chances, list) or not all(_is_number(it) and it >= 0 for it in chances):
        yield Problem(here, "it must be a list of numbers from 0 to 1")
    elif len(chances) != len(values):
        yield Problem(here, f"there are {len(chances)} for {len(values)} values; give one each")
    elif abs(sum(chances) - 1) > SUM_TOLERANCE:
        yield Problem(here, f"they sum to {sum(chances):.6g}; they must sum to 1")


def _range_problems(
    distribution: Distribution, parameter: Mapping[str, object], path: Path
) -> Iterator[Problem]:
    get = {**distribution.defaults, **parameter}
    if "min" in get:
        low, high = get["min"], get["max"]
        assert isinstance(low, int | float) and isinstance(high, int | float)
        if low >= high:
            yield Problem((*path, "min"), f"it must be less than `max`, which is `{high}`")
        elif distribution.positive and low <= 0:
            yield Problem((*path, "min"), f"`{distribution.name}` needs bounds above 0")
    for key in ("q", "sigma", "a", "b"):
        value = get.get(key, 1)
        if isinstance(value, int | float) and value <= 0:
            yield Problem((*path, key), "it must be more than 0")


def _is_number(value: object) -> bool:
    return is_int(value) or (isinstance(value, float) and math.isfinite(value))


def _listed(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " and " + quoted[-1]


def _short(value: object) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 40 else "..."
