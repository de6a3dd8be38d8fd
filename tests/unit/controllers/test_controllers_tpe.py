"""What optuna's sampler suggests in place of the Gaussian process, asked as purely."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from fleetctl.controllers.trials import tpe
from fleetctl.controllers.trials.axes import SearchTrial, is_inside
from fleetctl.controllers.trials.points import Point, random_point
from fleetctl.specs.search.config import Sampler, Search

TPE = Sampler(name="tpe")
UNIT = {"x": {"min": 0.0, "max": 1.0}}
MIXED: dict[str, Any] = {
    "kind": {"values": ["a", 0, False, "", None]},
    "n": {"min": 1, "max": 4},
    "lr": {"distribution": "log_uniform_values", "min": 1e-5, "max": 0.1},
    "step": {"distribution": "q_uniform", "min": 0.5, "max": 4.0, "q": 0.5},
    "net": {"parameters": {"depth": {"values": [1, 2]}, "fixed": {"value": 7}}},
}


def suggest(
    parameters: dict[str, Any], seed: int, trials: list[SearchTrial], sampler: Sampler = TPE
) -> Point | None:
    return tpe.suggest_point(parameters, seed, len(trials), trials, sampler)


def seen(count: int, parameters: dict[str, Any], value: Any) -> list[SearchTrial]:
    search = Search(method="bayes", metric={"name": "loss"}, parameters=parameters)
    points = [random_point(search, 0, index) for index in range(count)]
    return [SearchTrial(point, value(point)) for point in points]


def test_the_same_question_has_the_same_answer_whoever_asks() -> None:
    trials = seen(15, UNIT, lambda point: (point["x"] - 0.7) ** 2)
    first = suggest(UNIT, 5, trials)
    assert first == suggest(UNIT, 5, trials)
    assert first != suggest(UNIT, 6, trials)
    assert first != tpe.suggest_point(UNIT, 5, 16, trials, TPE)
    assert first != suggest(UNIT, 5, trials, Sampler(name="tpe", candidates=1))


def test_what_is_suggested_lies_in_the_space_and_is_new() -> None:
    """Categories that are false, logarithms, steps, groups and what is fixed."""
    trials = seen(12, MIXED, lambda point: float(point["n"]))
    for _ in range(12):
        point = suggest(MIXED, 1, trials)
        assert point is not None
        assert is_inside(MIXED, point), point
        assert point["step"] in [0.5 * at for at in range(1, 9)]
        trials.append(SearchTrial(point, float(point["n"])))
    assert Counter(json.dumps(it.point) for it in trials[12:]).most_common(1)[0][1] == 1


def test_a_small_space_is_searched_whole_each_point_once_and_then_is_over() -> None:
    parameters: dict[str, Any] = {"a": {"values": [1, 2, 3]}, "b": {"min": 0, "max": 3}}
    trials: list[SearchTrial] = []
    while (point := suggest(parameters, 3, trials)) is not None:
        trials.append(SearchTrial(point, float(point["a"] * point["b"])))
    assert len(trials) == len({json.dumps(it.point) for it in trials}) == 12


@pytest.mark.parametrize(("startup", "least", "most"), [(10, 24, 40), (50, 2, 16)])
def test_it_looks_where_others_were_good_once_enough_have_ended(
    startup: int, least: int, most: int
) -> None:
    """Of 40 points; 8 lie there by chance."""
    trials = seen(40, UNIT, lambda point: (point["x"] - 0.7) ** 2)
    sampler = Sampler(name="tpe", startup_trials=startup)
    found = [suggest(UNIT, seed, trials, sampler) for seed in range(40)]
    near = sum(abs(it["x"] - 0.7) < 0.1 for it in found if it is not None)
    assert least <= near <= most


@pytest.mark.parametrize(
    "trials",
    [
        seen(12, UNIT, lambda _: 1.0),
        seen(12, UNIT, lambda point: 1e300 if point["x"] > 0.8 else point["x"]),
        [SearchTrial({"x": 0.5}, float(n)) for n in range(20)],
        seen(12, UNIT, lambda _: None),
        [
            SearchTrial({"other": 1}, 3.0),
            SearchTrial({"x": "text"}, 1.0),
            *seen(12, UNIT, lambda p: p["x"]),
        ],
        [SearchTrial({"x": 0.5, "epochs": 3}, 1.0, own=False)] * 20,
        [],
    ],
    ids=["equal", "1e300", "one point", "all running", "another space", "another sweep's", "none"],
)
def test_a_hostile_history_still_has_a_next_point(trials: list[SearchTrial]) -> None:
    point = suggest(UNIT, 1, trials)
    assert point is not None
    assert is_inside(UNIT, point)


def test_nothing_of_it_is_loaded_before_a_point_is_asked_for() -> None:
    code = (
        "import sys, fleetctl.controllers.kinds.sweep, fleetctl.engine.engine, fleetctl.manifest;"
        "sys.exit(bool({'optuna', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
