"""Retries that count from the last new checkpoint, and steps back from one that keeps failing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleetctl.controllers.history.checkpoints import STEPS_BACK_MAX, NewestCheckpoints
from fleetctl.controllers.model import CheckpointOrder, SavedCheckpoint
from fleetctl.controllers.planning.plan import Phase
from tests.unit.controllers.play import Play

CHECKPOINT = {"path": "/ckpt"}


def training(**fields: Any) -> Play:
    spec = {"template": {"command": ["train"]}, "checkpoint": CHECKPOINT, **fields}
    return Play(spec, "TrainingRun")


def begin(play: Play, resumed: int | None) -> None:
    """The next attempt, which begins from that step."""
    play.now_s += 1_000
    play.turn()
    play.resumes(0, resumed)


def order(play: Play) -> CheckpointOrder:
    """What the next attempt is told; the same after a restart of the controller."""
    told = play.controller.checkpoint(play.history, 0)
    controller, history = play.replayed()
    assert controller.checkpoint(history, 0) == told
    assert told is not None
    return told


def test_case_9_preemptions_that_each_follow_a_new_checkpoint_never_end_a_run() -> None:
    play = training(maxInfraRetries=5)
    for number in range(6):
        begin(play, number * 10 or None)
        play.saves(0, (number + 1) * 10)
        play.lose(0)
    begin(play, 60)
    play.succeed(0)
    assert play.turn().phase is Phase.SUCCEEDED


def test_case_9_six_preemptions_without_a_new_checkpoint_fail_by_the_field_that_limits_them() -> (
    None
):
    play = training(maxInfraRetries=5)
    for _ in range(6):
        begin(play, None)
        play.lose(0)
    plan = play.turn()
    assert (plan.phase, plan.reason) == (Phase.FAILED, "StageFailed")
    assert plan.message == (
        "stage main was lost with ProviderLost; maxInfraRetries is 5,"
        " counted since the last new checkpoint"
    )


def test_a_crash_after_a_new_checkpoint_is_the_first_again() -> None:
    play = training(maxRestarts=1)
    for number in range(4):
        begin(play, number * 10 or None)
        play.saves(0, (number + 1) * 10)
        play.fail(0)
        assert play.turn().phase is not Phase.FAILED
    begin(play, 40)
    play.fail(0)
    assert play.turn().phase is Phase.FAILED


def test_a_step_that_is_saved_again_is_no_progress() -> None:
    play = training(maxRestarts=2)
    for resumed in (None, 10, 10):
        begin(play, resumed)
        play.saves(0, 15)
        play.fail(0)
    assert play.turn().phase is Phase.FAILED
    assert play.history.failures == 3


@pytest.mark.parametrize("restart", [False, True])
def test_case_7_after_two_failures_from_one_checkpoint_the_one_before_is_tried(
    restart: bool,
) -> None:
    play = training(maxRestarts=5)
    begin(play, None)
    play.saves(0, 15)
    play.fail(0)
    for _ in range(2):
        assert order(play).below is None
        begin(play, 15)
        play.fail(0)
        if restart:
            play.restart()
    assert order(play).below == 15
    begin(play, 10)
    play.saves(0, 15)
    play.lose(0)
    assert order(play).below is None  # it was written anew
    begin(play, 15)
    play.succeed(0)
    assert play.turn().phase is Phase.SUCCEEDED


def test_losses_are_no_sign_against_a_checkpoint() -> None:
    play = training()
    for _ in range(4):
        begin(play, 15)
        play.lose(0)
    assert order(play).below is None


def test_a_run_steps_back_so_often_and_no_more() -> None:
    play = training(maxRestarts=50)
    steps = [60, 50, 40, 30, 20]
    for step in steps[:STEPS_BACK_MAX]:
        for _ in range(2):
            begin(play, step)
            play.fail(0)
        assert order(play).below == step
    for _ in range(2):
        begin(play, steps[STEPS_BACK_MAX])
        play.fail(0)
    assert order(play).below == steps[STEPS_BACK_MAX - 1]


def test_a_step_that_was_asked_for_holds_until_an_attempt_has_gone_on_from_it() -> None:
    play = training(checkpoint={**CHECKPOINT, "resume": "step:10"}, maxRestarts=5)
    begin(play, 10)
    play.fail(0)
    assert order(play).resume == "step:10"
    begin(play, 10)
    play.saves(0, 15)
    play.fail(0)
    assert order(play).resume == "Latest"


def test_a_step_that_is_not_there_ends_the_run_at_once_and_says_so() -> None:
    play = training(maxRestarts=3, checkpoint={"path": "/v/c", "resume": "step:7"})
    begin(play, None)
    play.fail(0, reason="NoCheckpoint")
    play.now_s += 1_000
    plan = play.turn()
    assert (plan.phase, plan.reason, play.active) == (Phase.FAILED, "StageFailed", [])
    assert "stage main cannot begin: " in plan.message
    assert "`checkpoint.resume`, or `Latest`" in plan.hint


def test_arguments_are_for_commands_alone() -> None:
    asked = {**CHECKPOINT, "resumeArgs": ["--resume=${checkpoint}"], "keep": {"last": 3}}
    play = training(
        checkpoint=asked, stages=[{"name": "one"}, {"name": "two", "script": "train.sh"}]
    )
    first, second = (play.controller.checkpoint(play.history, index) for index in range(2))
    assert first is not None and first.arguments == ("--resume=${checkpoint}",)
    assert second is not None and second.arguments == ()
    assert (first.last, first.every) == (3, None)


def two_stages(**train: Any) -> Play:
    asked = {**CHECKPOINT, "resumeArgs": ["--resume=${checkpoint}"]}
    stages = [{"name": "data", "command": ["prepare"]}, {"name": "train", **train}]
    return training(checkpoint=asked, stages=stages, maxRestarts=3)


def arguments(play: Play) -> list[tuple[str, ...]]:
    orders = [play.controller.checkpoint(play.history, index) for index in range(2)]
    return [order.arguments for order in orders if order is not None]


def test_a_stage_has_no_arguments_for_what_other_stages_saved() -> None:
    play, whole = two_stages(), ("--resume=${checkpoint}",)
    assert arguments(play) == [whole, whole]  # what lies on the volume may be of either
    play.turn()
    play.succeed(0)
    play.turn()
    play.saves(1, 10)
    play.fail(1)
    assert arguments(play) == [(), whole]
    play.restart()
    assert arguments(play) == [(), whole]


def test_a_stage_with_arguments_of_its_own_has_those() -> None:
    play = two_stages(resumeArgs=["--from", "${checkpoint}"])
    assert arguments(play)[1] == ("--from", "${checkpoint}")
    assert arguments(two_stages(resumeArgs=[]))[1] == ()


def put_aside(play: Play) -> None:
    """Somebody asks for another attempt, as apply/write/requeue.py does."""
    name, (run, result) = list(play.rows.items())[-1]
    play.rows[name] = (replace(run, put_aside=True), result)
    play.restart()


@pytest.mark.parametrize("origin", [None, 20])
def test_a_retry_after_a_success_begins_where_its_first_attempt_began(origin: int | None) -> None:
    play = training(maxRestarts=3)
    begin(play, origin)
    play.confirm_starts()
    play.saves(0, 30)
    play.lose(0)
    begin(play, 30)
    play.confirm_starts()
    play.succeed(0)
    put_aside(play)
    below = 0 if origin is None else 21
    assert (order(play).anew, order(play).below) == (True, below)
    begin(play, origin)
    play.lose(0)
    assert (order(play).anew, order(play).below) == (True, below)  # it has saved nothing of its own
    begin(play, origin)
    play.saves(0, 25)
    play.lose(0)
    assert (order(play).anew, order(play).below) == (False, None)


def test_a_retry_after_a_failure_goes_on_from_the_last_checkpoint() -> None:
    play = training()
    begin(play, None)
    play.confirm_starts()
    play.saves(0, 30)
    play.fail(0)
    put_aside(play)
    assert (order(play).anew, order(play).below) == (False, None)


def test_another_content_begins_to_count_anew() -> None:
    play = training(maxRestarts=1)
    begin(play, None)
    play.saves(0, 15)
    play.fail(0)
    begin(play, 15)
    play.change(template={"command": ["train", "better"]})
    play.settle()
    begin(play, 15)
    play.saves(0, 20)
    play.fail(0)
    assert play.turn().phase is not Phase.FAILED


def test_sandboxes_that_end_of_age_without_a_checkpoint_follow_ever_more_slowly() -> None:
    play = training()
    waits = []
    for _ in range(5):
        begin(play, None)
        play.confirm_starts()
        play.now_s += 310
        play.lose(0, reason="MaxLifetime")
        unit = play.history.unfinished[0]
        waits.append(unit.due_at_s - play.now_s)
    assert waits[:2] == [0.0, 0.0]
    assert 0 < waits[2] < waits[4]
    begin(play, None)
    play.confirm_starts()
    play.now_s += 310
    play.saves(0, 5)
    play.lose(0, reason="MaxLifetime")
    assert play.history.unfinished[0].due_at_s == play.now_s


def test_how_often_is_told_once_there_are_three() -> None:
    saves = NewestCheckpoints()
    for number, at_s in enumerate((0.0, 540.0, 1090.0, 1600.0)):
        saves.take(SavedCheckpoint(number, f"/ckpt/{number}", at_s, 7))
        assert (saves.every_s is None) is (number < 2)
    assert saves.every_s == 540.0
    assert saves.newest is not None and saves.newest.step == 3


def test_a_step_that_keep_has_removed_is_refused_before_an_attempt() -> None:
    kept = {**CHECKPOINT, "keep": {"last": 2}}
    play = training(checkpoint=kept)
    begin(play, None)
    for step in (10, 20, 30, 40):
        play.saves(0, step)
        play.history.saved(SavedCheckpoint(step, f"/ckpt/{step}", play.now_s, 1))
    play.succeed(0)
    for resume, active in (("step:30", True), ("step:20", False), ("step:7", True)):
        again = training(checkpoint={**kept, "resume": resume})
        again.history._saves = play.history.saves
        plan = again.turn()
        assert bool(again.active) is active, resume
        if not active:
            assert (plan.phase, plan.reason) == (Phase.FAILED, "StageFailed")
            assert (
                "stage main cannot begin: `keep` has removed the checkpoint of step 20; there are"
                " those of 30, 40" in plan.message
            )


def test_what_an_attempt_began_from_and_what_a_mirror_has_may_be_there() -> None:
    kept = {**CHECKPOINT, "keep": {"last": 1}, "resume": "step:10"}
    for more, began in (({}, 10), ({"mirror": "s3://bucket/run"}, None)):
        play = training(checkpoint={**kept, **more})
        begin(play, began)
        for step in (10, 20):
            play.history.saved(SavedCheckpoint(step, f"/ckpt/{step}", play.now_s, 1))
        play.lose(0)
        play.now_s += 1_000
        assert play.turn().phase is Phase.PENDING and play.active


def test_a_program_that_is_not_there_is_looked_for_once() -> None:
    play = training(maxRestarts=40)
    begin(play, None)
    play.fail(0, reason="CommandNotFound", exit_code=127)
    play.now_s += 1_000
    plan = play.turn()
    assert (plan.phase, plan.reason, play.active) == (Phase.FAILED, "StageFailed", [])
    assert "CommandNotFound" in plan.message
