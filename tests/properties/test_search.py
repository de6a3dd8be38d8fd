"""The points of a sweep: inside their bounds, the same for a seed, each once, and lazy."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.controllers.trials.points import (
    count_points,
    grid_point,
    iterate_points,
    make_point,
    random_point,
)
from fleetctl.specs.search.distributions import DISTRIBUTIONS
from fleetctl.specs.search.parameters import find_problems


@dataclass(frozen=True)
class Space:
    method: str
    parameters: dict[str, Any]


def grid(**parameters: Any) -> Space:
    return Space("grid", parameters)


numbers = st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6, allow_subnormal=False)
quanta = st.integers(1, 50) | st.sampled_from([0.1, 0.25, 0.5, 2.5, 1e-3])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, 1.0, 3e6, "a", ""]),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=4,
)


@st.composite
def bounds(draw: st.DrawFn, low: st.SearchStrategy[Any]) -> dict[str, Any]:
    first, second = sorted(draw(st.lists(low, min_size=2, max_size=2, unique=True)))
    return {"min": first, "max": second}


@st.composite
def bounded(draw: st.DrawFn) -> dict[str, Any]:
    """A parameter with bounds, of every such distribution."""
    name = draw(st.sampled_from([it.name for it in DISTRIBUTIONS.values() if "min" in it.needs]))
    low: st.SearchStrategy[Any] = numbers
    if DISTRIBUTIONS[name].integer:
        low = st.integers(-(10**6), 10**6)
    if DISTRIBUTIONS[name].positive:
        low = st.floats(1e-9, 1e6)
    if DISTRIBUTIONS[name].instead:
        low = st.floats(-20, 20)
    parameter = {"distribution": name, **draw(bounds(low))}
    if "q" in DISTRIBUTIONS[name].defaults:
        parameter["q"] = draw(quanta)
    return parameter


@given(bounded(), st.integers(0, 2**63 - 1), st.integers(0, 10**9))
def test_every_drawn_value_lies_within_its_bounds(
    parameter: dict[str, Any], seed: int, index: int
) -> None:
    value = random_point(Space("random", {"a": parameter}), seed, index)["a"]
    low, high = parameter["min"], parameter["max"]
    name = parameter["distribution"]
    if DISTRIBUTIONS[name].instead:
        exponents = (-high, -low) if name.startswith("inv") else (low, high)
        low, high = (math.exp(it) for it in exponents)
    # round(x / q) * q may leave the bounds by half a quantum.
    slack = parameter.get("q", 0) / 2 + 1e-9 * max(abs(low), abs(high))
    assert low - slack <= value <= high + slack
    if "q" in parameter:
        steps = value / parameter["q"]
        assert abs(steps - round(steps)) < 1e-6
        assert isinstance(value, int) == isinstance(parameter["q"], int)
    if name == "int_uniform":
        assert isinstance(value, int)


@given(st.sampled_from(["normal", "log_normal", "beta", "q_normal", "q_log_normal", "q_beta"]))
@settings(max_examples=30)
def test_distributions_without_bounds_give_finite_numbers_of_their_range(name: str) -> None:
    space = Space("random", {"a": {"distribution": name}})
    drawn = [random_point(space, 0, index)["a"] for index in range(200)]
    assert all(math.isfinite(it) for it in drawn)
    if "beta" in name:
        assert all(0 <= it <= 1 for it in drawn)
    if "log" in name:
        assert all(it >= 0 for it in drawn)
    if name.startswith("q_"):
        assert all(isinstance(it, int) for it in drawn)


def test_extreme_parameters_still_give_finite_numbers() -> None:
    space = Space(
        "random",
        {
            "a": {"distribution": "uniform", "min": -1.7e308, "max": 1.7e308},
            "b": {"distribution": "log_normal", "mu": 1e6, "sigma": 1e6},
            "c": {"distribution": "q_normal", "sigma": 1e300, "q": 1e-300},
            "d": {"distribution": "log_uniform_values", "min": 5e-324, "max": 1.7e308},
        },
    )
    for index in range(200):
        drawn = random_point(space, 1, index)
        assert all(math.isfinite(it) for it in drawn.values()), drawn


def test_a_draw_follows_its_distribution() -> None:
    space = Space(
        "random",
        {
            "odds": {"values": ["a", "b"], "probabilities": [0.9, 0.1]},
            "log": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1.0},
            "normal": {"distribution": "normal", "mu": 5, "sigma": 2},
            "whole": {"min": 1, "max": 4},
        },
    )
    drawn = [random_point(space, 3, index) for index in range(4000)]
    assert 3500 < sum(it["odds"] == "a" for it in drawn) < 3700
    assert 1900 < sum(it["log"] < 1e-2 for it in drawn) < 2100
    assert abs(sum(it["normal"] for it in drawn) / 4000 - 5) < 0.15
    assert {it["whole"] for it in drawn} == {1, 2, 3, 4}


@given(st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_a_point_depends_on_seed_and_index_alone(seed: int, index: int) -> None:
    full = Space("random", {"a": {"min": 0.0, "max": 1.0}, "b": {"min": 1, "max": 1000}})
    alone = Space("random", {"a": {"min": 0.0, "max": 1.0}})
    first = random_point(full, seed, index)
    assert first == random_point(full, seed, index)
    # A parameter more leaves the others as they were.
    assert random_point(alone, seed, index)["a"] == first["a"]
    assert random_point(full, seed, index + 1) != first


def test_different_seeds_draw_different_points() -> None:
    space = Space("random", {"a": {"min": 0.0, "max": 1.0}})
    drawn = {random_point(space, seed, index)["a"] for seed in range(30) for index in range(30)}
    assert len(drawn) == 900


def test_draws_stay_what_they_were_for_stored_sweeps() -> None:
    space = Space("random", {"a": {"min": 1, "max": 1000}, "b": {"values": ["x", "y", "z"]}})
    drawn = [random_point(space, 7, index) for index in range(3)]
    assert drawn == [{"a": 877, "b": "z"}, {"a": 239, "b": "y"}, {"a": 745, "b": "x"}]


counted = (
    st.fixed_dictionaries({"values": st.lists(values, min_size=1, max_size=4)})
    | st.fixed_dictionaries({"value": values})
    | bounds(st.integers(-3, 3))
    | bounds(st.integers(-3, 3)).map(lambda it: {**it, "distribution": "q_uniform"})
)
names = st.text("abcxyz", min_size=1, max_size=3)
spaces = st.dictionaries(
    names,
    counted | st.fixed_dictionaries({"parameters": st.dictionaries(names, counted, min_size=1)}),
    min_size=1,
    max_size=3,
)


@given(spaces)
def test_a_grid_has_each_point_once_and_as_many_as_it_says(parameters: dict[str, Any]) -> None:
    space = grid(**parameters)
    assert list(find_problems(parameters, grid=True)) == []
    end = count_points(space)
    assert end is not None
    found = list(itertools.islice(iterate_points(space, 0), 2000))
    assert len(found) == min(end, 2000)
    assert len({json.dumps(it, sort_keys=True) for it in found}) == len(found)
    for index in (0, len(found) // 2, len(found) - 1):
        assert found[index] == grid_point(space, index) == make_point(space, seed=9, index=index)


def test_a_grid_sorts_names_and_varies_the_last_fastest() -> None:
    space = grid(lr={"values": [0.001, 0.01]}, batch_size={"values": [32, 64]}, c={"value": None})
    assert list(iterate_points(space, 0)) == [
        {"batch_size": 32, "c": None, "lr": 0.001},
        {"batch_size": 32, "c": None, "lr": 0.01},
        {"batch_size": 64, "c": None, "lr": 0.001},
        {"batch_size": 64, "c": None, "lr": 0.01},
    ]


def test_a_grid_nests_as_its_parameters_do() -> None:
    space = grid(a={"value": 1}, optimizer={"parameters": {"lr": {"values": [1, 2]}}})
    assert list(iterate_points(space, 0)) == [
        {"a": 1, "optimizer": {"lr": 1}},
        {"a": 1, "optimizer": {"lr": 2}},
    ]


def test_equal_values_are_one_point_but_true_is_not_one() -> None:
    space = grid(a={"values": [3e6, 3000000, True, 1, "1", [32, 32.0], [32, 32]]})
    assert [it["a"] for it in iterate_points(space, 0)] == [3e6, True, 1, "1", [32, 32.0]]


def test_quantised_grids_leave_the_upper_bound_out_and_have_no_noise() -> None:
    tenths = {"distribution": "q_uniform", "min": 0.0, "max": 0.5, "q": 0.1}
    assert [it["a"] for it in iterate_points(grid(a=tenths), 0)] == [0.0, 0.1, 0.2, 0.3, 0.4]
    whole = {"distribution": "q_uniform", "min": 1, "max": 8, "q": 3}
    assert [it["a"] for it in iterate_points(grid(a=whole), 0)] == [1, 4, 7]


def test_a_grid_of_a_billion_points_and_more_gives_its_first_at_once() -> None:
    space = grid(
        a={"min": 1, "max": 1000}, b={"min": 1, "max": 1000}, c={"min": -(2**63), "max": 2**63 - 1}
    )
    assert count_points(space) == 10**6 * 2**64
    assert next(iterate_points(space, 0)) == {"a": 1, "b": 1, "c": -(2**63)}
    assert grid_point(space, 10**6 * 2**64 - 1) == {"a": 1000, "b": 1000, "c": 2**63 - 1}


def test_a_grid_has_no_point_beyond_its_end() -> None:
    with pytest.raises(IndexError):
        grid_point(grid(a={"values": [1, 2]}), 2)


def test_random_points_never_end() -> None:
    space = Space("random", {"a": {"min": 0.0, "max": 1.0}})
    assert count_points(space) is None
    stream = list(itertools.islice(iterate_points(space, 5), 20))
    assert stream == [random_point(space, 5, index) for index in range(20)]
