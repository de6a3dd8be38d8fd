"""The distributions of a W&B sweep: which keys each takes and how one is inferred.

Standard library only: trials/points.py draws by the same table that parameters.py checks by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of W&B. needs: keys without a default. defaults: the optional keys. grid:
    points can be counted.
    """

    name: str
    needs: tuple[str, ...] = ()
    defaults: Mapping[str, float] = field(default_factory=dict)
    grid: bool = False
    positive: bool = False  # bounds must be > 0
    integer: bool = False  # bounds must be whole numbers
    instead: str = ""  # deprecated in favour of this one


BOUNDS = ("min", "max")
_NORMAL = {"mu": 0, "sigma": 1}
_BETA = {"a": 1, "b": 1}
_Q = {"q": 1}

DISTRIBUTIONS: dict[str, Distribution] = {
    it.name: it
    for it in (
        Distribution("constant", ("value",), grid=True),
        Distribution("categorical", ("values",), grid=True),
        Distribution("categorical_w_probabilities", ("values", "probabilities")),
        Distribution("int_uniform", BOUNDS, grid=True, integer=True),
        Distribution("uniform", BOUNDS),
        Distribution("q_uniform", BOUNDS, _Q, grid=True),
        Distribution("log_uniform", BOUNDS, instead="log_uniform_values"),
        Distribution("log_uniform_values", BOUNDS, positive=True),
        Distribution("q_log_uniform", BOUNDS, _Q, instead="q_log_uniform_values"),
        Distribution("q_log_uniform_values", BOUNDS, _Q, positive=True),
        Distribution("inv_log_uniform", BOUNDS, instead="inv_log_uniform_values"),
        Distribution("inv_log_uniform_values", BOUNDS, positive=True),
        Distribution("normal", (), _NORMAL),
        Distribution("q_normal", (), {**_NORMAL, **_Q}),
        Distribution("log_normal", (), _NORMAL),
        Distribution("q_log_normal", (), {**_NORMAL, **_Q}),
        Distribution("beta", (), _BETA),
        Distribution("q_beta", (), {**_BETA, **_Q}),
    )
}

NESTED = "parameters"

_INFERRED = (  # the keys that are given -> the distribution they mean, first match wins
    (("value",), "constant"),
    (("values", "probabilities"), "categorical_w_probabilities"),
    (("values",), "categorical"),
)


def distribution_of(parameter: Mapping[str, object]) -> Distribution | None:
    """Returns the distribution that a parameter names or means; None if there is no such
    distribution.
    """
    named = parameter.get("distribution")
    if named is not None:
        if isinstance(named, str):
            return DISTRIBUTIONS.get(named)
        return None
    for keys, name in _INFERRED:
        if all(key in parameter for key in keys):
            return DISTRIBUTIONS[name]
    bounds = [parameter.get(key) for key in BOUNDS]
    if all(is_int(bound) for bound in bounds):
        return DISTRIBUTIONS["int_uniform"]
    if all(isinstance(bound, float) for bound in bounds):
        return DISTRIBUTIONS["uniform"]
    return None


def is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
