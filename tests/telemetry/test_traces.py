"""The trace of an apply, from the caller through the controller into the tasks, at a collector."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.living import alive
from tests.servers.forked_program import make_program_directory
from tests.telemetry.collector import WAIT_S, Collector, collecting, never_answering

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, CALLER_SPAN = CALLER.split("-")[1:3]
CANARY = "canary-9f3e2d71c5"
SDK = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk.trace.export")

PROGRAM = """\
import os, pathlib, time
if number == 1 and os.environ["FLEETCTL_ATTEMPT"] == "1":
    raise SystemExit(3)
while not pathlib.Path(gate).exists():
    time.sleep(0.05)
SUBMIT(traceparent=os.environ.get("TRACEPARENT", ""))
"""


class Fleet:
    """The command line with a state directory and an environment of its own.

    installed: starts a Python for each command and controller, as users do; else each is a fork of
    a process that has imported the SDK.
    """

    def __init__(
        self, home: Path, environment: Mapping[str, str], *, installed: bool = False
    ) -> None:
        self.home, self._installed = home, installed
        kept = {name: it for name, it in os.environ.items() if not name.startswith("OTEL_")}
        fast = {"OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_EXPORTER_OTLP_TIMEOUT": "2"}
        self.environment = {**kept, **fast, "FLEETCTL_HOME": str(home), **environment}

    def call(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "fleetctl"]
        if not self._installed:
            program = [str(make_program_directory(*SDK) / "fleetctl")]
        return subprocess.run(
            [*program, *words],
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )

    def run(self, *words: str, **more: str) -> str:
        done = self.call(*words, **more)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    @property
    def pid(self) -> int:
        pid: int = json.loads((self.home / "controller.json").read_text())["pid"]
        return pid

    def end(self) -> None:
        self.call("delete", "--all", "batchjobs", "--yes")
        self.call("down")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture
def fleet(tmp_path: Path, collector: Collector) -> Iterator[Fleet]:
    made = Fleet(tmp_path / "home", {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
    yield made
    made.end()


@pytest.fixture
def gate() -> Iterator[Path]:
    """A file that lets tasks end, where they can see it: in their namespaces /tmp is their own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory) / "gate"


def write_job(where: Path, gate: Path, **more: object) -> str:
    items = [{"number": it, "gate": str(gate)} for it in range(3)]
    spec = {
        "parallelism": 3,
        "backoffLimitPerIndex": 2,
        "tasks": {"items": items},
        "template": {"python": PROGRAM, **more},
    }
    secret = {"fromEnv": ["CANARY"]}
    documents = [
        {"kind": "Secret", "metadata": {"name": "canary"}, "spec": secret},
        {"kind": "BatchJob", "metadata": {"name": "traced"}, "spec": spec},
    ]
    path = where / "job.yaml"
    head = {"apiVersion": "fleetctl.dev/v1alpha1"}
    path.write_text(yaml.safe_dump_all([{**head, **it} for it in documents]))
    return str(path)


def check_tree(collector: Collector, *, parent: str, trace: str) -> None:
    """Checks that the spans of the job are one whole tree, each span once."""
    counts = Counter(it.id for it in collector.spans)
    assert max(counts.values()) == 1, counts.most_common(3)
    assert {it.trace for it in collector.spans} == {trace}
    known = {it.id for it in collector.spans} | {parent}
    assert {it.parent for it in collector.spans} <= known

    (apply,) = collector.named("fleetctl apply")
    (job,) = collector.named("BatchJob")
    attempts = collector.named("attempt")
    assert apply.parent == parent
    assert job.parent == apply.id
    assert {it.parent for it in attempts} == {job.id}
    assert len(attempts) == 4
    for attempt in attempts:
        below = {it.name for it in collector.spans if it.parent == attempt.id}
        assert {"create", "run"} <= below
    (failed,) = [it for it in attempts if it.failed]
    (again,) = [it for it in attempts if it.attributes["fleetctl.attempt"] == 2]
    assert failed.attributes["fleetctl.index"] == again.attributes["fleetctl.index"] == 1


def test_an_apply_and_its_tasks_are_one_trace_below_the_caller(
    tmp_path: Path, gate: Path, fleet: Fleet, collector: Collector
) -> None:
    gate.touch()
    job = write_job(tmp_path, gate, secrets=["canary"])
    fleet.run("apply", "-f", job, "--wait", TRACEPARENT=CALLER, CANARY=CANARY)
    collector.until(lambda: bool(collector.named("BatchJob")))
    check_tree(collector, parent=CALLER_SPAN, trace=TRACE)

    (done,) = collector.named("BatchJob")
    assert done.service == "fleetctl"
    assert done.attributes["fleetctl.object"] == "batchjob/traced"
    assert done.attributes["fleetctl.phase"] == "Succeeded"
    assert done.attributes["fleetctl.succeeded"] == 3
    assert done.attributes["fleetctl.retries"] == 1

    (failed,) = [it for it in collector.named("attempt") if it.failed]
    assert failed.problem == failed.attributes["fleetctl.reason"] == "ExitCode:3"
    assert failed.attributes["fleetctl.state"] == "Failed"
    (again,) = [it for it in collector.named("attempt") if it.attributes["fleetctl.attempt"] == 2]
    assert again.links == (failed.id,)
    assert again.events == ("result recorded",)
    assert again.attributes["fleetctl.provider"] == "local"
    assert again.attributes["fleetctl.exit_code"] == 0
    assert again.attributes["fleetctl.cost_usd"] == 0
    assert again.began_ns == failed.ended_ns

    # Each program continued the trace below its own attempt.
    rows = json.loads(fleet.run("results", "job/traced", "-o", "json"))
    told = {it["result"]["traceparent"] for it in rows}
    ended = [it for it in collector.named("attempt") if not it.failed]
    assert told == {f"00-{TRACE}-{it.id}-01" for it in ended}
    assert not any(CANARY.encode() in it for it in collector.raw)
    assert CANARY not in (fleet.home / "traces.jsonl").read_text()


def test_another_trace_alone_changes_nothing(tmp_path: Path, gate: Path, fleet: Fleet) -> None:
    gate.touch()
    job = write_job(tmp_path, gate)
    fleet.run("apply", "-f", job, "--wait", TRACEPARENT=CALLER, CANARY=CANARY)
    before = fleet.run("get", "job", "traced", "-o", "json")
    other = CALLER.replace("0af7", "1bf7")
    assert "0 to update" in fleet.run("plan", "-f", job, TRACEPARENT=other)
    assert fleet.call("diff", "-f", job, TRACEPARENT=other).returncode == 0
    said = fleet.run("apply", "-f", job, "--wait", TRACEPARENT=other, CANARY=CANARY)
    assert "batchjob/traced unchanged" in said
    assert fleet.run("get", "job", "traced", "-o", "json") == before


def test_a_killed_controller_is_gone_on_from_in_the_same_trace(
    tmp_path: Path, gate: Path, fleet: Fleet, collector: Collector
) -> None:
    job = write_job(tmp_path, gate)
    fleet.run("apply", "-f", job, TRACEPARENT=CALLER, CANARY=CANARY)
    # All attempts have begun, the first of one has failed, and the file of spans is all done.
    collector.until(lambda: len(collector.named("create")) == 4)
    until_s = time.monotonic() + WAIT_S
    while not is_spool_done(fleet.home / "traces.jsonl"):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    pid = fleet.pid
    os.kill(pid, signal.SIGKILL)
    while alive(pid):
        time.sleep(0.01)
    gate.touch()

    fleet.run("up", "--detach")
    fleet.run("wait", "job/traced", "--for", "succeeded")
    collector.until(lambda: bool(collector.named("BatchJob")))
    check_tree(collector, parent=CALLER_SPAN, trace=TRACE)


def is_spool_done(path: Path) -> bool:
    rows = [json.loads(it) for it in path.read_text().splitlines()]
    done = {key for it in rows for key in it.get("done", ())}
    return {it["span_id"] for it in rows if "span_id" in it} <= done


def test_a_collector_that_never_answers_holds_nothing_up_and_loses_nothing(
    tmp_path: Path, gate: Path
) -> None:
    gate.touch()
    job = write_job(tmp_path, gate)
    with never_answering() as (port, taken):
        url = f"http://127.0.0.1:{port}"
        fleet = Fleet(tmp_path / "home", {"OTEL_EXPORTER_OTLP_ENDPOINT": url})
        try:
            fleet.run("apply", "-f", job, "--wait", TRACEPARENT=CALLER, CANARY=CANARY)
            assert taken  # it was asked
            fleet.run("down")
        finally:
            fleet.call("down")
    with collecting(port) as collector:
        try:
            fleet.run("up", "--detach")
            collector.until(lambda: bool(collector.named("BatchJob")))
            check_tree(collector, parent=CALLER_SPAN, trace=TRACE)
        finally:
            fleet.end()


def test_without_a_collector_programs_get_the_trace_of_the_caller(
    tmp_path: Path, gate: Path
) -> None:
    gate.touch()
    fleet = Fleet(tmp_path / "home", {})
    try:
        job = write_job(tmp_path, gate)
        fleet.run("apply", "-f", job, "--wait", TRACEPARENT=CALLER, CANARY=CANARY)
        rows = json.loads(fleet.run("results", "job/traced", "-o", "json"))
        assert {it["result"]["traceparent"] for it in rows} == {CALLER}
        assert not (fleet.home / "traces.jsonl").exists()
    finally:
        fleet.end()


def test_a_missing_extra_is_named_with_its_command_and_fails_nothing(
    tmp_path: Path, gate: Path
) -> None:
    gate.touch()
    hiding = tmp_path / "hiding" / "opentelemetry"
    hiding.mkdir(parents=True)
    (hiding / "__init__.py").touch()
    path = os.pathsep.join([str(hiding.parent), os.environ.get("PYTHONPATH", "")])
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "PYTHONPATH": path}
    fleet = Fleet(tmp_path / "home", environment, installed=True)
    try:
        done = fleet.call("apply", "-f", write_job(tmp_path, gate), "--wait", CANARY=CANARY)
        assert done.returncode == 0, done.stderr
        assert "OpenTelemetry are not installed here" in done.stderr
        assert "pip install" in done.stderr and "[otel]" in done.stderr
    finally:
        fleet.end()


def test_a_controller_without_a_collector_loads_nothing_of_opentelemetry() -> None:
    program = (
        "import sys, fleetctl.daemon.serve, fleetctl.engine.engine, fleetctl.engine.kinds.traces,"
        " fleetctl.gateway.serving\n"
        "from fleetctl.common.telemetry import read_settings\n"
        "assert not read_settings({}).traces\n"
        "print([it for it in sys.modules if it.split('.')[0] == 'opentelemetry'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
