"""Groups of a TrainingRun: all begin or none, by the sum of what they take; a failed group restarts
alone or with all; the primary ones end the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.controllers.budget import Allowance, BudgetAccount, MoneyCap
from fleetctl.controllers.model import RunState
from fleetctl.controllers.planning.placement import ProviderOffer
from fleetctl.controllers.planning.plan import Plan, Start
from fleetctl.controllers.queues.queue_admission import QueueAdmission
from fleetctl.controllers.queues.queue_state import (
    QueuedObject,
    QueueRules,
    QueueStates,
    QueueUsage,
    Quota,
    takes_in,
)
from fleetctl.controllers.reconcile import reconcile_object
from fleetctl.controllers.schedule.desired import DesiredObject
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from tests.unit.controllers.play import Play

TRAINER, ROLLOUT = 0, 1


def play_groups(policy: str = "Group", **spec: Any) -> Play:
    groups = [
        {"name": "trainer", "command": ["train"], "timeoutSeconds": 100},
        {
            "name": "rollout",
            "nodes": 3,
            "port": 8000,
            "command": ["serve"],
            "restartPolicy": policy,
            "timeoutSeconds": 100,
        },
    ]
    return Play({"groups": groups, "maxRestarts": 1, **spec}, "TrainingRun")


def begun(policy: str = "Group", **spec: Any) -> Play:
    play = play_groups(policy, **spec)
    play.turn()
    play.confirm_starts()
    return play


def offered(play: Play, **changes: Any) -> DesiredObject:
    """GPUs and prices: a trainer with 2 GPUs, and three nodes with one each."""
    takes = {
        TRAINER: QueueUsage(1, 1.0, (("A100", 2),)),
        ROLLOUT: QueueUsage(3, 3.0, (("H100", 3),)),
    }
    offers = {}
    for index, usage in takes.items():
        unit = play.controller.unit(index)
        assert unit is not None
        offers[unit.template_hash] = {"local": ProviderOffer(0.01 * usage.sandboxes, takes=usage)}
    return replace(play.desired(), offers=offers, **changes)


def starts(plan: Plan) -> list[int]:
    return [it.index for it in plan.actions if isinstance(it, Start)]


def admission(*quotas: Quota, used: int = 0) -> QueueAdmission:
    lines = QueueStates()
    lines.declare([QueueRules("lab", quotas)])
    lines.lines["lab"].used = [float(used)] * len(quotas)
    return QueueAdmission(lines, QueuedObject("u1", "tr/rl", "lab", "d", 0, 0.0, 0.0), 1_000.0)


def test_all_groups_begin_in_one_pass_and_the_primary_ones_end_the_run() -> None:
    play = begun()
    assert play.active == [TRAINER, ROLLOUT]
    play.succeed(TRAINER)
    play.settle()
    assert (play.status["phase"], play.status["message"]) == (
        "Succeeded",
        "group trainer succeeded",
    )
    assert play.active == []
    rows = [run.state for run, _ in play.rows.values()]
    assert sorted(rows) == [RunState.STOPPED, RunState.SUCCEEDED]


def test_a_server_that_ends_well_does_not_end_the_run() -> None:
    play = begun(primary=["trainer", "rollout"])
    play.succeed(ROLLOUT)
    play.settle()
    assert play.active == [TRAINER] and play.status["phase"] == "Running"
    play.succeed(TRAINER)
    play.settle()
    assert play.status["message"] == "groups trainer, rollout succeeded"


def test_a_failed_group_restarts_alone() -> None:
    play = begun()
    play.fail(ROLLOUT)
    play.settle()
    assert play.active == [TRAINER]
    play.now_s += 60.0
    assert starts(play.turn()) == [ROLLOUT]
    assert play.live(TRAINER).attempt == 1 and play.live(ROLLOUT).attempt == 2


@pytest.mark.parametrize("dies", [False, True])
def test_under_all_no_group_lives_until_all_start_again(dies: bool) -> None:
    play = begun("All")
    play.fail(ROLLOUT)
    play.turn()
    assert play.live(TRAINER).reason == "GroupRestarted"
    play.confirm()
    if dies:
        play.restart()
    assert play.active == [] and starts(play.turn()) == []  # rollout backs off
    play.now_s += 60.0
    assert starts(play.turn()) == [TRAINER, ROLLOUT]
    assert play.settle().actions == ()


def test_a_group_that_has_failed_for_good_fails_the_run() -> None:
    play = begun(maxRestarts=0)
    play.fail(ROLLOUT)
    play.settle()
    assert (play.status["phase"], play.status["message"]) == (
        "Failed",
        "group rollout failed with ExitCode:1; maxRestarts is 0",
    )
    assert play.active == []


@pytest.mark.parametrize(
    ("quota", "whole"),
    [
        (Quota("sandboxes", 4), True),
        (Quota("sandboxes", 3), False),
        (Quota("gpus", 5), True),
        (Quota("gpus", 4), False),
        (Quota("gpu/H100", 3), True),
        (Quota("gpu/H100", 2), False),
        (Quota("usdPerHour", 0.04 * 3600), True),
        (Quota("usdPerHour", 0.039 * 3600), False),
    ],
    ids=str,
)
def test_a_queue_admits_the_sum_or_nothing(quota: Quota, whole: bool) -> None:
    play = play_groups()
    turn = admission(quota)
    plan = reconcile_object(offered(play, turn=turn), play.history, play.now_s)
    assert starts(plan) == ([TRAINER, ROLLOUT] if whole else [])
    if not whole:
        assert plan.reason == "QueueTooSmall"
        assert turn._lines.lines["lab"].used == [0.0]


def test_groups_wait_in_line_for_the_sum() -> None:
    play = play_groups()
    turn = admission(Quota("gpus", 8), used=4)
    plan = reconcile_object(offered(play, turn=turn), play.history, play.now_s)
    assert (starts(plan), plan.reason) == ([], "QueueFull")
    assert plan.queued is not None
    (ask,) = plan.queued.asks
    assert ask.takes is not None and (ask.takes.sandboxes, ask.takes.cpus) == (4, 4.0)
    assert takes_in(ask.takes.to_fields()) == ask.takes


@pytest.mark.parametrize(("cap", "whole"), [(4.9, True), (3.9, False)])
def test_a_budget_pays_for_all_groups_or_for_none(cap: float, whole: bool) -> None:
    play = play_groups()
    account = BudgetAccount(MoneyCap("budget/team", "budget/team maxCost", cap))
    desired = offered(play, allowance=Allowance((account,)))
    plan = reconcile_object(desired, play.history, play.now_s)
    assert starts(plan) == ([TRAINER, ROLLOUT] if whole else [])
    assert (account.reserved_usd > 0) == whole


def resize(spec: dict[str, Any]) -> None:
    spec["groups"][1]["nodes"] = 5


def rename_primary(spec: dict[str, Any]) -> None:
    spec["primary"] = ["rollout"]


@pytest.mark.parametrize(
    ("change", "replaced"), [(resize, [ROLLOUT]), (rename_primary, [])], ids=["nodes", "primary"]
)
def test_a_change_concerns_its_own_group(
    change: Callable[[dict[str, Any]], None], replaced: list[int]
) -> None:
    play = begun()
    change(play.spec)
    play.change(**play.spec)
    play.turn()
    stopping = [run.index for run in play.history.live.values() if run.state is RunState.STOPPING]
    assert stopping == replaced


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"nodes": 2}, "`nodes` cannot be had beside `groups`"),
        ({"stages": [{"name": "a", "script": "x"}]}, "`stages` cannot be had beside `groups`"),
        ({"parallelism": 1}, "`parallelism: 1` cannot be had beside `groups`"),
        ({"primary": ["trianer"]}, "names `trianer`, which is no group; there are `trainer`, `ro"),
        ({"groups": [{"name": "a", "script": "x"}] * 2}, r"\[0\] and \[1\] are both called `a`"),
        (
            {"groups": [{"name": "a", "script": "x", "nodes": {"min": 1, "max": 2}}]},
            "`nodes` of a group is one number",
        ),
        ({"groups": (), "primary": ["a"], "template": {"script": "x"}}, "there are no `groups`"),
    ],
    ids=str,
)
def test_what_cannot_be_had_is_refused_with_a_fix(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TrainingRunSpec.model_validate({**play_groups().spec, **fields})
