"""Nodes that step at paces drawn from a seed: who falls behind is named, and nobody else; and bugs
that must be seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from fleetctl.guest.nodes import gang
from fleetctl.guest.nodes.gang import STEPS, Stragglers, find_straggler
from tests.simulation.planted.plant import around, swapped

SEEDS = 150
STEPS_MAX = 120
KEPT = 200


def wrong(seed: int) -> list[str]:
    """What is not as it should be in one life of an attempt."""
    rng = random.Random(seed)
    count, step_s = rng.randint(2, 6), rng.choice((0.5, 2.0, 20.0))
    slow = rng.choice((None, rng.randrange(count)))
    stops_at = rng.choice((None, rng.randint(30, 60)))  # it hangs there, and others go on
    reports: list[dict[int, float]] = [{} for _ in range(count)]
    for rank in range(count):
        at_s = 0.0
        for step in range(STEPS_MAX):
            factor = 1.6 if rank == slow and stops_at is None else 1.0
            if rank == slow and step == stops_at:
                break
            # All wait for each other now and then, but for the slow one: jitter does not add up.
            base_s = at_s if rank == slow else step * step_s
            at_s = base_s + step_s * factor * rng.uniform(0.95, 1.05)
            reports[rank][step] = at_s
    seen, named = Stragglers(), []
    for look in range(1, STEPS_MAX):
        now_s = look * step_s
        known = [_kept(one, now_s) for one in reports]
        if text := seen.find_new(known, now_s):
            named.append(text.split(":")[0])
    expected = [] if slow is None else [f"node {slow}"]
    return [] if named == expected else [f"named {named}, slow is {slow}"]


def _kept(reported: dict[int, float], now_s: float) -> dict[int, float]:
    there = {step: at for step, at in reported.items() if at <= now_s}
    return dict(list(there.items())[-KEPT:])


def test_who_falls_behind_is_named_once_and_nobody_else() -> None:
    assert [(seed, found) for seed in range(SEEDS) if (found := wrong(seed))] == []


def named_at_every_look() -> AbstractContextManager[object]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def find_new(kept: Stragglers, nodes: Any, now_s: float) -> str | None:
            kept._named.clear()
            return original(kept, nodes, now_s)  # type: ignore[no-any-return]

        return find_new

    return around(Stragglers, "find_new", make)


def jitter_counts() -> AbstractContextManager[object]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def found(nodes: Any, now_s: float) -> Any:
            least, gang.BEHIND_MIN_S = gang.BEHIND_MIN_S, 0.0
            try:
                lags = original(nodes, now_s)
            finally:
                gang.BEHIND_MIN_S = least
            return lags or ((0, 0.1) if all(len(one) > STEPS for one in nodes) else None)

        return found

    return around(gang, "find_straggler", make)


def what_is_not_reported_is_left_out() -> AbstractContextManager[object]:
    def only_common(nodes: Any, now_s: float) -> Any:
        common = set.intersection(*(set(one) for one in nodes)) if nodes else set()
        return find_straggler([{step: one[step] for step in common} for one in nodes], now_s)

    return swapped(gang, "find_straggler", only_common)


@pytest.mark.parametrize(
    "plant",
    [named_at_every_look, jitter_counts, what_is_not_reported_is_left_out],
    ids=lambda it: it.__name__.replace("_", "-"),
)
def test_a_planted_bug_is_seen(plant: Callable[[], AbstractContextManager[object]]) -> None:
    with plant():
        assert any(wrong(seed) for seed in range(SEEDS))


def steady(count: int, *, late_s: float = 0.0) -> list[dict[int, float]]:
    """Nodes with a step a second, the last of them so late at each."""
    nodes = [{step: float(step) for step in range(40)} for _ in range(count)]
    nodes[-1] = {step: at + late_s for step, at in nodes[-1].items()}
    return nodes


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        (steady(3), None),
        (steady(3, late_s=1.9), None),  # less than what a look can tell
        (steady(3, late_s=3.1), (2, 3.1)),
        (steady(2, late_s=3.1), (1, 3.1)),
        ([*steady(3, late_s=3.1), {}], None),  # one that reports no steps: nothing is known of it
        ([{0: 1.0}, {0: 9.0}], None),  # too few steps
        ([], None),
    ],
)
def test_far_behind_is_seconds_and_twice_the_others(
    nodes: list[dict[int, float]], found: tuple[int, float] | None
) -> None:
    assert find_straggler(nodes, 60.0) == (
        None if found is None else (found[0], pytest.approx(found[1]))
    )


def test_a_node_that_is_far_behind_is_not_told_where_another_one_nearly_is() -> None:
    nodes = [{step: step + late_s for step in range(40)} for late_s in (0.0, 3.0, 3.0, 4.0)]
    assert find_straggler(nodes, 60.0) is None


def test_a_node_that_has_not_come_to_any_of_the_last_steps_is_as_late_as_its_next_one() -> None:
    fast = {step: step * 0.05 for step in range(100, 300)}
    slow = {step: step * 0.5 for step in range(30)}
    assert find_straggler([fast, fast, slow], 15.0) == (
        2,
        pytest.approx(10.0),
    )  # all that is known is 100
