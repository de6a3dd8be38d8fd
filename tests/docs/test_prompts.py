"""Prompts through the real command line, controller and gateway, before an emulated server whose
`asked` is the truth.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import yaml

from tests.docs.fleet import EXAMPLES, Fleet
from tests.emulators.llm.running import running
from tests.emulators.llm.server import Model

HANG_S = 300.0
ROWS = 500


def endpoint(model: Model) -> dict[str, Any]:
    return {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "Endpoint",
        "metadata": {"name": "small"},
        "spec": {
            "servers": [{"url": f"{model.url}/v1", "slots": model.slots}],
            "models": {"chat": "tiny"},
        },
    }


def job(name: str, rows: list[dict[str, Any]], *, text: str, **prompt: Any) -> dict[str, Any]:
    return {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "BatchJob",
        "metadata": {"name": name},
        "spec": {
            "tasks": {"items": rows},
            "template": {"prompt": {"endpoint": "small", "text": text, **prompt}},
        },
    }


def manifests(*objects: dict[str, Any]) -> str:
    return "\n---\n".join(map(json.dumps, objects))


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def said(model: Model) -> Counter[str]:
    """How often each prompt was asked."""
    return Counter(str(it["messages"][-1]["content"]) for it in model.asked)


def sandboxes(fleet: Fleet) -> list[int]:
    """Pids of what is of this home, but for controller and gateway."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,command="], capture_output=True, text=True, check=True
    )
    ours = [
        line.split(maxsplit=1) for line in listed.stdout.splitlines() if str(fleet.home) in line
    ]
    others = ("fleetctl.gateway", "fleetctl.cli.main up")
    return [int(pid) for pid, command in ours if not any(it in command for it in others)]


def kill(pids: list[int]) -> None:
    """At least one of them; what another of them has taken with it is gone already."""
    killed = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    assert killed


def test_a_killed_controller_loses_no_row_and_asks_none_twice(empty: Fleet) -> None:
    with running(Model(slots=16, answer_s=0.02)) as model:
        rows = [{"n": number} for number in range(ROWS)]
        text = manifests(endpoint(model), job("ask", rows, text="row ${n}"))
        empty.ok("apply", "-f", "-", stdin=text)
        until(lambda: len(model.asked) > ROWS // 4)
        empty.kill_controller()
        assert len(model.asked) < ROWS
        empty.ok("apply", "-f", "-", "--wait", stdin=text)
        lines = empty.ok("results", "job/ask", "-o", "jsonl").splitlines()
        found = [json.loads(line) for line in lines]
        assert [row["params"] for row in found] == rows
        assert [row["result"]["answer"] for row in found] == [f"echo: row {n}" for n in range(ROWS)]
        assert {(row["state"], row["attempts"]) for row in found} == {("Succeeded", 1)}
        assert said(model) == {f"row {n}": 1 for n in range(ROWS)}
        # What has succeeded is not asked again; in another job where that says so.
        again = job("again", rows[:3], text="row ${n}")
        again["spec"]["cache"] = {"policy": "ReuseSucceeded"}
        empty.ok("apply", "-f", "-", "--wait", stdin=manifests(again))
        assert {row["state"] for row in empty.json("results", "job/again")} == {"Cached"}
        assert len(model.asked) == ROWS


def test_a_killed_sandbox_amid_its_calls_has_one_outcome_and_asks_little_twice(
    empty: Fleet,
) -> None:
    """Its next attempt finds in the endpoint's cache what was answered."""
    with running(Model(slots=16, answer_s=0.02)) as model:
        cached = endpoint(model)
        cached["spec"]["cache"] = {"policy": "Always"}
        cached["spec"]["prices"] = {"chat": {"inputPerMillion": 1.0, "outputPerMillion": 1.0}}
        cached["spec"]["limits"] = {"callsPerTask": 2 * ROWS}
        work = job("work", [{"many": ROWS}], text="")
        work["spec"]["template"] = {
            "endpoints": ["small"],
            "python": 'answers = llm_query_batched([f"row {n}" for n in range(many)])\n'
            "SUBMIT(answers=len(set(answers)))",
        }
        text = manifests(cached, work)
        empty.ok("apply", "-f", "-", stdin=text)
        until(lambda: len(model.asked) > ROWS // 4)
        kill(sandboxes(empty))
        assert len(model.asked) < ROWS
        empty.ok("apply", "-f", "-", "--wait", stdin=text)
        (found,) = empty.json("results", "job/work")
        assert (found["state"], found["result"]) == ("Succeeded", {"answers": ROWS})
        assert found["attempts"] == 2
        asked = said(model)
        assert asked.keys() == {f"row {n}" for n in range(ROWS)}
        # Only what was in flight as it was killed had no answer that could be kept.
        assert max(asked.values()) <= 2 and asked.total() <= ROWS + model.slots
        until(lambda: empty.json("get", "endpoint/small")["status"]["tokens"] >= model.tokens)


def test_an_answer_that_does_not_match_is_shown_with_its_place(empty: Fleet) -> None:
    def rated(body: dict[str, Any]) -> str:
        asked = [str(it["content"]) for it in body["messages"] if it["role"] == "user"]
        stars = {"good": 5, "odd": 5 if len(asked) > 1 else 9, "bad": 9}[asked[0]]
        return json.dumps({"stars": stars})

    with running(Model(says=rated)) as model:
        rows = [{"what": it} for it in ("good", "odd", "bad")]
        schema = {"properties": {"stars": {"maximum": 5}}, "required": ["stars"]}
        text = manifests(endpoint(model), job("rate", rows, text="${what}", schema=schema))
        empty.run("apply", "-f", "-", "--wait", stdin=text)
        found = empty.json("results", "job/rate")
        assert [row["state"] for row in found] == ["Succeeded", "Succeeded", "Failed"]
        assert [row["result"] and row["result"]["answer"] for row in found] == [
            {"stars": 5},
            {"stars": 5},
            None,
        ]
        once, twice = (row["result"]["usage"]["tokens_in"] for row in found[:2])
        assert twice > 2 * once
        assert "AnswerInvalid" in empty.ok("get", "tasks", "job/rate")
        why = "at $.stars: 9 is greater than the maximum of 5; asked twice"
        assert why in empty.ok("describe", "job/rate")
        log = empty.ok("logs", "job/rate", "--index", "2", "--no-prefix")
        assert log.count('{"stars": 9}') == 2
        refused = empty.run("exec", "job/rate", "--", "true")
        assert refused.code != 0


def test_the_example_asks_a_row_and_not_twice(empty: Fleet) -> None:
    def rated(body: dict[str, Any]) -> str:
        return json.dumps({"stars": 4, "reason": str(len(body["messages"]))})

    with running(Model(says=rated, models=("qwen2.5:3b",))) as model:
        documents = list(yaml.safe_load_all((EXAMPLES / "prompts.yaml").read_text("utf-8")))
        documents[0]["spec"]["servers"][0]["url"] = f"{model.url}/v1"
        empty.ok("apply", "-f", "-", "--wait", stdin=manifests(*documents))
        answers = [row["result"]["answer"] for row in empty.results("job/reviews")]
        assert answers == [{"stars": 4, "reason": "2"}] * 3
        assert [it["temperature"] for it in model.asked] == [0, 0, 0]
        # The endpoint keeps what was answered at temperature 0, also where the job asks anew.
        documents[1]["spec"]["cache"] = {"policy": "Never"}
        documents[1]["metadata"]["name"] = "anew"
        empty.ok("apply", "-f", "-", "--wait", stdin=manifests(documents[1]))
        assert len(empty.results("job/anew")) == len(model.asked) == 3


def test_a_sweep_finds_the_wording_that_is_answered_best(empty: Fleet) -> None:
    def scored(body: dict[str, Any]) -> str:
        return json.dumps({"score": 10 - abs(len(body["messages"][0]["content"]) - 13)})

    with running(Model(says=scored)) as model:
        schema = {"properties": {"score": {"type": "integer"}}, "required": ["score"]}
        prompt = {"endpoint": "small", "text": "Say it ${how}", "schema": schema}
        search = {
            "method": "grid",
            "metric": {"name": "answer.score", "goal": "maximize"},
            "parameters": {"how": {"values": ["kind", "kinder", "the kindest"]}},
        }
        sweep = job("words", [], text="")
        sweep |= {"kind": "Sweep", "spec": {"search": search, "template": {"prompt": prompt}}}
        empty.ok("apply", "-f", "-", "--wait", stdin=manifests(endpoint(model), sweep))
        (best,) = empty.json("results", "sweep/words", "--best")
        assert best["params"] == {"how": "kinder"}
