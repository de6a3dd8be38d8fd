"""Importance finds what was put in, and claims nothing where there is nothing."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from fleetctl.views.plotting.trials import (
    TRIALS_MIN,
    Study,
    build_trial,
    compute_importances,
    compute_ranks,
)

STUDIES = 200


def study(
    count: int, score: Callable[[float, float, Random], float], *, seed: int = 1, goal: str = "max"
) -> Study:
    """Two numbers from 0 to 1, `a` and `b`, and a score of them."""
    random = Random(seed)
    points = [(random.random(), random.random()) for _ in range(count)]
    trials = tuple(
        build_trial(at, at, {"a": a, "b": b}, score(a, b, random))
        for at, (a, b) in enumerate(points)
    )
    return Study("score", f"{goal}imize", trials)


@pytest.mark.parametrize(
    ("score", "trend"),
    [
        (lambda a, b, r: a + 0.1 * b, "higher is better"),
        (lambda a, b, r: -(10**a) + 0.1 * b, "lower is better"),
        (lambda a, b, r: -((a - 0.5) ** 2) + 0.001 * b, ""),  # a best value in the middle
        (lambda a, b, r: (1e9 if a > 0.99 else a) + 0.1 * b, "higher is better"),  # one that blew
    ],
)
def test_the_parameter_that_matters_comes_first(
    score: Callable[[float, float, Random], float], trend: str
) -> None:
    first, second = compute_importances(study(60, score))
    assert (first.name, first.remark) == ("a", trend)
    assert first.share is not None and first.share > 0.5
    assert second.share is not None and second.share < 0.2


def test_lower_is_better_means_better_for_the_goal() -> None:
    (first, _) = compute_importances(study(40, lambda a, b, r: a, goal="min"))
    assert (first.name, first.remark) == ("a", "lower is better")


@pytest.mark.parametrize("count", [TRIALS_MIN, 20, 60])
def test_noise_is_called_chance_nineteen_times_in_twenty(count: int) -> None:
    claims = [
        not one.chance
        for seed in range(STUDIES)
        for one in compute_importances(study(count, lambda a, b, r: r.random(), seed=seed))
    ]
    assert len(claims) == 2 * STUDIES
    assert sum(claims) / len(claims) < 0.08


def test_below_eight_trials_nobody_can_tell() -> None:
    assert compute_importances(study(TRIALS_MIN - 1, lambda a, b, r: a)) == []


def test_a_parameter_with_a_value_of_its_own_for_each_trial_is_not_judged() -> None:
    trials = tuple(build_trial(n, n, {"id": f"run-{n}", "k": n % 2}, n % 2) for n in range(20))
    shares = {one.name: one.share for one in compute_importances(Study("s", "minimize", trials))}
    assert shares["id"] is None and shares["k"] == 1.0


def test_equals_share_a_rank() -> None:
    assert compute_ranks([3.0, 1.0, 3.0, 2.0]) == [3.5, 1.0, 3.5, 2.0]
