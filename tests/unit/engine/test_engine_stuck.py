"""What an object lacks that only somebody outside can bring, in its status; and when it runs."""

from __future__ import annotations

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.engine.execute.secrets import ResolvedSecrets
from tests.unit.engine.fake_world import Fleet, tasks


def no_secret(names: tuple[str, ...], namespace: str) -> ResolvedSecrets:
    if names:
        raise Unavailable("secret/keys is not declared", reason="SecretMissing", hint="apply it")
    return ResolvedSecrets()


async def test_a_missing_secret_is_told_as_what_nothing_brings() -> None:
    async with Fleet(secrets=no_secret) as fleet:
        await fleet.apply(
            "BatchJob", "job", tasks(2, template={"script": "x", "secrets": ["keys"]})
        )
        status = fleet.status("job")
        assert (status["phase"], status["reason"]) == ("Pending", "SecretMissing")
        assert status["stuck"] == {
            "lack": "missing",
            "reason": "SecretMissing",
            "message": "secret/keys is not declared",
            "hint": "apply it",
        }


@pytest.mark.parametrize(
    ("reason", "lack"),
    [("NoSuchMachine", "capacity"), ("KeyRefused", "account"), ("NoCapacity", None)],
)
async def test_only_what_nothing_on_its_way_can_mend_is_told(reason: str, lack: str | None) -> None:
    async with Fleet() as fleet:
        fleet.local.script["start"] = [Unavailable("no", reason=reason, retry_after_s=60.0)] * 9
        await fleet.apply("BatchJob", "job", tasks(1))
        assert fleet.status("job").get("stuck", {}).get("lack") == lack


async def test_running_is_said_only_while_something_runs() -> None:
    async with Fleet() as fleet:
        job = tasks(2, parallelism=1, backoffLimitPerIndex=2, retry={"backoff": {"initial": 60}})
        await fleet.apply("BatchJob", "job", job)
        assert fleet.status("job")["phase"] == "Running"
        fleet.local.finish(0)
        await fleet.settle()
        assert (fleet.status("job")["phase"], fleet.local.working()) == ("Running", [1])
        fleet.local.finish(1, ok=False)
        await fleet.settle()
        status = fleet.status("job")
        assert (status["phase"], status["active"]) == ("Pending", 0)
        assert "backing off" in status["waitingOn"][0]
        assert "stuck" not in status
        await fleet.later(61.0)
        assert (fleet.status("job")["phase"], fleet.local.working()) == ("Running", [1])


SWEEP = {
    "search": {
        "method": "grid",
        "metric": {"name": "loss"},
        "parameters": {"x": {"values": [1, 2, 3]}},
    },
    "parallelism": 1,
    "template": {"python": "report(los=x)"},
}


async def test_a_metric_that_no_trial_reported_is_said_after_the_first() -> None:
    async with Fleet() as fleet:
        await fleet.apply("Sweep", "lr", SWEEP)
        assert "warning" not in fleet.status("lr")
        fleet.local.finish(0)
        await fleet.settle()
        status = fleet.status("lr")
        assert status["warning"].startswith(
            "MetricMissing: the first trial has succeeded and none reported the metric `loss`"
        )
        (told,) = [it for it in status["conditions"] if it["type"] == "Warning"]
        assert (told["status"], told["reason"]) == ("True", "MetricMissing")
        fleet.local.finish(1, result='{"loss": 0.5}')
        await fleet.settle()
        status = fleet.status("lr")
        assert "warning" not in status
        (told,) = [it for it in status["conditions"] if it["type"] == "Warning"]
        assert told["status"] == "False"
