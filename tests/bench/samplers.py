"""What scikit-optimize and bayesian-optimization find where `tests.bench bayes` searches: the rows
of D57 that are not ours. They live in an environment of their own, with pydantic and packaging:

    python -m venv other && other/bin/pip install scikit-optimize bayesian-optimization pydantic
    OPENBLAS_NUM_THREADS=1 other/bin/python -m tests.bench.samplers scikit-optimize 10

prints the medians over so many seeds. Both are as they come; what runs counts as the best value so
far, which is how either library asks for several points at once.
"""

from __future__ import annotations

import math
import statistics
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from fleetctl.controllers.trials.axes import SearchTrial
from tests.bench.bayes import FUNCTIONS, Point, Suggest, searched

Parameters = dict[str, Any]


def _is_log(parameter: Mapping[str, Any]) -> bool:
    return str(parameter.get("distribution", "")).startswith("log")


def _is_whole(parameter: Mapping[str, Any]) -> bool:
    return isinstance(parameter.get("min"), int)


def _values(trials: Sequence[SearchTrial]) -> list[float]:
    """Lower is better; [] while no trial has ended."""
    ended = [it.value for it in trials if it.value is not None]
    best = min(ended, default=None)
    return [] if best is None else [best if it.value is None else it.value for it in trials]


def scikit_optimize(
    parameters: Parameters, seed: int, index: int, trials: Sequence[SearchTrial]
) -> Point | None:
    from skopt import Optimizer
    from skopt.space import Categorical, Integer, Real

    names = sorted(parameters)
    dimensions: list[Any] = []
    for it in (parameters[name] for name in names):
        if "values" in it:
            dimensions.append(Categorical(it["values"]))
        elif _is_whole(it):
            dimensions.append(Integer(it["min"], it["max"]))
        else:
            prior = "log-uniform" if _is_log(it) else "uniform"
            dimensions.append(Real(it["min"], it["max"], prior=prior))
    values = _values(trials)
    if not values:
        return None
    optimizer = Optimizer(dimensions, n_initial_points=0, random_state=1000 * seed + index)
    optimizer.tell([[it.point[name] for name in names] for it in trials], values)
    return {
        name: it.item() if hasattr(it, "item") else it
        for name, it in zip(names, optimizer.ask(), strict=True)
    }


def bayesian_optimization(
    parameters: Parameters, seed: int, index: int, trials: Sequence[SearchTrial]
) -> Point | None:
    """It knows no logarithms, so it is given those."""
    from bayes_opt import BayesianOptimization

    bounds: dict[str, Any] = {}
    for name, it in sorted(parameters.items()):
        if "values" in it:
            bounds[name] = tuple(it["values"])
        elif _is_whole(it):
            bounds[name] = (it["min"], it["max"], int)
        else:
            ends = (it["min"], it["max"])
            bounds[name] = tuple(map(math.log, ends)) if _is_log(it) else ends
    values = _values(trials)
    if not values:
        return None
    logs = {name for name, it in parameters.items() if _is_log(it)}
    optimizer = BayesianOptimization(
        f=None,
        pbounds=bounds,
        random_state=1000 * seed + index,
        verbose=0,
        allow_duplicate_points=True,
    )
    for it, value in zip(trials, values, strict=True):
        point = {name: math.log(own) if name in logs else own for name, own in it.point.items()}
        optimizer.register(params=point, target=-value)
    return {
        name: _back(it, parameters[name], log=name in logs)
        for name, it in optimizer.suggest().items()
    }


def _back(value: Any, parameter: Mapping[str, Any], *, log: bool) -> Any:
    if log:
        return min(max(math.exp(value), parameter["min"]), parameter["max"])
    if "values" in parameter:
        return value
    return int(value) if _is_whole(parameter) else float(value)


LIBRARIES: dict[str, Suggest] = {
    "scikit-optimize": scikit_optimize,
    "bayesian-optimization": bayesian_optimization,
}


def main(library: str, seeds: int) -> None:
    warnings.simplefilter("ignore")
    for name, case in FUNCTIONS.items():
        for running in (1, 8):
            found = [searched(case, seed, running, LIBRARIES[library]) for seed in range(seeds)]
            regret = statistics.median(it for it, _ in found)
            cost_ms = 1000 * statistics.median(cost for _, cost in found)
            print(f"{name}, {running} running: {regret:.2g}, {cost_ms:.0f} ms a point", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
