"""Prompts by a server's own batch API, through the real command line, controller and gateway."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections import Counter
from typing import Any

import pytest

from tests.docs.fleet import Fleet
from tests.docs.test_prompts import endpoint, job, manifests, until
from tests.emulators.llm.batches import Batches
from tests.emulators.llm.running import running
from tests.emulators.llm.server import Model

ROWS = 300
QUICK = {"lingerSeconds": 0.5, "pollSeconds": 0.1}
USD = 1e-3  # a token, in and out


def batching(model: Model, rows: int = 0) -> dict[str, Any]:
    """rows: so many are a batch, however late the last comes; 0: those of half a second."""
    batch = {**QUICK, "maxRows": rows, "lingerSeconds": 60} if rows else QUICK
    found = endpoint(model)
    price = {"inputPerMillion": USD * 1e6, "outputPerMillion": USD * 1e6}
    found["spec"] |= {"batch": batch, "prices": {"chat": price}}
    return found


def asks(name: str, count: int, **prompt: Any) -> dict[str, Any]:
    rows = [{"n": number} for number in range(count)]
    return job(name, rows, text="row ${n}", mode="batch", parameters={"maxTokens": 9}, **prompt)


def answers(fleet: Fleet, key: str) -> list[Any]:
    """In the order of the rows, each of which has one outcome after one attempt."""
    found = [json.loads(line) for line in fleet.ok("results", key, "-o", "jsonl").splitlines()]
    assert [row["index"] for row in found] == list(range(len(found)))
    return [row["result"]["answer"] for row in found]


def gateway_pid(fleet: Fleet) -> int:
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,command="], capture_output=True, text=True, check=True
    )
    name = f"fleetctl.gateway {fleet.home}"
    (line,) = [it for it in listed.stdout.splitlines() if name in it]
    return int(line.split()[0])


def test_rows_are_one_batch_and_what_is_equal_is_not_asked_again(empty: Fleet) -> None:
    truth = Batches()
    with running(Model(batches=truth)) as model:
        text = manifests(batching(model, ROWS), asks("ask", ROWS))
        empty.ok("apply", "-f", "-", "--wait", stdin=text)
        assert answers(empty, "job/ask") == [f"echo: row {n}" for n in range(ROWS)]
        assert len(truth.made) == 1 and model.asked == []
        cost = empty.status("job/ask")["cost"]
        assert cost["actual"] == pytest.approx(truth.tokens * USD / 2)
        # The same file, and the same by calls: an answer by a batch is the same answer.
        empty.ok("apply", "-f", "-", "--wait", stdin=text)
        alive = asks("ask", ROWS)
        alive["spec"]["template"]["prompt"]["mode"] = "online"
        empty.ok("apply", "-f", "-", "--wait", stdin=manifests(alive))
        assert model.asked == []
        empty.ok("apply", "-f", "-", stdin=manifests(batching(model, 1)))
        changed = asks("ask", ROWS)
        changed["spec"]["tasks"]["items"][7] = {"n": "seven"}
        empty.ok("apply", "-f", "-", "--wait", stdin=manifests(changed))
        assert answers(empty, "job/ask")[6:8] == ["echo: row 6", "echo: row seven"]
        assert [len(it.rows) for it in truth.made] == [ROWS, 1]


def test_kills_amid_a_batch_lose_no_row_and_ask_none_twice(empty: Fleet) -> None:
    truth = Batches(held=True, done=120, lost=1)
    with running(Model(batches=truth)) as model:
        text = manifests(batching(model, ROWS), asks("ask", ROWS))
        empty.ok("apply", "-f", "-", stdin=text)
        where = f"in batch batch_0 of {ROWS}, 120 done"
        until(lambda: empty.status("job/ask").get("message") == where)
        assert empty.status("job/ask")["reason"] == "InBatch"
        shown = empty.ok("describe", "endpoint/small")
        assert re.search(rf"batch_0 +in_progress +120 +{ROWS} +0", shown), shown
        empty.kill_controller()
        os.kill(gateway_pid(empty), signal.SIGKILL)
        empty.ok("apply", "-f", "-", stdin=text)
        until(lambda: empty.status("job/ask").get("message") == where)
        os.kill(gateway_pid(empty), signal.SIGKILL)
        truth.held = False
        empty.ok("wait", "job/ask", "--for", "complete")
        assert answers(empty, "job/ask") == [f"echo: row {n}" for n in range(ROWS)]
        assert Counter(truth.asked) == {f"row {n}": 1 for n in range(ROWS)}
        assert len(truth.made) == 1 and model.asked == []
        cost = empty.status("job/ask")["cost"]
        assert cost["actual"] == pytest.approx(truth.tokens * USD / 2)


def test_a_deleted_job_cancels_its_batch_and_pays_what_was_answered(empty: Fleet) -> None:
    truth = Batches(held=True, done=3)
    with running(Model(batches=truth)) as model:
        empty.ok("apply", "-f", "-", stdin=manifests(batching(model, 9), asks("ask", 9)))
        until(lambda: empty.status("job/ask").get("reason") == "InBatch")
        empty.ok("delete", "job/ask")
        until(lambda: bool(truth.made) and truth.made[0].status == "cancelled")
        until(lambda: empty.status("endpoint/small")["tokens"] == truth.tokens)
        assert truth.cancels == ["batch_0"] and truth.tokens > 0
        until(lambda: "batches" not in empty.status("endpoint/small"))


def test_an_answer_that_does_not_match_is_asked_again_in_the_next_batch(empty: Fleet) -> None:
    def rated(body: dict[str, Any]) -> str:
        return json.dumps({"stars": 9 if len(body["messages"]) == 1 else 4})

    def refuse(body: dict[str, Any]) -> int:
        return 400 if body["messages"][0]["content"] == "row 1" else 0

    truth = Batches(refuse=refuse)
    with running(Model(says=rated, batches=truth)) as model:
        schema = {"properties": {"stars": {"maximum": 5}}, "required": ["stars"]}
        wanted = asks("rate", 3, schema=schema)
        wanted["spec"] |= {"backoffLimitPerIndex": 1, "retry": {"backoff": {"initial": 0.1}}}
        empty.run("apply", "-f", "-", "--wait", stdin=manifests(batching(model), wanted))
        rows = empty.json("results", "job/rate")
        assert [row["state"] for row in rows] == ["Succeeded", "Failed", "Succeeded"]
        assert [row["attempts"] for row in rows] == [1, 2, 1]
        assert rows[0]["result"]["answer"] == {"stars": 4}
        assert "the prompt is not taken" in empty.ok("describe", "job/rate")
        assert model.asked == [] and len(truth.asked) == 3 + 2 + 1


def test_servers_without_batches_are_refused_before_anything_is_asked(empty: Fleet) -> None:
    with running(Model()) as model:
        empty.run("apply", "-f", "-", "--wait", stdin=manifests(batching(model), asks("ask", 3)))
        told = empty.ok("describe", "job/ask")
        assert "no server has a batch API" in told and "leave `mode: batch` out" in told
        ollama = batching(model)
        ollama["metadata"]["name"] = "small"
        ollama["spec"]["api"] = "ollama"
        refused = empty.run("apply", "-f", "-", stdin=manifests(ollama, asks("other", 3)))
        assert refused.code != 0 and "servers of Ollama" in refused.talk
        assert model.asked == []
