"""Which trials of another sweep warm a search, and which sweeps wait for each other."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from fleetctl.controllers.kinds.sweep import SweepController
from fleetctl.controllers.trials.prior import (
    KEPT_MAX,
    WarmTrials,
    choose_warm_trials,
    find_circle,
    prior_trials,
)
from fleetctl.specs.search.config import Search
from tests.unit.controllers.play import Play

UNIT = {"min": 0.0, "max": 1.0}


def search(parameters: dict[str, Any], method: str, goal: str) -> dict[str, Any]:
    metric = {"name": "loss", "goal": goal}
    return {"method": method, "metric": metric, "parameters": parameters}


def taken(there: dict[str, Any], here: dict[str, Any], *goals: str) -> WarmTrials:
    """Of a grid whose trials all came to their index."""
    goal_there, goal_here = goals or ("minimize", "minimize")
    spec = {"template": {"python": "pass"}, "search": search(there, "grid", goal_there)}
    play = Play({**spec, "parallelism": 1000}, "Sweep")
    assert isinstance(play.controller, SweepController)
    while play.turn().actions:
        pass
    for index in range(play.controller.total or 0):
        play.succeed(index, result=json.dumps({"loss": index}))
    own = Search.model_validate(search(here, "bayes", goal_here))
    return choose_warm_trials(play.controller, play.controller.spec.search, play.history, own)


@pytest.mark.parametrize(
    ("there", "here", "kept"),
    [
        ({"x": {"values": [0.0, 0.5, 1.0, 2.0, True, "a"]}}, {"x": UNIT}, [0.0, 0.5, 1.0]),
        ({"x": {"values": [1, 1.5, 2, 3.0]}}, {"x": {"min": 1, "max": 3}}, [1, 2, 3.0]),
        ({"x": {"values": ["a", "b", 0]}}, {"x": {"values": ["b", 0, "c"]}}, ["b", 0]),
        # What neither of them varies may differ, or be of one alone.
        ({"x": {"values": [0.5]}, "epochs": {"value": 3}}, {"x": UNIT}, [0.5]),
        (
            {"x": {"values": [0.5, 0.7]}, "epochs": {"value": 3}},
            {"x": UNIT, "epochs": {"value": 30}, "rest": {"value": 1}},
            [0.5, 0.7],
        ),
        # What one of them varies is one value of the other.
        ({"x": {"values": [1, 2]}}, {"x": {"value": 2}, "y": UNIT}, []),
        ({"x": {"values": [1, 2]}, "y": {"value": 0.5}}, {"x": {"value": 2}, "y": UNIT}, [2]),
        ({"x": {"values": [0.1, 0.2]}, "z": {"values": [1, 2]}}, {"x": UNIT}, []),
    ],
)
def test_a_trial_counts_where_what_is_varied_lies_in_the_search(
    there: dict[str, Any], here: dict[str, Any], kept: list[Any]
) -> None:
    found = taken(there, here)
    assert [point["x"] for point, _ in found.trials] == kept
    assert found.outside == found.ended - len(kept)


def test_groups_of_parameters_are_told_apart() -> None:
    there = {"net": {"parameters": {"width": {"values": [8, 16]}}}}
    assert len(taken(there, {"net": {"parameters": {"width": {"min": 8, "max": 12}}}}).trials) == 1
    assert len(taken(there, {"width": {"min": 8, "max": 12}}).trials) == 0


@pytest.mark.parametrize("goals", [("minimize", "minimize"), ("minimize", "maximize")])
def test_of_many_the_best_by_this_goal_and_others_are_kept(goals: tuple[str, str]) -> None:
    found = taken({"x": {"min": 0, "max": 999}}, {"x": {"min": 0, "max": 999}}, *goals)
    values = [value for _, value in found.trials]
    best = range(100) if goals[1] == "minimize" else range(900, 1000)
    assert len(values) == KEPT_MAX and set(best) <= set(values)
    assert values == sorted(values)  # by index
    rest = sorted(set(values) - set(best))
    assert max(b - a for a, b in pairwise(rest)) <= 10
    said = found.describe("x", "loss")
    assert said.startswith("200 of 1,000 trials of sweep/x warm the search; 800 are more than")


@pytest.mark.parametrize(("goal", "sign"), [("minimize", 1.0), ("maximize", -1.0)])
def test_what_is_stored_is_read_with_lower_values_better(goal: str, sign: float) -> None:
    found = taken({"x": {"values": [0.25, 0.5]}}, {"x": UNIT}, goal, goal)
    metric = Search.model_validate(search({"x": UNIT}, "bayes", goal)).metric
    assert metric is not None
    read = prior_trials(found.text(), metric)
    assert [(it.point, it.value, it.own) for it in read] == [
        ({"x": 0.25}, 0.0, False),
        ({"x": 0.5}, sign * 1.0, False),
    ]


@pytest.mark.parametrize(
    ("waits", "found"),
    [
        ({}, []),
        ({"a": "b"}, []),
        ({"a": "a"}, ["a"]),
        ({"a": "b", "b": "a"}, ["a", "b"]),
        ({"a": "b", "b": "c", "c": "a"}, ["a", "b", "c"]),
        ({"a": "b", "b": "c", "c": "b"}, []),  # the two others say so themselves
    ],
)
def test_sweeps_that_wait_for_each_other_are_found(waits: dict[str, str], found: list[str]) -> None:
    assert find_circle("a", lambda name: waits.get(name, "")) == found
