"""Whole lives of a resource, drawn at random: what must hold after every step of any of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.open_sandboxes import SandboxCountKey
from fleetctl.controllers.model import RunState
from fleetctl.controllers.planning.plan import Phase, Start
from tests.unit.controllers.play import Play, job

TEMPLATES = [{"python": f"SUBMIT(version={version})"} for version in range(3)]
RULES = [
    {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3]}},
    {"action": "Ignore", "onReasons": ["Evicted"]},
    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [4]}},
]

fields = st.fixed_dictionaries(
    {},
    optional={
        "completions": st.sampled_from([5, 8, 3, 1]),
        "parallelism": st.sampled_from([None, 3, 2, 1, 6, 0]),
        "backoffLimitPerIndex": st.integers(0, 3),
        "backoffLimit": st.none() | st.integers(0, 5),
        "maxInfraRetries": st.integers(0, 3),
        "maxFailedIndexes": st.none() | st.integers(0, 3),
        "activeDeadlineSeconds": st.sampled_from([None, None, 5, 300]),
        "suspend": st.sampled_from([False, False, True]),
        "rollout": st.sampled_from(["Replace", "FinishRunning"]),
        "sandbox": st.sampled_from([{"reuse": it} for it in ("all", 3, 2, 1)]),
        "template": st.sampled_from(TEMPLATES),
        "failurePolicy": st.sampled_from([None, {"rules": RULES}]),
        "successPolicy": st.sampled_from([None, {"rules": [{"succeededCount": 3}]}]),
    },
)
items = st.lists(st.integers(0, 4), min_size=1, max_size=6)

# What happens, what it happens to, and how many passes are made after it. Ends come most often,
# else nothing would ever be tried twice.
ends = st.tuples(
    st.sampled_from(
        ["succeed", "open", "open", "fail", "fail", "fail3", "fail4", "evict", "lose", "refuse"]
    ),
    st.integers(0, 7),
)
desired_rows = st.one_of(st.tuples(st.just("change"), fields), st.tuples(st.just("items"), items))
others = st.one_of(
    st.tuples(st.just("later"), st.sampled_from([0.5, 3.0, 3.0, 100.0])),
    st.tuples(st.sampled_from(["confirm", "confirm", "started", "restart"]), st.none()),
)
moments = st.tuples(st.one_of(ends, ends, ends, others, others, desired_rows), st.integers(0, 2))
events = st.integers(0, 12).flatmap(lambda n: st.lists(moments, min_size=n, max_size=4 * n))


def happen(play: Play, event: str, about: Any) -> None:
    if event in ENDS:
        working = [i for i in play.active if play.live(i).state is not RunState.STOPPING]
        if working:
            ENDS[event](play, working[about % len(working)])
    elif event == "change":
        play.change(**about)
    elif event == "items":
        play.change(tasks={"items": [{"x": x} for x in about]}, completions=None)
    elif event == "later":
        play.now_s += about
    else:
        OTHERS[event](play)


ENDS: dict[str, Callable[[Play, int], None]] = {
    "succeed": lambda play, index: play.succeed(index),
    "open": lambda play, index: play.succeed(index, sandbox_open=play.controller.policy.reuse != 1),
    "fail": lambda play, index: play.fail(index),
    "fail3": lambda play, index: play.fail(index, reason="ExitCode:3", exit_code=3),
    "fail4": lambda play, index: play.fail(index, reason="ExitCode:4", exit_code=4),
    "evict": lambda play, index: play.fail(index, reason="Evicted", exit_code=None),
    "lose": lambda play, index: play.lose(index),
    "refuse": lambda play, index: play.refuse(index, "no such image"),
}
OTHERS: dict[str, Callable[[Play], object]] = {
    "confirm": Play.confirm,
    "started": Play.confirm_starts,
    "restart": Play.restart,
}


def live_through(spec: dict[str, Any], lived: list[tuple[tuple[str, Any], int]]) -> Play:
    play = Play({**job(), **{key: it for key, it in spec.items() if it is not None}})
    play.turn()
    for (event, about), turns in lived:
        if event == "change" and "tasks" in play.spec:
            about = {key: it for key, it in about.items() if key != "completions"}
        happen(play, event, about)
        for _ in range(turns):
            play.turn()
    return play


def facts(history: History) -> dict[str, object]:
    """All that decisions are made from."""
    units = {
        index: (it.attempts, it.app_failures, it.infra_failures, it.last and it.last.name)
        for index, it in history.unfinished.items()
        if index not in history.live_by_index
    }
    attempts = {index: history.next_attempt(index) for index in history.live_by_index}
    return {
        "succeeded": str(history.succeeded),
        "failed": str(history.failed),
        "taken": str(history.taken),
        "live": history.live,
        "live_by_index": history.live_by_index,
        "units": units,
        "attempts": attempts,
        "due": [list(history.waiting.due(at_s)) for at_s in (0.0, 1e12)],
        "next_due": history.waiting.next_due_at_s(0.0),
        "sandboxes": {
            name: (box.provider, box.template_hash, box.used, box.last.name, box.busy)
            for name, box in history.sandboxes.items()
        },
        "scores": (history.scores, history.lowest, history.highest),
        "counts": (history.failures, history.infra_failures, history.retries, history.started),
        "first_result": history.first_result_at_s,
        "ends": [it and it.name for it in (history.failed_job, history.refused)],
        "last_failure": history.last_failure and history.last_failure.name,
        "first_failures": [it.name for it in history.first_failures],
        "providers": history.providers,
    }


@settings(max_examples=50, deadline=None)
@given(fields, events)
def test_a_restart_at_any_moment_knows_what_was_known_before(
    spec: dict[str, Any], lived: list[tuple[tuple[str, Any], int]]
) -> None:
    play = live_through(spec, lived)
    before = facts(play.history)
    play.restart()
    assert facts(play.history) == before


@settings(max_examples=50, deadline=None)
@given(fields, events)
def test_what_is_held_is_what_counting_all_sandboxes_gives(
    spec: dict[str, Any], lived: list[tuple[tuple[str, Any], int]]
) -> None:
    history = live_through(spec, lived).history
    stopping = {run.name for run in history.live.values() if run.state is RunState.STOPPING}
    assert history.sandboxes.held.counts == Counter(
        SandboxCountKey(
            box.provider,
            box.last.usd_per_s,
            stopping=box.closing or box.last.name in stopping,
            queued=box.last.queued,
        )
        for box in history.sandboxes.values()
    )


@settings(max_examples=50, deadline=None)
@given(fields, events)
def test_starts_never_exceed_parallelism_and_every_count_adds_up(
    spec: dict[str, Any], lived: list[tuple[tuple[str, Any], int]]
) -> None:
    play = live_through(spec, lived)
    live = len(play.history.live)
    # Play lints every plan that it looks at, so a plan that breaks a promise fails here too.
    plan = play.turn()
    limit = play.controller.policy.parallelism
    started = sum(1 for action in plan.actions if isinstance(action, Start))
    if started:
        assert live + started <= (4 if limit is None else limit)
    history, total = play.history, play.controller.total
    assert total is not None
    unwanted = [i for i in history.live_by_index if play.controller.unit(i) is None]
    finished = len(history.succeeded) + len(history.failed)
    waiting = len(list(history.waiting.due(1e12)))
    fresh = len(list(history.fresh(0, total)))
    assert finished + waiting + fresh + len(history.live) - len(unwanted) == total
    if not plan.final:
        assert play.status["succeeded"] == len(history.succeeded)
        assert play.status["active"] == len(history.live)


@settings(max_examples=50, deadline=None)
@given(fields, events)
def test_an_object_that_waits_for_time_says_when_to_look_again(
    spec: dict[str, Any], lived: list[tuple[tuple[str, Any], int]]
) -> None:
    play = live_through(spec, lived)
    plan = play.turn()
    if plan.wake_at_s is not None:
        assert plan.wake_at_s >= play.now_s
    if play.active or play.history.sandboxes or plan.actions or plan.final:
        return  # a run, a sandbox or an action brings the next look
    due_s = play.history.waiting.next_due_at_s(play.now_s)
    if due_s is not None and plan.phase in (Phase.RUNNING, Phase.PENDING):
        assert plan.wake_at_s is not None and plan.wake_at_s <= due_s


@settings(max_examples=50, deadline=None)
@given(fields, events)
def test_every_life_comes_to_an_end_once_nothing_disturbs_it(
    spec: dict[str, Any], lived: list[tuple[tuple[str, Any], int]]
) -> None:
    play = live_through(spec, lived)
    for _ in range(100):
        plan = play.turn()
        play.confirm()
        play.succeed(*play.active)
        if plan.final:
            break
        if plan.wake_at_s is not None:
            play.now_s = max(play.now_s, plan.wake_at_s)
    policy = play.controller.policy
    assert plan.final or policy.suspend or policy.parallelism == 0
    assert plan.phase in (Phase.SUCCEEDED, Phase.FAILED) or not plan.final
    assert not play.active


@settings(max_examples=50, deadline=None)
@given(fields, events)
def test_deletion_ends_every_life_with_nothing_left(
    spec: dict[str, Any], lived: list[tuple[tuple[str, Any], int]]
) -> None:
    play = live_through(spec, lived)
    play.deleted = True
    play.settle_deletion()
    assert play.history.live == {} and play.history.sandboxes == {}
