"""Finds the faults of a sweep's `parameters` block, which has W&B's form; each with its path.

Called by specs/search/config.py when a manifest is checked. Standard library only.
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

SUM_TOLERANCE = 1e-6  # probabilities such as 0.1 * 10 do not sum to 1 exactly
EXPONENT_MAX = 300  # of a bound that is converted in a message; e^300 does not overflow
VALUE_CHARS_MAX = 40  # of a value that is shown in a message

_CONSTANT = "for a constant write `{}: {{value: {}}}`"
_PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class ParameterProblem:
    """A fault of a `parameters` block. path: keys from the block down to the fault."""

    path: Path
    message: str
    hint: str = ""


def find_problems(
    parameters: object,
    *,
    grid: bool,
    path: Path = (),
) -> Iterator[ParameterProblem]:
    """Yields the faults of a `parameters` block, those of nested blocks included.

    grid: the sweep's method is `grid`, so the points of each distribution must be countable. path:
    the keys above the block, for a nested one.
    """
    if not isinstance(parameters, Mapping) or not parameters:
        yield ParameterProblem(path, "it must map the name of each parameter to its values")
        return
    for name, parameter in parameters.items():
        here = (*path, name)
        if not _PARAMETER_NAME.fullmatch(name):
            yield ParameterProblem(
                here,
                "a parameter's name must be letters, digits, `_`, `.` and `-`, "
                "and begin with a letter or `_`",
            )
        if not isinstance(parameter, Mapping):
            listed = isinstance(parameter, list)
            key = "for a choice write `{}: {{values: {}}}`" if listed else _CONSTANT
            yield ParameterProblem(
                here, f"it must be a mapping; {key.format(name, _shorten_value(parameter))}"
            )
        elif NESTED in parameter:
            yield from _nested_problems(parameter, here, grid=grid)
        else:
            yield from _parameter_problems(parameter, here, grid=grid)


def _nested_problems(
    parameter: Mapping[str, object],
    path: Path,
    *,
    grid: bool,
) -> Iterator[ParameterProblem]:
    for key in parameter:
        if key != NESTED:
            yield ParameterProblem(
                (*path, key), "a nested parameter holds nothing but `parameters`"
            )
    yield from find_problems(parameter[NESTED], grid=grid, path=(*path, NESTED))


def _parameter_problems(
    parameter: Mapping[str, object],
    path: Path,
    *,
    grid: bool,
) -> Iterator[ParameterProblem]:
    distribution = distribution_of(parameter)
    if distribution is None:
        yield _missing_distribution(parameter, path)
        return
    if distribution.instead:
        yield ParameterProblem(
            (*path, "distribution"), _describe_deprecation(distribution, parameter)
        )
        return
    allowed = ("distribution", *distribution.needs, *distribution.defaults)
    wrong = False
    for key in parameter:
        if key not in allowed:
            wrong = True
            only = _quote_names(allowed[1:])
            yield ParameterProblem((*path, key), f"`{distribution.name}` takes nothing but {only}")
    for key in distribution.needs:
        if key not in parameter:
            wrong = True
            yield ParameterProblem(
                path, f"`{distribution.name}` needs {_quote_names(distribution.needs)}"
            )
            break
    if not wrong:
        yield from _value_problems(distribution, parameter, path)
    if grid and not distribution.grid:
        yield ParameterProblem(
            path,
            f"`grid` cannot count the points of `{distribution.name}`; "
            "list `values`, or use method `random`",
        )


def _missing_distribution(parameter: Mapping[str, object], path: Path) -> ParameterProblem:
    named = parameter.get("distribution")
    if named is not None:
        text = "it must be one of " + _quote_names(tuple(DISTRIBUTIONS))
        hint = _suggest_distribution(str(named), parameter)
        return ParameterProblem((*path, "distribution"), text, hint)
    if all(_is_number(parameter.get(key)) for key in BOUNDS):
        return ParameterProblem(
            path,
            "`min` and `max` are ambiguous: one is a whole number and one is not; "
            "write both alike, or name a `distribution`",
        )
    return ParameterProblem(
        path, "it needs `value`, `values`, `min` and `max`, a `distribution` or nested `parameters`"
    )


def _suggest_distribution(word: str, parameter: Mapping[str, object]) -> str:
    """Returns a hint that names the distribution that is probably meant; "" without a guess.

    word: the unknown name. Users of other tools bound a logarithmic distribution by its values;
    here such bounds belong to the names that end with `_values`, and to the other names belong
    exponents.
    """
    plain = word.lower().replace("-", "").replace("_", "")
    if plain in ("loguniform", "qloguniform", "log") and "min" in parameter:
        name = "q_log_uniform_values" if plain.startswith("q") else "log_uniform_values"
        return f"did you mean `{name}`?"
    by_letters = {name.replace("_", ""): name for name in DISTRIBUTIONS}
    near = get_close_matches(_FOREIGN_NAMES.get(plain, plain), by_letters, n=1, cutoff=0.7)
    if near:
        return f"did you mean `{by_letters[near[0]]}`?"
    return ""


# Names of distributions in Ray Tune, Optuna and other tools, and the names here.
_FOREIGN_NAMES = {
    "choice": "categorical", "gridsearch": "categorical", "int": "intuniform",
    "randint": "intuniform", "float": "uniform", "gaussian": "normal", "randn": "normal",
}  # fmt: skip


def _describe_deprecation(distribution: Distribution, parameter: Mapping[str, object]) -> str:
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
    if low < high and max(abs(low), abs(high)) <= EXPONENT_MAX:
        message += f": the same with `min: {math.exp(low):.6g}` and `max: {math.exp(high):.6g}`"
    return message


def _value_problems(
    distribution: Distribution,
    parameter: Mapping[str, object],
    path: Path,
) -> Iterator[ParameterProblem]:
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
            wanted = "a whole number" if distribution.integer else "a number"
            yield ParameterProblem((*path, key), f"it must be {wanted}")
    if not wrong:
        yield from _range_problems(distribution, parameter, path)


def _choice_problems(parameter: Mapping[str, object], path: Path) -> Iterator[ParameterProblem]:
    values = parameter["values"]
    if not isinstance(values, list) or not values:
        given = parameter["values"]
        hint = ""
        if not isinstance(given, list | Mapping):
            shown = _shorten_value(given)
            hint = f"write `values: [{shown}]`, or `value: {shown}`"
        yield ParameterProblem((*path, "values"), "it must be a list of at least one value", hint)
        return
    if "probabilities" not in parameter:
        return
    chances = parameter["probabilities"]
    here = (*path, "probabilities")
    if not isinstance(chances, list) or not all(_is_number(it) and it >= 0 for it in chances):
        yield ParameterProblem(here, "it must be a list of numbers from 0 to 1")
    elif len(chances) != len(values):
        yield ParameterProblem(
            here, f"there are {len(chances)} for {len(values)} values; give one each"
        )
    elif abs(sum(chances) - 1) > SUM_TOLERANCE:
        yield ParameterProblem(here, f"they sum to {sum(chances):.6g}; they must sum to 1")


def _range_problems(
    distribution: Distribution,
    parameter: Mapping[str, object],
    path: Path,
) -> Iterator[ParameterProblem]:
    values = {**distribution.defaults, **parameter}
    if "min" in values:
        low = values["min"]
        high = values["max"]
        assert isinstance(low, int | float) and isinstance(high, int | float)
        if low >= high:
            yield ParameterProblem((*path, "min"), f"it must be less than `max`, which is `{high}`")
        elif distribution.positive and low <= 0:
            yield ParameterProblem((*path, "min"), f"`{distribution.name}` needs bounds above 0")
    for key in ("q", "sigma", "a", "b"):
        value = values.get(key, 1)
        if isinstance(value, int | float) and value <= 0:
            yield ParameterProblem((*path, key), "it must be more than 0")


def _is_number(value: object) -> bool:
    return is_int(value) or (isinstance(value, float) and math.isfinite(value))


def _quote_names(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    if len(quoted) == 1:
        return quoted[0]
    return ", ".join(quoted[:-1]) + " and " + quoted[-1]


def _shorten_value(value: object) -> str:
    text = "null" if value is None else str(value)
    if len(text) <= VALUE_CHARS_MAX:
        return text
    return "..."
