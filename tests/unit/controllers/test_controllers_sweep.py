"""Sweep: trials, the best of them, and a grid that changes."""

from __future__ import annotations

from typing import Any

from fleetctl.controllers.kinds.sweep import SweepController
from fleetctl.controllers.planning.plan import Phase, Start
from fleetctl.specs.kinds.registry import KINDS
from tests.unit.controllers.play import Play

METRIC = {"name": "loss", "goal": "minimize"}


def spec(**fields: Any) -> dict[str, Any]:
    return {"template": {"python": "SUBMIT(loss=1)"}, "search": grid(1, 2, 3), **fields}


def grid(*values: object, **fields: Any) -> dict[str, Any]:
    parameters = {"x": {"values": list(values)}}
    return {"method": "grid", "metric": METRIC, "parameters": parameters, **fields}


def sweep(**fields: Any) -> Play:
    return Play(spec(**fields), "Sweep")


def drawn(**fields: Any) -> dict[str, Any]:
    parameters = {"x": {"min": 0.0, "max": 1.0}}
    return {"method": "random", "metric": METRIC, "parameters": parameters, **fields}


def started(play: Play) -> list[object]:
    return [a.params["x"] for a in play.turn().actions if isinstance(a, Start)]


def loss(value: object) -> str:
    return f'{{"loss":{value}}}'


def test_a_grid_runs_every_point_once_and_shows_the_best() -> None:
    play = sweep()
    assert started(play) == [1, 2, 3]
    for index, value in enumerate((0.5, 0.1, 0.9)):
        play.succeed(index, result=loss(value))
    plan = play.turn()
    assert (plan.phase, plan.message) == (Phase.SUCCEEDED, "3 of 3 trials succeeded")
    assert plan.extra["best"] == {
        "index": 1,
        "params": {"x": 2},
        "metric": {"name": "loss", "value": 0.1},
    }


def test_maximize_finds_the_largest_and_the_earliest_of_equals() -> None:
    play = sweep(search=grid(1, 2, 3, metric={"name": "loss", "goal": "maximize"}))
    play.turn()
    for index, value in enumerate((0.5, 0.9, 0.9)):
        play.succeed(index, result=loss(value))
    best = play.turn().extra["best"]
    assert isinstance(best, dict) and best["index"] == 1


def test_a_random_search_ends_after_its_trials() -> None:
    play = sweep(search=drawn(), trials=5, parallelism=10)
    assert len(started(play)) == 5


def test_the_smaller_of_trials_and_run_cap_counts() -> None:
    play = sweep(search=drawn(run_cap=3), trials=5, parallelism=10)
    assert len(started(play)) == 3


def test_a_run_cap_cuts_a_grid() -> None:
    play = sweep(search=grid(1, 2, 3, run_cap=2))
    assert started(play) == [1, 2]


def test_random_points_depend_on_the_seed_and_the_index_alone() -> None:
    first = started(sweep(search=drawn(), trials=4, seed=7))
    assert first == started(sweep(search=drawn(), trials=4, seed=7))
    assert first != started(sweep(search=drawn(), trials=4, seed=8))
    assert len(set(map(str, first))) == 4


def test_a_reached_target_starts_no_more_and_lets_the_others_end() -> None:
    play = sweep(search=grid(1, 2, 3, 4, metric={**METRIC, "target": 0.2}), parallelism=2)
    play.turn()
    play.succeed(0, result=loss(0.2))
    plan = play.turn()
    assert (plan.reason, plan.actions) == ("Finishing", ())
    play.succeed(1, result=loss(0.7))
    plan = play.turn()
    assert (plan.phase, plan.reason) == (Phase.SUCCEEDED, "TargetReached")


def test_a_reached_target_is_not_unreached_by_a_trial_that_fails_after_it() -> None:
    search = grid(1, 2, 3, 4, metric={**METRIC, "target": 0.2})
    play = sweep(search=search, parallelism=2, maxFailedIndexes=0)
    play.turn()
    play.succeed(0, result=loss(0.2))
    play.turn()
    play.fail(1)
    assert play.turn().reason == "TargetReached"


def test_the_deadline_ends_trials_that_a_reached_target_waits_for() -> None:
    search = grid(1, 2, metric={**METRIC, "target": 0.2})
    play = sweep(search=search, activeDeadlineSeconds=60)
    play.turn()
    play.succeed(0, result=loss(0.2))
    plan = play.turn()
    assert plan.wake_at_s == play.now_s + 60
    play.now_s += 60
    play.turn()
    play.confirm()
    assert play.turn().reason == "TargetReached"


def test_a_sweep_without_its_metric_fails_and_says_so() -> None:
    play = sweep()
    play.turn()
    play.succeed(0, 1, 2, result='{"accuracy":1}')
    plan = play.turn()
    assert (plan.phase, plan.reason) == (Phase.FAILED, "MetricMissing")
    assert "no trial reported a finite number as the metric `loss`" in plan.message
    assert "`loss`" in plan.message


def test_failed_trials_fail_the_sweep_unless_some_are_allowed() -> None:
    for allowed, phase in ((None, Phase.FAILED), (1, Phase.SUCCEEDED)):
        play = sweep(**({} if allowed is None else {"maxFailedIndexes": allowed}))
        play.turn()
        play.fail(0)
        play.succeed(1, 2, result=loss(1))
        assert play.turn().phase is phase


def test_a_sweep_that_can_only_fail_says_so_while_it_runs() -> None:
    for fields, lost in (
        ({}, "1 of 3 trials failed"),
        ({"maxFailedIndexes": 1}, None),
        ({"successPolicy": {"rules": [{"succeededCount": 2}]}}, None),
    ):
        play = sweep(**fields)
        play.turn()
        play.fail(0)
        assert play.turn().extra.get("cannotSucceed") == lost


def test_a_sweep_with_a_target_may_still_reach_it_after_a_failure() -> None:
    play = sweep(search=grid(0, 1, 2, metric={"name": "loss", "target": 0.5}))
    play.turn()
    play.fail(0)
    assert "cannotSucceed" not in play.turn().extra
    play.succeed(1, result=loss(0.4))
    play.succeed(2, result=loss(1))
    assert play.turn().phase is Phase.SUCCEEDED


def test_the_limit_on_all_failures_holds_for_trials_too() -> None:
    play = sweep(backoffLimit=0, backoffLimitPerIndex=9)
    play.turn()
    play.fail(0)
    play.turn()
    play.confirm()
    assert play.turn().reason == "BackoffLimitExceeded"


def test_a_larger_grid_keeps_the_trials_it_had() -> None:
    play = sweep()
    play.turn()
    play.succeed(0, 1, 2, result=loss(1))
    play.turn()
    play.change(search=grid(0, 1, 2, 3, 4))
    assert sorted(map(str, started(play))) == ["0", "4"]
    assert len(play.history.succeeded) == 3


def test_a_smaller_grid_stops_what_left_it_and_ends() -> None:
    play = sweep()
    play.turn()
    play.succeed(0, result=loss(1))
    play.change(search=grid(1, 3))
    play.turn()
    play.confirm()
    assert play.active == [2]
    play.succeed(2, result=loss(0.5))
    plan = play.turn()
    assert (plan.phase, plan.message) == (Phase.SUCCEEDED, "2 of 2 trials succeeded")


def test_a_grid_that_changes_under_live_trials_still_runs_all_its_points() -> None:
    play = sweep(search=grid(1, 2, 3, run_cap=3))
    play.turn()
    play.change(search=grid(4, 5, 6, run_cap=3))
    for _ in range(3):
        play.turn()
        play.confirm()
    play.turn()
    assert sorted(play.live(index).params for index in play.active) == [
        '{"x":4}',
        '{"x":5}',
        '{"x":6}',
    ]


def test_a_point_that_comes_back_has_its_old_index_and_result() -> None:
    play = sweep()
    play.turn()
    play.succeed(0, 1, 2, result=loss(1))
    play.change(search=grid(2, 3))
    play.turn()
    play.change(search=grid(1, 2, 3))
    assert started(play) == []
    assert play.turn().phase is Phase.SUCCEEDED


def test_a_restart_gives_every_point_the_index_it_had() -> None:
    play = sweep(search=grid(*range(10)), parallelism=3)
    play.turn()
    play.succeed(1, result=loss(1))
    before = {index: play.controller.unit(index) for index in range(10)}
    play.restart()
    assert {index: play.controller.unit(index) for index in range(10)} == before


def test_a_trial_gets_the_command_line_of_its_point() -> None:
    search = {**grid(5), "program": "train.py"}
    found = KINDS["Sweep"].spec.model_validate({"search": search})
    template = SweepController(found, {}).template(0)  # type: ignore[arg-type]
    assert template.command == ("/usr/bin/env", "python", "train.py", "--x=5")


def test_trials_per_worker_lets_trials_share_a_sandbox() -> None:
    play = sweep(trialsPerWorker=2, parallelism=1)
    play.turn()
    play.succeed(0, result=loss(1), sandbox_open=True)
    play.turn()
    assert play.live(1).sandbox == play.rows["run-0-1"][0].sandbox


def test_a_metric_is_read_from_the_result_or_else_from_what_was_reported() -> None:
    found = KINDS["Sweep"].spec.model_validate(
        spec(search=grid(1, metric={"name": "val.loss", "goal": "minimize"}))
    )
    score = SweepController(found, {}).score  # type: ignore[arg-type]
    assert score('{"val.loss":1,"val":{"loss":2}}', {"val.loss": 3.0}) == 1
    assert score('{"val":{"loss":2}}', {"val.loss": 3.0}) == 2
    assert score('{"other":2}', {"val.loss": 3.0}) == 3
    assert score(None, {"val.loss": float("nan")}) is None
    assert score('{"val.loss":true}', {}) is None
