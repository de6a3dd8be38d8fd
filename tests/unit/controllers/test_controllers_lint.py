"""The last check before a plan is carried out: each wrong plan is found, by its sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from fleetctl.controllers.history.history import History
from fleetctl.controllers.planning.plan import (
    Action,
    CloseSandbox,
    Drop,
    Phase,
    Plan,
    Start,
    Stop,
    lint_plan,
)
from tests.unit.controllers.play import Play, job

START = Start(
    index=2,
    attempt=1,
    params={},
    params_hash="p",
    template_hash="t",
    provider="local",
    reusable=False,
    sandbox=None,
    reason="it has not run yet",
)


def lived() -> History:
    """Task 0 succeeded, 1 runs, 3 failed once; 4 left an idle sandbox behind."""
    play = Play(job(completions=9, parallelism=4, backoffLimitPerIndex=1, sandbox={"reuse": "all"}))
    play.turn()
    play.succeed(0)
    play.fail(3)
    play.turn()
    play.succeed(4, sandbox_open=True)
    return play.history


def found(*actions: Action, parallelism: int | None = 9) -> list[str]:
    return lint_plan(Plan(actions, Phase.RUNNING, "x"), lived(), parallelism=parallelism)


def test_a_sound_plan_is_found_sound() -> None:
    history = lived()
    box = next(name for name, it in history.sandboxes.items() if not it.busy)
    reuse = replace(START, index=6, sandbox=box)
    stop = Stop(next(iter(history.live)), "Suspended", 1.0)
    close = CloseSandbox(box, "no task")
    for actions in ((reuse,), (stop,), (close,), (replace(START, index=6),), ()):
        assert found(*actions) == []


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (replace(START, index=0), "index 0 succeeded and would start again"),
        (replace(START, index=1), "index 1 is live and would start again"),
        (replace(START, index=3), "index 3 would reuse attempt 1"),
        (
            replace(START, index=6, sandbox="nobody"),
            "index 6 would use the unknown sandbox nobody",
        ),
        (Stop("nobody", "x", 1.0), "nobody is not live and would be stopped"),
        (CloseSandbox("nobody", "x"), "sandbox nobody is not ours and would be closed"),
        (Drop("u1", "x"), "the object would be dropped while runs of it are live"),
    ],
)
def test_each_wrong_action_is_found(action: object, sentence: str) -> None:
    assert sentence in found(cast("Action", action))


def test_two_starts_of_one_index_are_found() -> None:
    start = replace(START, index=6)
    assert "index 6 would start 2 times" in found(start, start)


def test_more_than_parallelism_is_found_be_it_new_or_used_again() -> None:
    history = lived()
    held = len(history.live) + 1
    assert found(replace(START, index=6), parallelism=held + 1) == []
    assert found(replace(START, index=6), parallelism=held) != []
    box = next(name for name, it in history.sandboxes.items() if not it.busy)
    reuse = replace(START, index=6, sandbox=box)
    assert found(reuse, parallelism=held) == []
    assert found(reuse, parallelism=held - 1) != []


def test_without_a_limit_none_is_exceeded() -> None:
    starts = tuple(replace(START, index=index) for index in (6, 7, 8))
    assert found(*starts, parallelism=None) == []
