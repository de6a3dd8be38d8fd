"""The small pure parts against their plainest models, and what a pass costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.controllers.history.facts import IntervalSet
from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.retry_limits import RetryLimits, due_at_s
from fleetctl.controllers.kinds.batchjob import BatchJobController
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.planning.kind_controller import Unit
from fleetctl.controllers.reconcile import reconcile_object
from tests.unit.controllers.play import Play, job

indexes = st.integers(0, 30)


@given(st.lists(st.tuples(st.booleans(), indexes)), indexes, indexes)
def test_an_interval_set_is_a_set(steps: list[tuple[bool, int]], start: int, end: int) -> None:
    found, model = IntervalSet(), set[int]()
    for adds, index in steps:
        if adds:
            assert found.add(index) == (index not in model)
            model.add(index)
        else:
            assert found.discard(index) == (index in model)
            model.discard(index)
    assert list(found) == sorted(model)
    assert len(found) == len(model)
    assert all((index in found) == (index in model) for index in range(32))
    assert found.count(start, end) == sum(1 for i in range(start, end) if i in model)
    assert list(found.gaps(start, end)) == [i for i in range(start, end) if i not in model]


@given(st.sets(indexes))
def test_intervals_never_touch_and_their_text_tells_all(model: set[int]) -> None:
    told: set[int] = set()
    last = -2
    for part in filter(None, str(IntervalSet(model)).split(",")):
        first, _, end = part.partition("-")
        assert int(first) > last + 1
        last = int(end or first)
        told.update(range(int(first), last + 1))
    assert told == model


@given(
    failures=st.integers(1, 10_000),
    initial_s=st.floats(0.01, 1e5),
    more_s=st.floats(0, 1e6),
    factor=st.floats(1, 100),
    seed=st.integers(0, 2**63 - 1),
    index=st.integers(0, 10**6),
)
def test_a_backoff_stays_within_its_bounds_and_is_the_same_every_time(
    failures: int, initial_s: float, more_s: float, factor: float, seed: int, index: int
) -> None:
    limits = RetryLimits(
        backoff_initial_s=initial_s,
        backoff_max_s=initial_s + more_s,
        backoff_factor=factor,
        seed=seed,
    )
    run = Run("r", "u", index, 1, RunState.FAILED, "local", "r", "t", "{}", "p", 0.0)
    ended = replace(run, ended_at_s=0.0)
    wait_s = due_at_s(limits, ended, failures=failures)
    full_s = min(initial_s * factor ** min(failures - 1, 64), initial_s + more_s)
    assert full_s / 2 <= wait_s <= full_s
    assert wait_s == due_at_s(limits, ended, failures=failures)


class Counted(BatchJobController):
    """Counts what a pass asks of the kind."""

    calls: Counter[str]

    def _unit(self, index: int) -> Unit | None:
        self.calls["unit"] += 1
        return super()._unit(index)


def asked(monkeypatch: pytest.MonkeyPatch, tasks: int, finished: int) -> tuple[int, int]:
    """How many units a pass looks at, and how many intervals its history holds."""
    monkeypatch.setitem(CONTROLLERS, "BatchJob", Counted)
    Counted.calls = Counter()
    play = Play(job(completions=tasks, parallelism=8))
    for index in range(finished):
        play.history.taken.add(index)
        play.history.succeeded.add(index)
    play.turn()
    play.succeed(*play.active[:3])
    Counted.calls.clear()
    reconcile_object(play.desired(), play.history, play.now_s)
    return Counted.calls["unit"], sizes(play.history)


def sizes(history: History) -> int:
    """How many things the history holds in memory."""
    sets: tuple[Any, ...] = (history.taken, history.succeeded, history.failed)
    intervals = sum(str(it).count(",") + 1 for it in sets)
    return intervals + len(history.unfinished) + len(history.sandboxes) + len(history.live)


def test_a_pass_asks_as_much_of_a_job_with_100000_finished_tasks_as_of_one_with_100(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    units, held = asked(monkeypatch, 200, 100)
    assert units > 0
    assert asked(monkeypatch, 200_000, 100_000) == (units, held)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(0, 30))
def test_what_is_held_in_memory_grows_with_what_runs_and_not_with_what_is_done(
    parallelism: int, rounds: int
) -> None:
    play = Play(job(completions=2_000, parallelism=parallelism))
    play.turn()
    for _ in range(rounds):
        play.succeed(*play.active)
        play.turn()
    assert sizes(play.history) <= 3 + 3 * parallelism
