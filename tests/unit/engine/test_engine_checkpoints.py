"""What a run tells of its checkpoints: rows, a status and events; what the next one is told."""

from __future__ import annotations

from typing import Any

from fleetctl.controllers.model import CheckpointReport, SavedCheckpoint
from tests.unit.engine.fake_world import Fleet

TRAINING: dict[str, Any] = {
    "checkpoint": {"path": "/ckpt/run"},
    "maxRestarts": 4,
    "template": {"command": ["train"], "volumes": [{"name": "ckpt", "mountPath": "/ckpt"}]},
    "retry": {"backoff": {"initial": "1s", "max": "1s"}},
}


def saved(*steps: int) -> tuple[SavedCheckpoint, ...]:
    return tuple(
        SavedCheckpoint(step, f"/ckpt/run/step-{step:08d}", 1_000.0 + step, 7) for step in steps
    )


def events(fleet: Fleet, reason: str) -> list[str]:
    sql = "SELECT message FROM events WHERE reason = ? ORDER BY seq"
    return [message for (message,) in fleet.database.events.execute(sql, (reason,))]


async def fails(fleet: Fleet, **told: Any) -> None:
    """The attempt of now; the next one begins."""
    fleet.local.finish(0, ok=False, checkpoints=CheckpointReport(**told))
    await fleet.settle()
    await fleet.later(2.0)


async def test_checkpoints_are_kept_and_told_after_a_crash_of_the_controller_too() -> None:
    async with Fleet() as fleet:
        await fleet.apply("TrainingRun", "train", TRAINING)
        aside = ("checkpoint `step-00000020` was moved aside",)
        left = ("`checkpoint-7` stays as it is",) * 2
        await fails(fleet, saved=saved(5, 10, 15), aside=aside, left=left)
        newest = {"step": 15, "path": "/ckpt/run/step-00000015", "at": 1_015.0, "bytes": 7}
        assert fleet.status("train")["checkpoint"] == {**newest, "everySeconds": 5}
        await fleet.crash()
        await fails(fleet, resumed=15)
        assert fleet.status("train")["checkpoint"] == {**newest, "everySeconds": 5}
        uid = fleet.row("train").uid
        assert fleet.store.runs.checkpoints_of(uid) == list(saved(5, 10, 15))
        first, second, *_ = fleet.runs("train")
        assert (first.resumed_step, first.saved_step) == (None, 15)
        assert (second.resumed_step, second.saved_step) == (15, None)
        assert events(fleet, "CheckpointSetAside") == [f"stage main attempt 1: {aside[0]}"]
        assert events(fleet, "CheckpointUnknown") == [f"stage main attempt 1: {left[0]}"]
        assert events(fleet, "Resumed") == ["stage main attempt 2 goes on from step 15"]


async def test_case_7_a_step_back_is_told_once_an_attempt_has_made_it() -> None:
    async with Fleet() as fleet:
        await fleet.apply("TrainingRun", "train", TRAINING)
        await fails(fleet, saved=saved(5, 10, 15))
        await fails(fleet, resumed=15)
        await fails(fleet, resumed=15)
        order = fleet.local.orders[fleet.local.run(0)]
        assert order.checkpoint is not None and order.checkpoint.below == 15
        assert events(fleet, "SteppedBack") == []
        fleet.local.finish(0, checkpoints=CheckpointReport(resumed=10))
        await fleet.settle()
        assert fleet.status("train")["phase"] == "Succeeded"
        assert events(fleet, "SteppedBack") == [
            "stage main attempt 4 goes back to step 10:"
            " attempts from step 15 failed before they saved anything"
        ]
