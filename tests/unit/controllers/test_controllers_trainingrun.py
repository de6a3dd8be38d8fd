"""TrainingRun: stages in order, restarts from a checkpoint."""

from __future__ import annotations

from typing import Any

from fleetctl.controllers.kinds.trainingrun import TrainingRunController
from fleetctl.controllers.planning.plan import Phase, Start, Stop
from fleetctl.specs.kinds.registry import KINDS
from tests.unit.controllers.play import Play


def run(*stages: str, **fields: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"template": {"script": "true"}, **fields}
    if stages:
        spec["stages"] = [{"name": name} for name in stages]
    return spec


def training(*stages: str, **fields: Any) -> Play:
    return Play(run(*stages, **fields), "TrainingRun")


def test_a_stage_starts_when_the_one_before_it_succeeded() -> None:
    play = training("data", "train", "test")
    for index in range(3):
        play.turn()
        assert play.active == [index]
        play.succeed(index)
    plan = play.turn()
    assert (plan.phase, plan.message) == (Phase.SUCCEEDED, "3 of 3 stages succeeded")


def test_a_run_without_stages_is_one_stage() -> None:
    play = training()
    [start] = play.turn().actions
    assert isinstance(start, Start) and dict(start.params) == {"stage": "main"}
    play.succeed(0)
    assert play.turn().phase is Phase.SUCCEEDED


def test_a_failed_stage_restarts_as_often_as_allowed() -> None:
    play = training("data", "train", maxRestarts=2)
    play.turn()
    play.succeed(0)
    for attempt in (1, 2, 3):
        play.turn()
        assert play.live(1).attempt == attempt
        play.fail(1)
        play.now_s += 1_000
    plan = play.turn()
    assert (plan.phase, plan.reason) == (Phase.FAILED, "StageFailed")
    assert plan.message == "stage train failed with ExitCode:1; maxRestarts is 2"


def test_restarts_are_counted_for_each_stage() -> None:
    play = training("data", "train", maxRestarts=1)
    for index in range(2):
        play.turn()
        play.fail(index)
        play.now_s += 1_000
        play.turn()
        play.succeed(index)
    assert play.turn().phase is Phase.SUCCEEDED
    assert play.status["restarts"] == 2


def test_the_status_names_the_present_stage() -> None:
    play = training("data", "train")
    assert play.turn().extra["stage"] == "data"
    play.succeed(0)
    assert play.turn().extra["stage"] == "train"


def test_a_lost_machine_restarts_the_stage_without_using_up_restarts() -> None:
    play = training("train")
    play.turn()
    play.lose(0)
    play.turn()
    assert play.live(0).attempt == 2


def test_the_limit_on_all_failures_holds_for_stages_too() -> None:
    play = training("train", maxRestarts=9, backoffLimit=1)
    for _ in range(2):
        play.turn()
        play.fail(0)
        play.now_s += 1_000
    assert play.turn().reason == "BackoffLimitExceeded"


def test_a_changed_stage_alone_is_replaced() -> None:
    play = training("data", "train")
    play.turn()
    play.succeed(0)
    play.turn()
    play.change(stages=[{"name": "data"}, {"name": "train", "env": {"LR": "0.1"}}])
    plan = play.turn()
    assert [action.reason for action in plan.actions if isinstance(action, Stop)] == ["Superseded"]
    play.confirm()
    play.turn()
    assert (play.active, play.live(1).attempt) == ([1], 2)


def test_stages_stay_in_order_when_several_must_run_again() -> None:
    play = training("data", "train")
    play.turn()
    play.succeed(0)
    play.turn()
    play.fail(1)
    play.turn()
    play.change(template={"script": "echo other"}, stages=[{"name": "prepare"}, {"name": "train"}])
    play.turn()
    assert play.active == [2]  # `prepare` is new, whatever stood first before
    play.succeed(2)
    play.turn()
    assert play.active == [1]


def test_a_stage_learns_where_its_checkpoint_is_unless_it_says_so_itself() -> None:
    fields = run(
        "train",
        checkpoint={"path": "/ckpt", "resume": "step:7"},
        template={"script": "true", "env": {"FLEETCTL_RESUME": "None", "A": "b"}},
    )
    spec = KINDS["TrainingRun"].spec.model_validate(fields)
    assert TrainingRunController(spec, {}).template(0).env == {  # type: ignore[arg-type]
        "FLEETCTL_CHECKPOINT": "/ckpt",
        "FLEETCTL_RESUME": "None",
        "A": "b",
    }


def test_a_checkpoint_gets_its_time_before_the_kill() -> None:
    play = training("train", checkpoint={"path": "/ckpt", "signalBeforeStopSeconds": 120})
    play.turn()
    play.change(suspend=True)
    [stop] = play.turn().actions
    assert isinstance(stop, Stop) and stop.grace_s == 120


def test_a_stage_that_is_lost_too_often_blames_the_limit_on_that() -> None:
    play = training("data", "train", maxRestarts=3, maxInfraRetries=1)
    for _ in range(2):
        play.turn()
        play.lose(0)
    plan = play.turn()
    assert (plan.phase, plan.reason) == (Phase.FAILED, "StageFailed")
    assert plan.message == "stage data was lost with ProviderLost; maxInfraRetries is 1"


def test_every_end_of_a_stage_leaves_it_the_time_to_save() -> None:
    checkpoint = {"path": "/ckpt", "signalBeforeStopSeconds": 120}
    spec = run("data", checkpoint=checkpoint, template={"script": "true"})
    made = TrainingRunController(KINDS["TrainingRun"].spec.model_validate(spec), {})
    assert made.template(0).termination_grace_period_seconds == made.policy.grace_s == 120.0
    longer = {"script": "true", "terminationGracePeriodSeconds": 300}
    spec = run("data", checkpoint=checkpoint, template=longer)
    made = TrainingRunController(KINDS["TrainingRun"].spec.model_validate(spec), {})
    assert made.template(0).termination_grace_period_seconds == made.policy.grace_s == 300.0


def stages(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def test_removing_a_finished_stage_leaves_the_running_one_alone() -> None:
    play = training("data", "train", "test")
    play.turn()
    play.succeed(0)
    play.turn()
    play.change(stages=stages("train", "test"))
    assert [it for it in play.turn().actions if isinstance(it, Stop)] == []
    play.restart()
    play.succeed(1)
    play.turn()
    assert play.active == [2]
    play.succeed(2)
    assert (play.turn().phase, play.controller.total) == (Phase.SUCCEEDED, 2)


def test_a_stage_inserted_before_the_running_one_stops_it_and_runs_first() -> None:
    play = training("data", "train")
    play.turn()
    play.succeed(0)
    play.turn()
    play.change(stages=stages("data", "clean", "train"))
    [stop] = [it for it in play.turn().actions if isinstance(it, Stop)]
    assert (stop.reason, stop.message) == (
        "Superseded",
        "stage clean runs first, and it builds on that",
    )
    play.confirm()
    for index in (2, 1):
        play.turn()
        assert play.active == [index]
        play.succeed(index)
    assert play.turn().phase is Phase.SUCCEEDED


def test_a_stage_inserted_before_finished_ones_redoes_what_builds_on_it_alone() -> None:
    play = training("data", "train", "test")
    for index in range(3):
        play.turn()
        play.succeed(index)
    play.turn()
    play.change(stages=stages("data", "train", "prune", "test"))
    assert sorted(play.history.outdated) == [2]  # `test`
    for index in (3, 2):
        play.turn()
        assert play.active == [index]
        play.succeed(index)
    assert play.turn().phase is Phase.SUCCEEDED


def test_where_running_work_may_end_an_inserted_stage_waits_for_it() -> None:
    play = training("train", rollout="FinishRunning")
    play.turn()
    play.change(stages=stages("data", "train"))
    assert not play.turn().actions
    assert play.active == [0]


def test_a_stage_has_machine_image_and_place_of_its_own() -> None:
    fields = run(
        placement={"provider": "modal"},
        template={"script": "true", "resources": {"gpu": "H100:8"}, "secrets": ["wandb"]},
        stages=[
            {
                "name": "data",
                "resources": {},
                "placement": {"provider": "local"},
                "secrets": [],
                "image": {"pip": ["datasets"]},
                "workdir": "prep",
            },
            {"name": "train"},
        ],
    )
    made = TrainingRunController(KINDS["TrainingRun"].spec.model_validate(fields), {})
    data, train = made.template(0), made.template(1)
    assert (data.resources.gpu, data.secrets, data.workdir) == (None, (), "prep")
    assert (str(train.resources.gpu), train.secrets, train.image) == ("H100:8", ("wandb",), None)
    hashes = [unit.template_hash for unit in map(made.unit, (0, 1)) if unit is not None]
    places = [[it.provider for it in made.placement(one).candidates] for one in hashes]
    assert (places, made.candidates) == ([["local"], ["modal"]], ("modal", "local"))


def test_a_stage_starts_where_it_may_run() -> None:
    play = training("data", template={"script": "true"})
    play.change(stages=[{"name": "data", "placement": {"provider": "elsewhere"}}, {"name": "b"}])
    plan = play.turn()
    assert (plan.reason, play.active) == ("NoPlace", [])
    assert plan.message == "provider `elsewhere`: there is no provider `elsewhere`"


def test_another_stage_in_place_of_one_is_new_work_and_what_builds_on_it_is_done_again() -> None:
    play = training("data", "train")
    for index in range(2):
        play.turn()
        play.succeed(index)
        play.now_s += 1
    play.turn()
    play.change(stages=[{"name": "prepare", "env": {"A": "1"}}, {"name": "train"}])
    for index in (2, 1):
        play.turn()
        assert play.active == [index]
        play.now_s += 1
        play.restart()
        play.succeed(index)
    assert play.turn().phase is Phase.SUCCEEDED
    play.change(stages=stages("train"))
    assert play.turn().phase is Phase.SUCCEEDED  # taken out, it is there all the same
