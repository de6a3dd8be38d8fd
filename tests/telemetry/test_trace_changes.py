"""Traces of work that changes, that is deleted, that a Schedule makes, or that asks models."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import yaml

from tests.emulators.llm.server import Model
from tests.telemetry.collector import WAIT_S, Collector
from tests.telemetry.test_traces import CALLER, CANARY, TRACE, Fleet, collector, fleet, gate

__all__ = ["collector", "fleet", "gate"]  # fixtures

OTHER = CALLER.replace("0af7", "1bf7")
OTHER_TRACE = OTHER.split("-")[1]
HEAD = {"apiVersion": "fleetctl.dev/v1alpha1"}
WAITS = """\
import os, pathlib, time
while not pathlib.Path(gate).exists():
    time.sleep(0.05)
SUBMIT(traceparent=os.environ.get("TRACEPARENT", ""))
"""


def write(where: Path, *documents: dict[str, object]) -> str:
    path = where / "work.yaml"
    path.write_text(yaml.safe_dump_all([{**HEAD, **it} for it in documents]))
    return str(path)


def make_job(gate: Path, count: int, **spec: object) -> dict[str, object]:
    items = [{"number": it, "gate": str(gate)} for it in range(count)]
    whole = {"tasks": {"items": items}, "template": {"python": WAITS}, **spec}
    return {"kind": "BatchJob", "metadata": {"name": "traced"}, "spec": whole}


def check_whole(collector: Collector, *roots: str) -> None:
    """Checks that each span came once, and that the parent of each is there, too."""
    counts = Counter(it.id for it in collector.spans)
    assert max(counts.values()) == 1, counts.most_common(3)
    assert {it.parent for it in collector.spans} <= {*counts, *roots}


def until_running(fleet: Fleet, count: int) -> None:
    until_s = time.monotonic() + WAIT_S
    while True:
        status = json.loads(fleet.run("get", "job", "traced", "-o", "json"))["status"]
        if status.get("active") == count:
            return
        assert time.monotonic() < until_s, status
        time.sleep(0.1)


def test_a_change_goes_on_in_a_trace_of_its_own_and_runs_keep_theirs(
    tmp_path: Path, gate: Path, fleet: Fleet, collector: Collector
) -> None:
    job = make_job(gate, 2, parallelism=1)
    fleet.run("apply", "-f", write(tmp_path, job), TRACEPARENT=CALLER)
    until_running(fleet, 1)
    job = make_job(gate, 2, parallelism=2)
    fleet.run("apply", "-f", write(tmp_path, job), TRACEPARENT=OTHER)
    until_running(fleet, 2)
    pid = json.loads((fleet.home / "controller.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    gate.touch()
    fleet.run("up", "--detach")
    fleet.run("wait", "job/traced", "--for", "succeeded")
    collector.until(lambda: len(collector.named("BatchJob")) == 2)
    collector.until(lambda: len(collector.named("attempt")) == 2)

    traces = {it.attributes["fleetctl.index"]: it.trace for it in collector.named("attempt")}
    assert traces == {0: TRACE, 1: OTHER_TRACE}
    phases = {it.trace: it.attributes["fleetctl.phase"] for it in collector.named("BatchJob")}
    assert phases == {TRACE: "Changed", OTHER_TRACE: "Succeeded"}
    rows = json.loads(fleet.run("results", "job/traced", "-o", "json"))
    told = [it["result"]["traceparent"].split("-")[1] for it in rows]
    assert told == [TRACE, OTHER_TRACE]


def test_a_retry_begins_a_trace_and_ends_the_object_once_more(
    tmp_path: Path, fleet: Fleet, collector: Collector
) -> None:
    program = 'import os\nif os.environ["FLEETCTL_ATTEMPT"] == "1":\n    raise SystemExit(3)'
    spec = {"tasks": {"items": [{"number": 1}]}, "template": {"python": program}}
    spec |= {"backoffLimitPerIndex": 0}
    job = {"kind": "BatchJob", "metadata": {"name": "traced"}, "spec": spec}
    fleet.call("apply", "-f", write(tmp_path, job), "--wait", TRACEPARENT=CALLER)
    fleet.run("retry", "job/traced", "--failed", TRACEPARENT=OTHER)
    fleet.run("wait", "job/traced", "--for", "succeeded")
    collector.until(lambda: len(collector.named("BatchJob")) == 2)
    phases = {it.trace: it.attributes["fleetctl.phase"] for it in collector.named("BatchJob")}
    assert phases == {TRACE: "Failed", OTHER_TRACE: "Succeeded"}
    (retry,) = collector.named("fleetctl retry")
    assert retry.parent == OTHER.split("-")[2]
    check_whole(collector, CALLER.split("-")[2])


def test_deleted_work_ends_its_spans(
    tmp_path: Path, gate: Path, fleet: Fleet, collector: Collector
) -> None:
    fleet.run("apply", "-f", write(tmp_path, make_job(gate, 1)), TRACEPARENT=CALLER)
    until_running(fleet, 1)
    fleet.run("delete", "job/traced", "--yes")
    collector.until(lambda: bool(collector.named("BatchJob")))
    (done,) = collector.named("BatchJob")
    assert done.attributes["fleetctl.phase"] == "Deleted"
    (attempt,) = collector.named("attempt")
    assert attempt.attributes["fleetctl.state"] == "Stopped"
    assert "stop" in {it.name for it in collector.spans if it.parent == attempt.id}
    check_whole(collector, CALLER.split("-")[2])


def test_an_object_of_a_schedule_is_the_root_of_its_trace(
    tmp_path: Path, gate: Path, fleet: Fleet, collector: Collector
) -> None:
    gate.touch()
    job = make_job(gate, 1)
    work = {"kind": "BatchJob", "spec": job["spec"]}
    spec = {"schedule": "0 0 1 1 *", "template": work}
    schedule = {"kind": "Schedule", "metadata": {"name": "yearly"}, "spec": spec}
    fleet.run("apply", "-f", write(tmp_path, schedule), TRACEPARENT=CALLER)
    fleet.run("create", "job", "made", "--from", "schedule/yearly", TRACEPARENT=CALLER)
    fleet.run("wait", "job/made", "--for", "succeeded")
    collector.until(lambda: bool(collector.named("BatchJob")))
    (done,) = collector.named("BatchJob")
    assert done.parent == ""
    assert {it.trace for it in collector.named("attempt")} == {done.trace}
    check_whole(collector, CALLER.split("-")[2], "")
    fleet.run("delete", "schedule/yearly", "--yes")


def test_calls_of_models_are_spans_below_their_attempt(
    tmp_path: Path, fleet: Fleet, collector: Collector
) -> None:
    asyncio.run(ask_models(tmp_path, fleet, collector))
    (call,) = collector.named("chat tiny")
    (attempt,) = collector.named("attempt")
    assert (call.trace, call.parent) == (attempt.trace, attempt.id) == (TRACE, attempt.id)
    assert call.attributes["fleetctl.run"] == attempt.attributes["fleetctl.run"]
    assert call.attributes["gen_ai.usage.output_tokens"] > 0
    check_whole(collector, CALLER.split("-")[2])
    assert not any(CANARY.encode() in it for it in collector.raw)


async def ask_models(where: Path, fleet: Fleet, collector: Collector) -> None:
    model = await Model(key=CANARY).start()
    try:
        secret = {"kind": "Secret", "metadata": {"name": "key"}, "spec": {"fromEnv": ["CANARY"]}}
        reached = {
            "servers": [{"url": f"{model.url}/v1", "slots": 2}],
            "models": {"tiny": "tiny"},
            "apiKey": {"secret": "key", "name": "CANARY"},
        }
        endpoint = {"kind": "Endpoint", "metadata": {"name": "small"}, "spec": reached}
        program = 'SUBMIT(said=llm_query("hello"))'
        spec = {
            "tasks": {"items": [{"number": 1}]},
            "template": {"endpoints": ["small"], "python": program},
        }
        job = {"kind": "BatchJob", "metadata": {"name": "traced"}, "spec": spec}
        words = ("apply", "-f", write(where, secret, endpoint, job), "--wait")
        said = await asyncio.to_thread(fleet.run, *words, TRACEPARENT=CALLER, CANARY=CANARY)
        assert "succeeded" in said
        await asyncio.to_thread(collector.until, lambda: bool(collector.named("chat tiny")))
        await asyncio.to_thread(collector.until, lambda: bool(collector.named("BatchJob")))
    finally:
        await model.stop()


def test_the_log_of_the_controller_is_exported_where_it_is_requested(
    tmp_path: Path, gate: Path, collector: Collector
) -> None:
    gate.touch()
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_LOGS_EXPORTER": "otlp"}
    fleet = Fleet(tmp_path / "home", {**variables, "OTEL_TRACES_EXPORTER": "none"})
    try:
        fleet.run("apply", "-f", write(tmp_path, make_job(gate, 1)), "--wait")
        (fleet.home / "controller.sock").unlink()  # is logged, and made again
        collector.until(lambda: bool(collector.logs))
        assert collector.logs[0].text == "the socket was lost; it is created again"
        assert collector.logs[0].severity == "WARNING"
        assert not collector.spans
    finally:
        fleet.end()
