"""Queues as a whole, played without a world: arrivals, starts and ends in virtual time. What is
promised must hold at every moment, and everybody who can start does within a bound.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.controllers.queues.preemption import PreemptableRun, choose_evictions, next_up
from fleetctl.controllers.queues.queue_admission import QueueAdmission
from fleetctl.controllers.queues.queue_position import find_position, order_waiters
from fleetctl.controllers.queues.queue_state import (
    QueueAsk,
    QueuedObject,
    QueueRules,
    QueueState,
    QueueStates,
    QueueUsage,
    Quota,
    Vector,
    parse_usage,
    text_of,
)

LONGEST_S = 10.0
OVERTAKE_S = 30.0


@dataclass(frozen=True, slots=True)
class Job:
    """runs: how many it has; each takes so many GPUs and seconds."""

    name: str
    at_s: float
    runs: int
    gpus: int
    seconds: float
    queue: str = "q"
    namespace: str = "a"
    priority: int = 0


@dataclass
class Played:
    """started: (time, job) of each run. used: the most that each queue used at once."""

    started: list[tuple[float, str]] = field(default_factory=list)
    used: dict[str, float] = field(default_factory=dict)
    together: float = 0.0


def play(rules: list[QueueRules], jobs: list[Job]) -> Played:
    """Until nothing is left; every end and every arrival is a tick, as in the engine."""
    lines, played = QueueStates(), Played()
    lines.declare(rules)
    left = {it.name: it.runs for it in jobs}
    stands = {it.name: it.at_s for it in jobs}
    events: list[tuple[float, int, str, Job]] = [
        (it.at_s, number, "comes", it) for number, it in enumerate(jobs)
    ]
    heapq.heapify(events)
    here: dict[str, Job] = {}
    live: list[Job] = []
    while events:
        now_s, number, what, job = heapq.heappop(events)
        here[job.name] = job
        if what == "ends":
            live.remove(job)
        for rule in rules:
            lines.empty(rule.name)
        for it in live:
            lines.use(it.queue, it.namespace, ask_of(it))
        looked = [job.name, *lines.waiters]
        for _ in range(len(jobs) + 1):
            for name in sorted(looked, key=lambda it: (-here[it].priority, here[it].at_s)):
                for one in _starts(lines, here[name], left, stands, now_s):
                    number += len(jobs)
                    live.append(one)
                    heapq.heappush(events, (now_s + one.seconds, number, "ends", one))
                    played.started.append((now_s, one.name))
            looked = [
                uid for them in lines.cohorts() for uid in next_up(lines, them, now_s, most=9)
            ]
            if not looked:
                break
        for rule in rules:
            most = max(lines.lines[rule.name].used[0], played.used.get(rule.name, 0.0))
            played.used[rule.name] = most
        total = sum(lines.lines[it.name].used[0] for it in rules)
        played.together = max(played.together, total)
    assert not any(left.values()), f"never started: {left}"
    return played


def ask_of(job: Job) -> QueueAsk:
    return QueueAsk("local", QueueUsage(1, 1.0, (("A100", job.gpus),)), 0.0)


def _starts(
    lines: QueueStates, job: Job, left: dict[str, int], stands: dict[str, float], now_s: float
) -> Iterator[Job]:
    """One pass over a job."""
    me = QueuedObject(
        job.name, job.name, job.queue, job.namespace, job.priority, job.at_s, stands[job.name]
    )
    turn = QueueAdmission(lines, me, now_s)
    while left[job.name]:
        if turn.refusal(ask_of(job)) is not None:
            asks = (ask_of(job),)
            lines.put(
                QueuedObject(
                    job.name, job.name, job.queue, job.namespace, job.priority, job.at_s,
                    stands[job.name], asks,
                )
            )  # fmt: skip
            return
        turn.take(ask_of(job))
        left[job.name] -= 1
        stands[job.name] = now_s
        yield job
    lines.drop(job.name)


def rules(most: int = 4, *, name: str = "q", **more: object) -> QueueRules:
    borrowing = more.pop("borrowing", None)
    lending = more.pop("lending", None)
    quota = Quota("gpus", most, "", borrowing, lending)  # type: ignore[arg-type]
    return QueueRules(name, (quota,), overtake_s=OVERTAKE_S, **more)  # type: ignore[arg-type]


JOBS = st.lists(
    st.builds(
        Job,
        name=st.uuids().map(str),
        at_s=st.floats(0, 20),
        runs=st.integers(1, 6),
        gpus=st.integers(1, 4),
        seconds=st.floats(0.5, LONGEST_S),
        namespace=st.sampled_from("abc"),
        priority=st.integers(-2, 2),
        queue=st.sampled_from(("q", "r")),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda it: it.name,
)


@settings(max_examples=30)
@given(JOBS, st.booleans(), st.sampled_from([None, {}, {"a": 3.0}]))
def test_whatever_comes_nothing_is_over_quota_and_everything_starts(
    jobs: list[Job], strict: bool, weights: dict[str, float] | None
) -> None:
    both = [rules(name=it, strict=strict, weights=weights) for it in ("q", "r")]
    played = play(both, jobs)
    assert all(used <= 4 for used in played.used.values())


@settings(max_examples=30)
@given(JOBS, st.integers(0, 3), st.integers(0, 4))
def test_queues_of_a_cohort_use_no_more_than_they_have_together(
    jobs: list[Job], borrowing: int, lending: int
) -> None:
    q = rules(4, name="q", cohort="lab", borrowing=borrowing, lending=lending)
    r = rules(4, name="r", cohort="lab")
    played = play([q, r], jobs)
    assert played.together <= 8
    assert played.used["q"] <= 4 + borrowing
    assert played.used["r"] <= 4 + lending


def test_a_namespace_that_floods_a_queue_starves_no_other() -> None:
    flood = [Job(f"flood-{it}", it / 10, 30, 1, 1.0, priority=9) for it in range(8)]
    small = Job("small", 5.0, 1, 1, 1.0, namespace="b")
    gang = Job("gang", 5.0, 1, 4, 1.0, namespace="c")
    played = play([rules(weights={})], [*flood, small, gang])
    when = {name: at_s for at_s, name in reversed(played.started)}
    assert when["small"] <= 5.0 + 1.0 + 0.2
    assert when["gang"] <= 5.0 + OVERTAKE_S + 1.0 + 0.2


def test_what_needs_much_is_overtaken_for_so_long_and_no_longer() -> None:
    flood = [Job(f"flood-{it}", it * 0.38, 1, 1, 1.5) for it in range(110)]
    gang = Job("gang", 5.05, 1, 4, 1.0)
    played = play([rules()], [*flood, gang])
    when = {name: at_s for at_s, name in reversed(played.started)}
    assert 5.05 < when["gang"] <= 5.05 + OVERTAKE_S + 1.5 + 0.2


@settings(max_examples=30)
@given(JOBS)
def test_within_a_namespace_nobody_is_overtaken_by_a_lower_priority_that_fits_as_well(
    jobs: list[Job],
) -> None:
    """All ask for the same, so whoever starts has nobody before it."""
    same = [Job(it.name, it.at_s, it.runs, 2, it.seconds, priority=it.priority) for it in jobs]
    played = play([rules()], same)
    by_name = {it.name: it for it in same}
    left = {it.name: it.runs for it in same}
    for at_s, name in played.started:
        left[name] -= 1
        waits = [it for it in same if left[it.name] and it.at_s < at_s]
        assert all(it.priority <= by_name[name].priority for it in waits)


def test_positions_follow_priority_and_turns_and_are_all_different() -> None:
    waiters = [
        QueuedObject(
            name, name, "q", space, rank, since_s, since_s, (ask_of(Job(name, 0, 1, 2, 1)),)
        )
        for name, space, rank, since_s in (
            ("old", "a", 0, 1.0),
            ("new", "a", 0, 9.0),
            ("high", "a", 5, 8.0),
            ("other", "b", 0, 7.0),
        )
    ]
    assert [it.uid for it in order_waiters(rules(), {}, waiters)] == ["high", "old", "other", "new"]
    fair = order_waiters(rules(weights={}), {"a": [2.0]}, waiters)
    assert [it.uid for it in fair] == ["other", "high", "old", "new"]
    standing = find_position(fair, "old", {"other": 3})
    assert standing is not None
    assert (standing.position, standing.of, standing.ahead) == (3, 4, 4)


def test_what_a_run_takes_is_kept_as_it_was() -> None:
    takes = QueueUsage(2, 8.0, (("H100!", 16), ("A100", 16)))
    text = text_of("gpu", takes)
    assert text.startswith('{"queue":"gpu",')  # as reader.sql looks for it
    assert parse_usage(text) == ("gpu", takes)
    of = {name: Quota(name, 1).amount(takes, "modal", 2.0) for name in ("gpu/h100", "gpu/A100")}
    assert of == {"gpu/h100": 16, "gpu/A100": 16}
    assert Quota("gpu/T4", 1).amount(takes, "modal", 2.0) == 0
    assert Quota("gpus", 1).amount(takes, "modal", 2.0) == 16
    assert Quota("gpus", 1, "local").amount(takes, "modal", 2.0) == 0
    assert Quota("usdPerHour", 1).amount(takes, "modal", 2.0) == 7200
    assert Quota("usdPerHour", 1).amount(takes, "modal", None) is None


def test_waiters_whom_nobody_makes_room_for_cost_no_look_at_every_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = 100
    looked: list[QueueAsk] = []
    lines = QueueStates()
    lines.declare([QueueRules("q", (Quota("cpus", many),), within_queue=True)])
    one = QueueAsk("local", QueueUsage(cpus=1.0), None)
    lines.use("q", "a", one, count=many)
    for number in range(many):
        ask = QueueAsk("local", QueueUsage(cpus=1.0 + number / many), None)
        lines.put(QueuedObject(f"w{number}", "job/w", "q", "a", 0, number, number, (ask,)))
    runs = [PreemptableRun(f"r{it}", f"u{it}", "q", "a", 0, 0.0, one) for it in range(many)]
    vector = QueueState.vector

    def counted(line: QueueState, ask: QueueAsk) -> Vector | None:
        looked.append(ask)
        return vector(line, ask)

    monkeypatch.setattr(QueueState, "vector", counted)
    cohort = lines.cohort(lines.lines["q"])
    assert choose_evictions(lines, cohort, lambda: runs) == []
    assert len(looked) < many
    lines.put(QueuedObject("first", "job/first", "q", "a", 1, 0.0, 0.0, (one,)))
    assert [it.run for it in choose_evictions(lines, cohort, lambda: runs)] == ["r0"]
