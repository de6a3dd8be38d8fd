"""Work that takes the parameters of a sweep's best trial: it waits, starts, and starts again when
another one is the best.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetctl.apply.change import Change
from fleetctl.apply.consent import NeedsConsent, check_consent
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import order_of
from fleetctl.apply.write.store_changes import store_changes
from fleetctl.controllers.model import RunState
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from tests.unit.engine.fake_world import Fleet


def manifest(kind: str, name: str, **fields: Any) -> Manifest:
    spec = KINDS[kind].spec.model_validate(fields)
    return Manifest(kind, name, Metadata.model_validate({"name": name}), spec, "a.yaml", 1)


def sweep(*values: float, goal: str = "minimize") -> Manifest:
    search = {
        "method": "grid",
        "metric": {"name": "loss", "goal": goal},
        "parameters": {"lr": {"values": list(values or (0.1, 0.2))}},
    }
    return manifest("Sweep", "x", search=search, template={"python": "pass"}, parallelism=4)


def job(**fields: Any) -> Manifest:
    given = {"template": {"python": "train"}, "paramsFrom": {"sweep": "x"}, "parallelism": 4}
    return manifest("BatchJob", "full", **(given | fields))


async def apply(fleet: Fleet, *manifests: Manifest, **said: Any) -> list[Change]:
    found = propose_changes(fleet.store, manifests, order_of(said), fleet.clock.now_s())
    store_changes(fleet.store, found, fleet.clock.now_s())
    await fleet.settle()
    return found


async def search(fleet: Fleet, *losses: float) -> None:
    """The live trials end, with these values in the order of their indexes."""
    for loss in losses:
        index = min(fleet.local.working())
        fleet.local.finish(index, of="sweep/x", result=json.dumps({"loss": loss}))
        await fleet.settle()


def given(fleet: Fleet, of: str = "batchjob/full") -> list[dict[str, Any]]:
    """What each attempt was given that began."""
    return [dict(it.params) for it in fleet.local.orders.values() if it.resource == of]


async def test_it_waits_for_the_sweep_and_runs_with_its_best_trial() -> None:
    async with Fleet() as fleet:
        [created, _] = await apply(fleet, job(tasks={"matrix": {"seed": [1, 2]}}), sweep())
        assert created.message == "its parameters are known when sweep/x has ended; 2 tasks"
        status = fleet.status("full")
        assert (status["phase"], status["reason"]) == ("Pending", "AwaitsBest")
        assert "sweep/x has not ended" in status["message"]
        assert status["activeSince"] is None
        await search(fleet, 3.0)
        assert given(fleet) == []
        await search(fleet, 2.0)
        assert given(fleet) == [{"lr": 0.2, "seed": 1}, {"lr": 0.2, "seed": 2}]
        for index in (0, 1):
            fleet.local.finish(index, of="batchjob/full")
        await fleet.settle()
        status = fleet.status("full")
        assert status["phase"] == "Succeeded"
        assert status["paramsFrom"] == {"sweep": "x", "params": {"lr": 0.2}}
        [same] = await apply(fleet, job(tasks={"matrix": {"seed": [1, 2]}}))
        assert same.outcome == "unchanged"


async def test_what_it_took_outlasts_a_crash_and_the_sweep() -> None:
    async with Fleet() as fleet:
        await apply(fleet, sweep(), job())
        await search(fleet, 1.0, 2.0)
        await fleet.crash()
        await fleet.settle()
        assert given(fleet) == [{"lr": 0.1}]
        await fleet.delete("Sweep", "x")
        [same] = await apply(fleet, job())
        assert same.outcome == "unchanged"
        assert len([run for run in fleet.runs("full") if run.state is RunState.RUNNING]) == 1


async def test_another_best_trial_runs_it_again_after_people_were_told() -> None:
    async with Fleet() as fleet:
        await apply(fleet, sweep(), job())
        await search(fleet, 1.0, 2.0)
        fleet.clock.time_s += 100.0
        fleet.local.finish(0, of="batchjob/full")
        await fleet.settle()
        wider = (sweep(0.1, 0.2, 0.3), job())
        told = propose_changes(fleet.store, wider, order_of({}), fleet.clock.now_s())
        later = "paramsFrom known when sweep/x has ended"
        assert told[1].message.startswith(later)
        assert told[1].message.endswith("1 to run again")
        with pytest.raises(NeedsConsent, match="batchjob/full: paramsFrom changed: 1 finished"):
            check_consent(told, (), fleet.clock.now_s())
        await apply(fleet, *wider)
        assert fleet.status("full")["reason"] == "AwaitsBest"
        await search(fleet, 0.5)
        assert given(fleet) == [{"lr": 0.1}, {"lr": 0.3}]
        fleet.local.finish(0, of="batchjob/full")
        await fleet.settle()
        assert fleet.status("full")["phase"] == "Succeeded"


async def test_the_same_best_trial_runs_nothing_again() -> None:
    async with Fleet() as fleet:
        await apply(fleet, sweep(), job())
        await search(fleet, 1.0, 2.0)
        fleet.local.finish(0, of="batchjob/full")
        await fleet.settle()
        await apply(fleet, sweep(0.1, 0.2, 0.3), job())
        await search(fleet, 5.0)
        assert (len(given(fleet)), fleet.status("full")["phase"]) == (1, "Succeeded")


async def test_a_sweep_that_changes_alone_is_told_of_at_the_next_apply() -> None:
    async with Fleet() as fleet:
        await apply(fleet, sweep(), job())
        await search(fleet, 1.0, 2.0)
        await apply(fleet, sweep(0.1, 0.2, 0.3))
        assert given(fleet) == [{"lr": 0.1}]
        fleet.local.finish(2, of="sweep/x", result='{"loss": 0.5}')
        await fleet.settle()
        assert given(fleet) == [{"lr": 0.1}]
        [change] = await apply(fleet, job())
        assert "paramsFrom lr=0.3 of the best trial of sweep/x" in change.message
        assert "1 replaced" in change.message
        assert given(fleet) == [{"lr": 0.1}, {"lr": 0.3}]


async def test_a_sweep_without_a_best_trial_fails_it_until_it_is_applied_again() -> None:
    async with Fleet() as fleet:
        await apply(fleet, sweep(), job())
        for index in (0, 1):
            fleet.local.finish(index, of="sweep/x", ok=False)
        await fleet.settle()
        status = fleet.status("full")
        assert (status["phase"], status["reason"]) == ("Failed", "NoBest")
        assert "sweep/x ended without a best trial: 2 of 2 trials failed" in status["message"]
        again = [change.outcome for change in await apply(fleet, sweep(0.5), job())]
        assert again == ["configured", "configured"]
        await search(fleet, 1.0)
        assert given(fleet) == [{"lr": 0.5}]


async def test_every_stage_of_a_training_gets_them() -> None:
    async with Fleet() as fleet:
        stages = [{"name": "warm"}, {"name": "main"}]
        training = manifest(
            "TrainingRun",
            "full",
            template={"python": "train"},
            paramsFrom={"sweep": "x"},
            stages=stages,
        )
        await apply(fleet, training, sweep())
        await search(fleet, 1.0, 2.0)
        fleet.local.finish(0, of="trainingrun/full")
        await fleet.settle()
        told = given(fleet, "trainingrun/full")
        assert told == [{"lr": 0.1, "stage": "warm"}, {"lr": 0.1, "stage": "main"}]


async def test_equal_work_with_another_best_trial_is_not_equal() -> None:
    async with Fleet() as fleet:
        await fleet.apply("BatchJob", "plain", {"template": {"python": "train"}})
        fleet.local.finish(0, of="batchjob/plain")
        await fleet.settle()
        await apply(fleet, sweep(), job())
        assert (fleet.status("full")["cached"], given(fleet)) == (0, [])
        await search(fleet, 1.0, 2.0)
        assert given(fleet) == [{"lr": 0.1}]


async def test_a_sweep_of_several_metrics_tells_its_front_and_has_no_winner() -> None:
    async with Fleet() as fleet:
        wanted = {
            "search": {"method": "grid", "parameters": {"lr": {"values": [1, 2, 3]}}},
            "metrics": [{"name": "loss"}, {"name": "acc", "goal": "maximize"}],
            "template": {"python": "pass"},
        }
        await apply(fleet, manifest("Sweep", "x", **wanted), job())
        assert fleet.status("full")["reason"] == "NoBest"
        for index, (loss, acc) in enumerate([(1.0, 0.5), (2.0, 0.9), (3.0, 0.7)]):
            fleet.local.finish(index, result=json.dumps({"loss": loss, "acc": acc}))
        await fleet.settle()
        status = fleet.status("x")
        assert (status["phase"], status["frontSize"], "best" in status) == ("Succeeded", 2, False)
        assert [it["index"] for it in status["front"]] == [0, 1]
        await apply(fleet, manifest("Sweep", "x", **wanted, parallelism=2))
        assert fleet.status("x")["front"] == status["front"]  # read back from the rows


async def test_its_program_may_ask_wandb_also_in_an_image_of_a_registry() -> None:
    async with Fleet() as fleet:
        template = {"command": ["python", "train.py"], "image": "a/b:1"}
        plain = manifest("BatchJob", "plain", template=template)
        await apply(fleet, sweep(), job(template=template))
        await search(fleet, 1.0, 2.0)
        await apply(fleet, plain)
        orders = {it.resource: it for it in fleet.local.orders.values()}
        taking, other = orders["batchjob/full"], orders["batchjob/plain"]
        assert taking.wandb is not None and taking.template.needs_python
        assert other.wandb is None and not other.template.needs_python
        await apply(fleet, job())  # of Python source, which has them as variables
        assert [it for it in fleet.local.orders.values() if it.template.python][-1].wandb is None


def search_with(program: str | None = "train.py", **more: Any) -> Manifest:
    search = {
        "method": "grid",
        "metric": {"name": "loss"},
        "parameters": {"lr": {"values": [0.1, 0.2]}, "epochs": {"value": 3}},
        **({"program": program} if program else {}),
        **more,
    }
    template = {} if program or "command" in more else {"python": "pass"}
    return manifest("Sweep", "x", search=search, template=template, parallelism=4)


def commands(fleet: Fleet, of: str = "batchjob/full") -> list[list[str]]:
    found = [it for it in fleet.local.orders.values() if it.resource == of]
    return [list(it.template.command or ()) for it in found]


@pytest.mark.parametrize("kind", ["BatchJob", "TrainingRun"])
@pytest.mark.parametrize("together", [True, False])
async def test_without_work_of_its_own_it_runs_the_sweeps_command(
    kind: str, together: bool
) -> None:
    command = ["python", "${program}", "--fast", "${args}"]
    full = manifest(kind, "full", template={}, paramsFrom={"sweep": "x"})
    async with Fleet() as fleet:
        await apply(fleet, *([full] if together else []), search_with(command=command))
        await search(fleet, 3.0, 2.0)
        await apply(fleet, full)
        assert commands(fleet, f"{kind.lower()}/full") == [
            ["python", "train.py", "--fast", "--epochs=3", "--lr=0.2"]
        ]


async def test_arguments_are_those_of_each_task() -> None:
    full = job(
        template={"command": ["python", "t.py", "${args}"]}, tasks={"matrix": {"epochs": [60, 120]}}
    )
    async with Fleet() as fleet:
        await apply(fleet, search_with(), full)
        await search(fleet, 3.0, 2.0)
        assert commands(fleet) == [
            ["python", "t.py", "--epochs=60", "--lr=0.2"],
            ["python", "t.py", "--epochs=120", "--lr=0.2"],
        ]


async def test_another_command_of_the_sweep_is_another_content() -> None:
    full = manifest("BatchJob", "full", template={}, paramsFrom={"sweep": "x"})
    async with Fleet() as fleet:
        await apply(fleet, search_with(), full)
        await search(fleet, 3.0, 2.0)
        fleet.local.finish(0, of="batchjob/full")
        await fleet.settle()
        [same] = await apply(fleet, full)
        assert same.outcome == "unchanged"
        await apply(fleet, search_with("other.py"))
        await search(fleet, 3.0, 2.0)
        [changed] = await apply(fleet, full)
        assert changed.outcome == "configured"
        assert commands(fleet)[-1][:3] == ["/usr/bin/env", "python", "other.py"]


async def test_a_sweep_without_a_command_gives_none() -> None:
    full = manifest("BatchJob", "full", template={}, paramsFrom={"sweep": "x"})
    async with Fleet() as fleet:
        await apply(fleet, search_with(None), full)
        await search(fleet, 3.0, 2.0)
        status = fleet.status("full")
        assert (status["phase"], status["reason"]) == ("Failed", "NoBest")
        assert commands(fleet) == []
