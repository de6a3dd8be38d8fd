"""The emulated W&B, as clients of its protocol find it; the package itself is in
test_wandb_package.py.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import urllib.error
from typing import Any

import pytest

from tests.emulators.suite.wandb_asking import (
    CREATE_AGENT,
    GET_SWEEP,
    RUNS,
    UPSERT_SWEEP,
    Client,
    Refusal,
    Worker,
)
from tests.emulators.wandb.light import LIGHT
from tests.emulators.wandb.running import WandbEmulator
from tests.emulators.wandb.world.settings import FOREIGN_ENTITY, FOREIGN_KEY

GRID = """
method: grid
program: train.py
metric: {name: loss, goal: minimize}
parameters:
  lr: {values: [0.1, 0.2]}
  model: {parameters: {layers: {values: [1, 2]}}}
"""
POINTS = [{"lr": lr, "model": {"layers": layers}} for lr in (0.1, 0.2) for layers in (1, 2)]

EXIT = [{"type": "exit"}]


@pytest.fixture
def client(wandb_emulator: WandbEmulator) -> Client:
    return Client(wandb_emulator)


def test_agents_share_a_grid_until_each_point_has_run(
    wandb_emulator: WandbEmulator, client: Client
) -> None:
    name = wandb_emulator.do("create_sweep", config=GRID)
    assert client.sweep(name)["state"] == "PENDING"
    workers = [Worker(client, name) for _ in range(2)]
    for _ in range(2):
        for worker in workers:
            (command,) = worker.ask()
            run = command["run_id"]
            assert command["program"] == "train.py"
            assert worker.ask(run) == []
            loss = command["args"]["lr"]["value"] * command["args"]["model"]["value"]["layers"]
            wandb_emulator.do("finish_run", run=run, loss=loss)
    assert [worker.ask() for worker in workers] == [EXIT, EXIT]
    sweep = client.sweep(name)
    assert sweep["state"] == "FINISHED"
    assert (sweep["bestLoss"], sweep["runCount"], sweep["runCountExpected"]) == (0.1, 4, 4)
    runs = wandb_emulator.runs(name)
    assert [one["params"] for one in runs] == POINTS
    assert [len(one["handed_to"]) for one in runs] == [1, 1, 1, 1]
    assert [len(one["runs"]) for one in wandb_emulator.agents(name)] == [2, 2]


def test_pause_stop_and_cancel_reach_the_agents(
    wandb_emulator: WandbEmulator, client: Client
) -> None:
    name = wandb_emulator.do("create_sweep", config=GRID)
    worker = Worker(client, name)
    with pytest.raises(Refusal, match="Cannot pause pending sweep"):
        client.move(name, "PAUSED")
    first = worker.run()
    client.move(name, "PAUSED")
    assert worker.ask(first) == worker.ask() == []
    client.move(name, "RUNNING")
    second = worker.run()
    client.move(name, "FINISHED")
    assert worker.ask(second) == []
    assert worker.ask() == EXIT
    with pytest.raises(Refusal, match="Cannot pause finished sweep"):
        client.move(name, "PAUSED")
    with pytest.raises(Refusal, match="Sweep already finished"):
        client.move(name, "CANCELED")
    client.move(name, "RUNNING")
    third = worker.run()
    client.move(name, "CANCELED")
    assert worker.ask(third) == [{"type": "stop", "run_id": third}]
    wandb_emulator.do("finish_run", run=third, exit_code=255)
    assert worker.ask() == EXIT
    assert wandb_emulator.run(third)["state"] == "killed"
    assert wandb_emulator.sweep(name)["states"] == [
        "PENDING", "RUNNING", "PAUSED", "RUNNING", "FINISHED", "RUNNING", "CANCELED",
    ]  # fmt: skip


def test_single_runs_are_stopped_and_resumed_and_a_cap_ends_a_random_search(
    wandb_emulator: WandbEmulator, client: Client
) -> None:
    config = "{method: random, run_cap: 2, parameters: {lr: {min: 0.0, max: 1.0}}}"
    name = wandb_emulator.do("create_sweep", config=config)
    one, other = Worker(client, name), Worker(client, name)
    first = one.run()
    wandb_emulator.do("stop_run", run=first)
    assert one.ask(first) == [{"type": "stop", "run_id": first}]
    wandb_emulator.do("requeue_run", run=first)
    (resumed,) = other.ask()
    assert (resumed["type"], resumed["run_id"]) == ("resume", first)
    assert wandb_emulator.run(first)["handed_to"] == [one.id, other.id]
    second = one.run()
    assert second != first
    wandb_emulator.do("finish_run", run=first)
    assert other.ask() == EXIT
    assert client.sweep(name)["state"] == "RUNNING"  # the other run goes on
    wandb_emulator.do("delete_sweep", sweep=name)
    with pytest.raises(Refusal) as gone:
        one.ask(second)
    assert gone.value.status == 404
    assert client.sweep(name) is None


def test_runs_are_listed_by_pages(wandb_emulator: WandbEmulator, client: Client) -> None:
    names = [wandb_emulator.do("create_sweep", config=GRID) for _ in range(2)]
    workers = [Worker(client, name) for name in names]
    handed = [workers[0].run() for _ in range(4)]
    workers[1].run()
    wandb_emulator.do("finish_run", run=handed[0], loss=0.5)
    found: list[Any] = []
    cursor = None
    for more in (True, False):
        filters = json.dumps({"$and": [{"sweep": names[0]}]})
        page = client.ask(RUNS, filters=filters, cursor=cursor)["project"]["runs"]
        found += [edge["node"] for edge in page["edges"]]
        cursor = page["pageInfo"]["endCursor"]
        assert page["pageInfo"]["hasNextPage"] is more
    assert [one["name"] for one in found] == handed
    assert [one["state"] for one in found] == ["finished", "pending", "pending", "pending"]
    assert json.loads(found[0]["summaryMetrics"]) == {"loss": 0.5}


def test_a_wrong_key_a_foreign_entity_and_an_unknown_field_are_refused(
    wandb_emulator: WandbEmulator, client: Client
) -> None:
    name = wandb_emulator.do("create_sweep", config=GRID)
    foreign, wrong = (Client(wandb_emulator, key) for key in (FOREIGN_KEY, "x" * 40))

    def refusal(of: Client, document: str, **variables: Any) -> tuple[int, str]:
        with pytest.raises(Refusal) as refused:
            of.ask(document, **variables)
        return refused.value.status, refused.value.message

    new = {"config": GRID, "entity": "acme"}
    assert refusal(wrong, UPSERT_SWEEP, **new) == (401, "user is not logged in")
    assert refusal(foreign, UPSERT_SWEEP, **new) == (403, "permission denied")
    # As if it were not there.
    assert foreign.ask(GET_SWEEP, name=name, project="digits", entity="acme")["project"] is None
    assert refusal(client, UPSERT_SWEEP, config=GRID, entity="nobody") == (
        404,
        "entity nobody not found during upsertSweep",
    )
    assert refusal(client, UPSERT_SWEEP, config=GRID, entity=FOREIGN_ENTITY)[0] == 403
    bad = "{method: grid, parameters: {lr: {min: 0.0}}}"
    assert refusal(client, UPSERT_SWEEP, config=bad, entity="acme") == (
        400,
        "Invalid sweep config: invalid hyperparameter configuration: lr",
    )
    lost = {"host": "here", "project": "digits", "entity": "acme", "sweep": "nosuch"}
    assert refusal(client, CREATE_AGENT, **lost) == (
        404,
        "could not find sweep acme/digits/nosuch during createAgent",
    )
    assert refusal(client, CREATE_AGENT, project="digits", sweep=name) == (
        400,
        'Variable "$host" of required type was not provided.',
    )
    assert refusal(client, GET_SWEEP, name=name) == (400, "name required for project query")
    misspelled = GET_SWEEP.replace("bestLoss", "bestloss")
    assert refusal(client, misspelled, name=name, project="digits") == (
        400,
        'Cannot query field "bestloss" on type "Sweep".',
    )
    wandb_emulator.do("settings", unknown_inputs=["launchScheduler"])
    assert refusal(client, UPSERT_SWEEP, **new) == (
        400,
        'Unknown field "launchScheduler" on input type "UpsertSweepInput".',
    )
    assert [one["name"] for one in wandb_emulator.state()["sweeps"]] == [name]


def test_faults_hit_as_often_as_ordered_before_or_after_the_effect(
    wandb_emulator: WandbEmulator, client: Client
) -> None:
    name = wandb_emulator.do("create_sweep", config=GRID)
    wandb_emulator.fault("GetSweep", status=429, headers={"Retry-After": "7"}, count=1)
    wandb_emulator.fault("GetSweep", page=True, count=1)
    with pytest.raises(Refusal) as throttled:
        client.sweep(name)
    assert (throttled.value.status, throttled.value.headers["Retry-After"]) == (429, "7")
    with pytest.raises(Refusal) as paged:
        client.sweep(name)
    assert (paged.value.status, paged.value.headers.get_content_type()) == (502, "text/html")
    assert client.sweep(name)["name"] == name
    wandb_emulator.fault("UpsertSweep", when="after", drop=True, count=1)
    with pytest.raises((http.client.HTTPException, OSError)):
        client.ask(UPSERT_SWEEP, config=GRID, entity="acme")
    assert len(wandb_emulator.state()["sweeps"]) == 2
    wandb_emulator.do("go_away")
    with pytest.raises(urllib.error.URLError):
        client.sweep(name)
    wandb_emulator.do("come_back")
    assert client.sweep(name)["name"] == name
    assert wandb_emulator.state()["requests"] == {"GetSweep": 4, "UpsertSweep": 1}


def test_a_hanging_request_goes_on_when_it_is_released(
    wandb_emulator: WandbEmulator, client: Client
) -> None:
    name = wandb_emulator.do("create_sweep", config=GRID)
    wandb_emulator.fault("GetSweep", delay_s=3600, count=1)
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.append(client.sweep(name)))
    asking.start()
    while not wandb_emulator.state()["requests"]:
        pass
    assert found == []
    wandb_emulator.do("release")
    asking.join()
    assert found[0]["name"] == name


def test_a_run_that_is_silent_too_long_has_crashed_and_holds_its_sweep_no_longer(
    wandb_emulator: WandbEmulator, client: Client
) -> None:
    name = wandb_emulator.do("create_sweep", config="{method: grid, parameters: {n: {value: 1}}}")
    lost, worker = Worker(client, name), Worker(client, name)
    run = lost.run()
    assert worker.ask() == EXIT
    assert client.sweep(name)["state"] == "RUNNING"
    wandb_emulator.do("settings", crashes_after_s=0.0)
    assert worker.ask() == EXIT
    assert (client.sweep(name)["state"], wandb_emulator.run(run)["state"]) == (
        "FINISHED",
        "crashed",
    )


@pytest.mark.parametrize("again", [True, False])
def test_an_answer_that_got_lost_hands_out_the_same_run_or_the_next(
    wandb_emulator: WandbEmulator, client: Client, again: bool
) -> None:
    wandb_emulator.do("settings", hands_again=again)
    name = wandb_emulator.do("create_sweep", config=GRID)
    worker = Worker(client, name)
    wandb_emulator.fault("Heartbeat", when="after", status=500, count=1)
    with pytest.raises(Refusal):
        worker.ask()
    run = worker.run()
    handed = [one["name"] for one in wandb_emulator.runs(name)]
    assert handed == [run] if again else handed[1:] == [run]
    assert worker.ask(run) == []
    assert worker.run() != run


def test_a_light_program_counts_as_one_with_wandb(
    wandb_emulator: WandbEmulator, client: Client
) -> None:
    name = wandb_emulator.do("create_sweep", config=GRID)
    run = Worker(client, name).run()
    where = {"WANDB_ENTITY": "acme", "WANDB_PROJECT": "digits", "WANDB_RUN_ID": run}
    program = [sys.executable, str(LIGHT), "--lr=0.5", "--fail=3"]
    ended = subprocess.run(program, env={**os.environ, **wandb_emulator.env, **where})
    truth = wandb_emulator.run(run)
    assert (ended.returncode, truth["exit_codes"], truth["state"]) == (3, [3], "failed")
    assert (truth["begun"], truth["sweep"]) == (1, name)
    assert [row["loss"] for row in truth["history"]] == [5.5, 4.5, 3.5]
