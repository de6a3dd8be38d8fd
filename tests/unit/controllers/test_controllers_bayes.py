"""The model of a bayes search against closed forms, and what it suggests."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from fleetctl.controllers.trials.axes import SearchTrial, axes_of, is_inside, list_points, value_at
from fleetctl.controllers.trials.bayes import (
    GaussianProcess,
    expected_improvement,
    matern_kernel,
    suggest_point,
)
from fleetctl.controllers.trials.points import random_point
from fleetctl.specs.search.config import Search

UNIT = {"x": {"min": 0.0, "max": 1.0}}
MIXED: dict[str, Any] = {
    "kind": {"values": ["a", 0, False, "", None]},
    "n": {"min": 1, "max": 4},
    "lr": {"distribution": "log_uniform_values", "min": 1e-5, "max": 0.1},
    "net": {"parameters": {"depth": {"values": [1, 2]}, "fixed": {"value": 7}}},
}


def search(parameters: Mapping[str, Any]) -> Search:
    return Search(method="bayes", metric={"name": "loss"}, parameters=dict(parameters))


def seen(
    count: int, value: Callable[[Any], float | None], parameters: Any = UNIT
) -> list[SearchTrial]:
    points = [random_point(search(parameters), 0, index) for index in range(count)]
    return [SearchTrial(point, value(point)) for point in points]


def model(
    x: list[float], y: list[float], *, length: float, signal: float, noise: float
) -> GaussianProcess:
    made = GaussianProcess(
        np.array(x)[:, None], np.array(y), np.zeros(1, dtype=np.intp), np.random.default_rng(0)
    )
    made._theta = np.log([length, signal, noise])
    made._solve()
    return made


def test_the_kernel_is_matern_five_halves() -> None:
    r = math.sqrt(5) * 0.7
    expected = (1 + r + r * r / 3) * math.exp(-r)
    assert matern_kernel(np.array([[0.2]]), np.array([[0.9]]))[0, 0] == pytest.approx(expected)
    assert matern_kernel(np.array([[0.2, 3.0]]), np.array([[0.2, 3.0]]))[0, 0] == pytest.approx(1.0)


def test_the_prediction_from_one_value_is_the_closed_form() -> None:
    made = model([0.3], [2.0], length=0.5, signal=1.5, noise=0.1)
    kernel = 1.5**2 * matern_kernel(np.array([[0.4 / 0.5]]), np.array([[0.3 / 0.5]]))[0, 0]
    expected = kernel / (1.5**2 + 0.1**2 + 1e-8) * 2.0
    assert made.mean(np.array([[0.4]]))[0] == pytest.approx(expected)


def test_the_prediction_from_two_values_solves_the_two_equations() -> None:
    x, y, at = [0.1, 0.8], [1.0, -2.0], 0.5
    made = model(x, y, length=0.4, signal=1.0, noise=0.05)

    def kernel(a: float, b: float) -> float:
        return float(matern_kernel(np.array([[a / 0.4]]), np.array([[b / 0.4]]))[0, 0])

    k, d = kernel(*x), 1.0 + 0.05**2 + 1e-8
    first, second = (d * y[0] - k * y[1]) / (d * d - k * k), (d * y[1] - k * y[0]) / (d * d - k * k)
    expected = kernel(at, x[0]) * first + kernel(at, x[1]) * second
    assert made.mean(np.array([[at]]))[0] == pytest.approx(expected)


def test_the_variance_beside_one_value_is_the_closed_form() -> None:
    """Told by the improvement that is expected where the prediction is as good as the best."""
    signal, noise, known = 1.5, 0.1, 1.5**2 + 0.1**2 + 1e-8
    made = model([0.3], [0.0], length=0.5, signal=signal, noise=noise)  # predicts 0 everywhere
    for at in (0.3, 0.4, 2.0):
        kernel = signal**2 * matern_kernel(np.array([[at / 0.5]]), np.array([[0.3 / 0.5]]))[0, 0]
        sd = math.sqrt(signal**2 - kernel**2 / known)
        found = made.improvement(np.array([[at]]))[0]
        assert found == pytest.approx(sd / math.sqrt(2 * math.pi))


def test_the_cost_of_a_fit_is_the_likelihood_of_a_normal_distribution() -> None:
    x, y = [0.1, 0.4, 0.8], np.array([1.0, -2.0, 0.5])
    made = model(x, list(y), length=0.4, signal=1.2, noise=0.05)
    theta = np.log([0.4, 1.2, 0.05])
    at = np.array(x)[:, None] / 0.4
    covariance = 1.2**2 * matern_kernel(at, at) + (0.05**2 + 1e-8) * np.eye(3)
    expected = 0.5 * y @ np.linalg.inv(covariance) @ y + 0.5 * math.log(np.linalg.det(covariance))
    assert made._cost(theta, theta, np.ones(3)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("best", "mean", "sd"), [(0.0, 0.5, 1.0), (1.0, -1.0, 0.3), (0.0, 3.0, 0.5)]
)
def test_expected_improvement_is_the_integral(best: float, mean: float, sd: float) -> None:
    values = np.linspace(mean - 12 * sd, mean + 12 * sd, 400_001)
    density = np.exp(-0.5 * ((values - mean) / sd) ** 2) / (sd * math.sqrt(2 * math.pi))
    gain = np.maximum(best - values, 0.0) * density
    whole = float(np.sum((gain[1:] + gain[:-1]) / 2 * np.diff(values)))
    found = expected_improvement(best, np.array([mean]), np.array([sd]))[0]
    assert found == pytest.approx(whole, abs=1e-7)


@pytest.mark.parametrize(
    "parameter",
    [
        {"min": -3.0, "max": 9.0},
        {"distribution": "log_uniform_values", "min": 1e-5, "max": 10.0},
        {"distribution": "inv_log_uniform_values", "min": 0.1, "max": 10.0},
        {"distribution": "normal", "mu": 3, "sigma": 2},
        {"distribution": "log_normal", "mu": 0, "sigma": 1},
        {"distribution": "beta", "a": 2, "b": 5},
        {"min": 3, "max": 9},
    ],
    ids=str,
)
def test_an_axis_is_its_distribution(parameter: dict[str, Any]) -> None:
    (axis,), _ = axes_of({"x": parameter})
    places = [(at + 0.5) / 200 for at in range(200)]
    for place in places:
        assert axis.features(axis.at(place))[0] == pytest.approx(place, abs=0.08)
    ours = sorted(axis.at(place) for place in places)
    drawn = sorted(random_point(search({"x": parameter}), 7, n)["x"] for n in range(2000))
    # Kolmogorov-Smirnov of 200 places and 2,000 draws: 0.12 is beyond one in 1,000.
    for value in ours:
        share = sum(it <= value for it in drawn) / 2000
        assert abs(share - sum(it <= value for it in ours) / 200) < 0.12


def test_the_same_question_has_the_same_answer_whoever_asks() -> None:
    trials = seen(12, lambda point: (point["x"] - 0.7) ** 2)
    first = suggest_point(UNIT, 5, 12, trials)
    assert first == suggest_point(UNIT, 5, 12, trials)
    assert first != suggest_point(UNIT, 5, 13, trials)


def test_what_is_suggested_lies_in_the_space_with_all_that_is_fixed() -> None:
    trials = seen(10, lambda point: float(point["n"]), MIXED)
    for index in range(10, 16):
        point = suggest_point(MIXED, 1, index, trials)
        assert point is not None
        assert is_inside(MIXED, point)
        assert point["net"]["fixed"] == 7
        trials.append(SearchTrial(point, float(point["n"])))


def test_categories_that_are_false_are_categories_of_their_own() -> None:
    (axis, *_), _ = axes_of({"kind": MIXED["kind"]})
    values = [axis.at((at + 0.5) / 5) for at in range(5)]
    assert [json.dumps(it) for it in values] == ['"a"', "0", "false", '""', "null"]
    assert len({tuple(axis.features(it)) for it in values}) == 5


def test_a_small_space_is_searched_whole_each_point_once_and_then_is_over() -> None:
    parameters: dict[str, Any] = {"a": {"values": [1, 2, 3]}, "b": {"min": 0, "max": 3}}
    trials: list[SearchTrial] = []
    while (point := suggest_point(parameters, 3, len(trials), trials)) is not None:
        trials.append(SearchTrial(point, float(point["a"] * point["b"])))
    assert Counter(json.dumps(it.point) for it in trials).most_common(1)[0][1] == 1
    assert len(trials) == 12


RARE = {
    "distribution": "categorical_w_probabilities",
    "values": ["a", "b", "never", False],
    "probabilities": [0.9999, 0.00005, 0, 0.00005],
}


@pytest.mark.parametrize(
    ("parameter", "count"),
    [
        (RARE, 3),
        ({"distribution": "q_uniform", "min": 0, "max": 80, "q": 1}, 81),
        ({"distribution": "q_uniform", "min": 0.26, "max": 1.1, "q": 0.5}, 2),
        ({"distribution": "q_log_uniform_values", "min": 1, "max": 60, "q": 1}, 60),
        ({"distribution": "int_uniform", "min": -3, "max": 90}, 94),
    ],
    ids=str,
)
def test_the_last_point_of_a_space_is_found_however_seldom_it_is_drawn(
    parameter: dict[str, Any], count: int
) -> None:
    everything = list(list_points(*axes_of({"x": parameter})))
    assert len({json.dumps(it) for it in everything}) == len(everything) == count
    for left in (0, 1, count - 1):
        trials = [SearchTrial(it, float(at)) for at, it in enumerate(everything) if at != left]
        assert suggest_point({"x": parameter}, 1, count - 1, trials) == everything[left]
        trials.append(SearchTrial(everything[left], 0.0))
        assert suggest_point({"x": parameter}, 1, count, trials) is None


def test_what_lies_near_a_seldom_category_has_that_category() -> None:
    """The best trials have a category that one draw in 20,000 has."""
    parameters: dict[str, Any] = {"kind": RARE, "x": {"min": 0.0, "max": 1.0}}
    trials = [
        SearchTrial({"kind": kind, "x": x}, (0.0 if kind is False else 5.0) + (x - 0.3) ** 2)
        for kind, x in [("a", 0.1), ("a", 0.9), ("b", 0.5), (False, 0.8), (False, 0.6), ("a", 0.4)]
    ]
    found = [suggest_point(parameters, seed, len(trials), trials) for seed in range(5)]
    assert [point["kind"] for point in found if point is not None] == [False] * 5


def test_running_trials_are_not_asked_for_again_and_spread_the_search() -> None:
    trials = seen(8, lambda point: (point["x"] - 0.5) ** 2)
    for index in range(8, 14):
        point = suggest_point(UNIT, 1, index, trials)
        assert point is not None
        trials.append(SearchTrial(point, None))
    places = {it.point["x"] for it in trials[8:]}
    assert len(places) == 6
    assert max(places) - min(places) > 0.01


@pytest.mark.parametrize(
    "trials",
    [
        seen(10, lambda _: 1.0),
        seen(10, lambda point: 1e300 if point["x"] > 0.8 else point["x"]),
        seen(10, lambda point: 1.0 + 1e-12 * point["x"]),
        [SearchTrial({"x": 0.5}, float(n)) for n in range(20)],
        seen(10, lambda _: None),
        seen(10, lambda point: point["x"])
        + [SearchTrial({"x": n / 100}, None) for n in range(100)],
        [
            SearchTrial({"other": 1}, 3.0),
            SearchTrial({"x": "text"}, 1.0),
            *seen(5, lambda p: p["x"]),
        ],
    ],
    ids=["equal", "1e300", "1e-12", "one point", "all running", "100 running", "another space"],
)
def test_a_hostile_history_still_has_a_next_point(trials: list[SearchTrial]) -> None:
    point = suggest_point(UNIT, 1, len(trials), trials)
    assert point is not None
    assert is_inside(UNIT, point)


def test_it_finds_a_minimum_that_chance_does_not() -> None:
    parameters: dict[str, Any] = {"x": {"min": -5.0, "max": 10.0}, "y": {"min": 0.0, "max": 15.0}}

    def branin(point: Mapping[str, Any]) -> float:
        x, y = point["x"], point["y"]
        bowl = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
        return float(bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.397887)

    ours, chance = [], []
    for seed in range(3):
        points = [random_point(search(parameters), seed, index) for index in range(25)]
        chance.append(min(map(branin, points)))
        trials = [SearchTrial(point, branin(point)) for point in points[:4]]
        for index in range(4, 25):
            point = suggest_point(parameters, seed, index, trials)
            assert point is not None
            trials.append(SearchTrial(point, branin(point)))
        ours.append(min(it.value for it in trials if it.value is not None))
    assert sorted(ours)[1] < 0.2 < sorted(chance)[1]


def test_a_point_of_another_space_does_not_fit() -> None:
    assert is_inside(MIXED, random_point(search(MIXED), 0, 0))
    for wrong in ({"x": 2.0}, {"x": "a"}, {"y": 0.5}, {"x": 0.5, "y": 1}, {}):
        assert not is_inside(UNIT, wrong)
    assert value_at({"a": {"b": 1}}, ("a", "b")) == 1
