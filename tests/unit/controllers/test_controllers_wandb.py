"""Trials whose programs ask `wandb.init` for their parameters: what they are told, and the end of a
sweep whose parameters reach nobody.
"""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.controllers.kinds.batchjob import BatchJobController
from fleetctl.controllers.kinds.sweep import SweepController
from fleetctl.controllers.kinds.trainingrun import TrainingRunController
from fleetctl.controllers.model import RunState, WandbTrial
from fleetctl.controllers.planning.plan import Phase, Start
from fleetctl.controllers.wandb import observe_template
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.kinds.sweep import SweepSpec
from tests.unit.controllers.play import Play

UNREAD = "ParametersUnread"


def search(**fields: Any) -> dict[str, Any]:
    space = {"lr": {"values": [1, 2, 3, 4]}}
    return {"method": "grid", "parameters": space, "program": "train.py", **fields}


def told(**fields: Any) -> dict[str, object] | None:
    spec = {"search": search(**fields)}
    trial = SweepController(SweepSpec.model_validate(spec), {}).wandb("lr", 0)
    return trial.order() if trial is not None else None


@pytest.mark.parametrize(
    ("command", "only"),
    [
        (None, False),
        (["python", "${program}"], True),
        (["python", "${program}", "--epochs", "3"], True),
        (["python", "${program}", "${args_no_hyphens}"], False),
        (["python", "${program}", "${args_json_file}"], False),
        (["python", "${program}", "--lr=${envvar:TASK_LR}"], False),
        (["sh", "-c", "./train --params $FLEETCTL_PARAMS"], False),
        (["python", "${program}", "--home=${envvar:HOME}"], True),
    ],
)
def test_whether_the_command_hands_parameters_over(command: list[str] | None, only: bool) -> None:
    order = told(**({} if command is None else {"command": command}))
    assert order == {"SWEEP_ID": "lr", "PROJECT": "", "ENTITY": "", "only": only, "metric": ""}


def test_project_entity_and_metric_are_those_of_the_search() -> None:
    order = told(project="digits", entity="team", metric={"name": "val/loss"})
    assert order is not None
    names = ("PROJECT", "ENTITY", "metric")
    assert [order[it] for it in names] == ["digits", "team", "val/loss"]


def test_work_of_the_template_knows_us_and_is_told_nothing_of_wandb() -> None:
    spec = SweepSpec.model_validate({"search": search(), "template": {"python": "SUBMIT(x=1)"}})
    assert SweepController(spec, {}).wandb("lr", 0) is None


def test_the_first_trial_that_read_no_parameters_ends_the_sweep() -> None:
    play = Play({"search": search(command=["python", "${program}"]), "parallelism": 2}, "Sweep")
    assert [it.index for it in play.turn().actions if isinstance(it, Start)] == [0, 1]
    play.end(1, RunState.FAILED, UNREAD, 0, message="it read nothing")
    for _ in range(2):  # also after a restart, from the rows alone
        plan = play.look()
        assert plan.reason == "Finishing"
        assert plan.message == "trial 1: it read nothing; stopping what still runs"
        assert plan.hint.endswith("goes into `template.command`")
        play.restart()
    plan = play.settle()
    assert (plan.phase, play.status["reason"]) == (Phase.FAILED, UNREAD)
    assert "${args}" in play.status["hint"]
    assert play.active == []
    assert play.status["failed"] == 1


def test_retries_do_not_hide_that_parameters_reach_nobody() -> None:
    fields = {"backoffLimitPerIndex": 3, "maxFailedIndexes": 3}
    play = Play({"search": search(command=["python", "${program}"]), **fields}, "Sweep")
    play.turn()
    play.end(0, RunState.FAILED, UNREAD, 0, message="it read nothing")
    assert play.settle().phase is Phase.FAILED
    assert play.status["reason"] == UNREAD


def test_parameters_that_change_nothing_are_warned_of() -> None:
    """A program may read its parameters, tell W&B of them, and train with its own defaults."""
    play = Play({"search": search(metric={"name": "loss"}), "parallelism": 1}, "Sweep")
    for index in range(4):
        assert "warning" not in play.turn().extra
        play.succeed(index, result='{"loss": 0.5}')
    warning = play.turn().extra["warning"]
    assert isinstance(warning, str)
    assert warning.startswith("SameMetric: all 4 trials so far have the same loss, 0.5")
    assert play.status["phase"] == Phase.SUCCEEDED


def test_one_other_score_is_enough_against_that() -> None:
    play = Play({"search": search(metric={"name": "loss"}), "parallelism": 4}, "Sweep")
    play.turn()
    play.succeed(0, 1, 2, result='{"loss": 0.5}')
    play.succeed(3, result='{"loss": 0.25}')
    assert "warning" not in play.turn().extra


@pytest.mark.parametrize(
    ("template", "needs"),
    [
        ({"command": ["/usr/bin/env", "python", "train.py", "--lr=1"]}, True),
        ({"command": ["/opt/conda/bin/python3.11", "-m", "train"]}, True),
        ({"command": ["./train.py"]}, True),
        ({"script": "cd src && python3 train.py"}, True),
        ({"script": "exec src/train.py;"}, True),
        ({"command": ["./train", "--lr=1"]}, False),
        ({"command": ["./pythonic", "--file=x.pyx"]}, False),
    ],
)
def test_an_image_must_have_python_where_its_program_is_python_or_wandb_alone_hands_over(
    template: dict[str, Any], needs: bool
) -> None:
    """Else what it tells wandb is read by nobody."""
    made = Template.model_validate({**template, "image": {"registry": "a/b:1"}})
    given, alone = WandbTrial("lr", "", "", only=False), WandbTrial("lr", "", "", only=True)
    assert observe_template(made, given).needs_python is needs
    assert observe_template(made, alone).needs_python
    assert not observe_template(made, None).needs_python
    assert observe_template(made, alone).model_dump() == made.model_dump()


def test_work_with_a_winners_parameters_tells_them_to_wandb_too() -> None:
    template = {"command": ["python", "train.py"]}
    for kind in (BatchJobController, TrainingRunController):
        spec = KINDS[kind.__name__.removesuffix("Controller")].spec
        plain = kind(spec.model_validate({"template": template}), {})
        taking = spec.model_validate({"template": template, "paramsFrom": {"sweep": "x"}})
        assert plain.wandb("full", 0) is None
        told = kind(taking, {}).wandb("full", 0)
        assert told is not None
        assert told.order() == {
            "SWEEP_ID": "",
            "PROJECT": "",
            "ENTITY": "",
            "only": False,
            "metric": "",
            "compares": True,
        }
        handing = {"command": ["python", "train.py", "${args}"]}
        taking = spec.model_validate({"template": handing, "paramsFrom": {"sweep": "x"}})
        handed = kind(taking, {}).wandb("full", 0)
        assert handed is not None and "compares" not in handed.order()
