"""What is left to be said of trials that did well, and of a metric that they did not report."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.engine.fake_world import Fleet, tasks

OLD = "wandb 0.22.3 writes values a block at a time"
SWEEP: dict[str, Any] = {
    "search": {
        "method": "grid",
        "program": "train.py",
        "command": ["python", "${program}"],
        "metric": {"name": "val/loss"},
        "parameters": {"x": {"values": [1, 2, 3]}},
    },
    "parallelism": 1,
}


def events(fleet: Fleet, reason: str) -> list[str]:
    sql = "SELECT message FROM events WHERE reason = ? ORDER BY seq"
    return [message for (message,) in fleet.database.events.execute(sql, (reason,))]


async def test_a_remark_on_successes_is_an_event_once() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "lr", SWEEP)
        for index in range(3):
            fleet.local.finish(index, message=OLD, result='{"val/loss": 1}')
            await fleet.settle()
        assert events(fleet, "Remark") == [f"trial 0: {OLD}"]


async def test_without_a_remark_nothing_is_said() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(1))
        fleet.local.finish(0)
        await fleet.settle()
        assert events(fleet, "Remark") == []


async def test_a_metric_that_wandb_did_not_log_is_said_after_the_first_trial() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "lr", SWEEP)
        fleet.local.finish(0, result='{"loss": 1}')
        await fleet.settle()
        status = fleet.status("lr")
        assert status["warning"].startswith("MetricMissing: the first trial has succeeded")
        assert 'wandb.log({"val/loss": ...})' in status["hint"]
        assert len(events(fleet, "MetricMissing")) == 1


@pytest.mark.parametrize(
    ("read", "where"),
    [
        ({"from": "stdout", "regex": "loss: (?P<loss>\\S+)"}, "what the program prints"),
        ({"from": "jsonl", "path": "runs/{a}/*.jsonl"}, "`runs/{a}/*.jsonl`"),
    ],
)
@pytest.mark.parametrize("work", [{}, {"command": ["./train"]}])
async def test_a_metric_that_no_line_or_file_has_points_to_where_it_is_looked_for(
    read: dict[str, str], where: str, work: dict[str, Any]
) -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "lr", {**SWEEP, "template": {"metrics": read, **work}})
        total = fleet.status("lr")["total"]
        for index in range(total):
            fleet.local.finish(index)
            await fleet.settle()
            hint = fleet.status("lr")["hint"]
            assert hint.startswith(f"see that `template.metrics` finds `val/loss` in {where}")
        status = fleet.status("lr")
        assert (status["phase"], status["reason"]) == ("Failed", "MetricMissing")


async def test_a_trial_gets_what_wandb_is_told_with_its_order() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "lr", SWEEP)
        (order,) = fleet.local.orders.values()
        assert order.wandb is not None
        assert order.wandb.order() == {
            "SWEEP_ID": "lr",
            "PROJECT": "",
            "ENTITY": "",
            "only": True,
            "metric": "val/loss",
        }


async def test_what_cannot_be_read_as_a_metric_is_an_event_of_its_task() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(2))
        odd = "line 3 of `m.jsonl` is not recorded"
        fleet.local.finish(1, ok=False, remarks=(odd,))
        await fleet.settle()
        assert events(fleet, "MetricsUnread") == [f"task 1 attempt 1: {odd}"]


async def test_a_thousand_tasks_that_say_the_same_make_few_events() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "job", tasks(30, parallelism=30))
        for index in range(30):
            fleet.local.finish(index, remarks=("no metric was found",))
        await fleet.settle()
        assert len(events(fleet, "MetricsUnread")) == 20


async def test_a_trial_is_told_which_metric_counts() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "lr", SWEEP)
        (order,) = fleet.local.orders.values()
        assert (order.metric, order.followed()) == ("val/loss", None)


async def test_what_its_template_says_of_metrics_goes_with_the_order() -> None:
    async with Fleet() as fleet:
        asked = {"from": "jsonl", "path": "m.jsonl"}
        await fleet.apply("BatchJob", "job", tasks(1, template={"script": "a", "metrics": asked}))
        (order,) = fleet.local.orders.values()
        assert order.followed() == {**asked, "regex": None, "metric": ""}
