"""Inference as a batch: 10,000 prompts before a server of 64 slots, by the real command line,
controller and gateway. How long the server was asked is measured at the server.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleetctl.common.event_loop import loop_factory
from tests.bench.harness import Figure, Home, home, process_cpu_s
from tests.emulators.llm.batches import Batches
from tests.emulators.llm.server import Model

ROWS, SLOTS, ANSWER_S = 10_000, 64, 0.05
IDEAL_S = ROWS / SLOTS * ANSWER_S
RATIO_MAX = 1.05
SERVE = "serve"


def figures() -> list[Figure]:
    with home() as at, _server() as server:
        at.run("up", "--detach")
        at.run("apply", "-f", at.write("endpoint.yaml", _endpoint(server)), "--wait")
        _ask(at, "warm", 200)
        server.asked_s()  # forgets
        gateway = _gateway(at)
        before_s = process_cpu_s(at.pid()), process_cpu_s(gateway)
        _ask(at, "rows", ROWS)
        each = [
            (process_cpu_s(pid) - known_s) / ROWS * 1000
            for pid, known_s in zip((at.pid(), gateway), before_s, strict=True)
        ]
        asked, span_s = server.asked_s()
    assert asked == ROWS
    ratio = span_s / IDEAL_S
    what = f"{ROWS:,} prompts of {ANSWER_S * 1000:.0f} ms on {SLOTS} slots, against no overhead"
    cpu = f"{each[0]:.2f} + {each[1]:.2f} ms"
    return [
        Figure(
            what, f"{span_s:.2f} s: {ratio:.2f} times", f"{RATIO_MAX} times", ratio <= RATIO_MAX
        ),
        Figure("CPU a prompt of controller and gateway", cpu, "", None),
    ]


def batched() -> list[Figure]:
    """By the server's own batches, which are over as soon as they are looked at."""
    with home() as at, _server() as server:
        at.run("up", "--detach")
        at.run("apply", "-f", at.write("endpoint.yaml", _endpoint(server)), "--wait")
        _ask(at, "warm", 200, mode="batch")
        pids = at.pid(), _gateway(at)
        before = [(process_cpu_s(pid), _peak_mib(pid)) for pid in pids]
        _ask(at, "rows", ROWS, mode="batch")
        after = [(process_cpu_s(pid), _peak_mib(pid)) for pid in pids]
        asked, _ = server.asked_s()
    assert asked == ROWS + 200
    pairs = list(zip(before, after, strict=True))
    cpu = " + ".join(f"{(now[0] - was[0]) / ROWS * 1000:.2f}" for was, now in pairs)
    memory = " + ".join(f"{now[1] - was[1]:.0f}" for was, now in pairs)
    what = f"{ROWS:,} prompts of one batch"
    return [
        Figure(f"CPU a prompt of controller and gateway, {what}", f"{cpu} ms", "", None),
        Figure(f"Memory of both that they take, {what}", f"{memory} MiB", "", None),
    ]


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (peak,) = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(peak) / 1024


def _endpoint(server: _Server) -> str:
    spec = {"servers": [{"url": f"{server.url}/v1", "slots": SLOTS}], "models": {"chat": "tiny"}}
    return _manifest("Endpoint", "small", spec)


def _ask(at: Home, name: str, count: int, *, mode: str = "online") -> None:
    rows = [{"n": number, "of": name} for number in range(count)]
    prompt = {"endpoint": "small", "text": "what is ${n} of ${of}?", "mode": mode}
    spec = {"tasks": {"items": rows}, "template": {"prompt": prompt}}
    path = at.write(f"{name}.yaml", _manifest("BatchJob", name, spec))
    at.run("apply", "-f", path, "--wait", "--timeout", "15m")


def _manifest(kind: str, name: str, spec: dict[str, Any]) -> str:
    head = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": kind, "metadata": {"name": name}}
    return json.dumps({**head, "spec": spec})


def _gateway(at: Home) -> int:
    """Its process, by its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0") if path.exists() else []
        if b"fleetctl.gateway" in words and str(at.path).encode() in b" ".join(words):
            return int(path.parent.name)
    raise AssertionError("no gateway runs")


class _Server:
    """The emulated model server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.url = process.stdout.readline().strip()

    def asked_s(self) -> tuple[int, float]:
        """How many answers since the last look, and seconds from the first to the end of the
        last.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        asked, span_s = json.loads(self._process.stdout.readline())
        return asked, span_s


@contextmanager
def _server() -> Iterator[_Server]:
    words = [sys.executable, "-m", "tests.bench.prompts", SERVE]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield _Server(process)
        finally:
            process.kill()


async def _serve() -> None:
    times: list[float] = []

    def answer(_: dict[str, Any]) -> str:
        times.append(time.monotonic())
        return "it is what it is"

    model = Model(slots=SLOTS, answer_s=ANSWER_S, says=answer, batches=Batches())
    await model.start()
    print(model.url, flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        found = [len(times), times[-1] - times[0] + ANSWER_S if times else 0.0]
        times.clear()
        print(json.dumps(found), flush=True)
    await model.stop()


if __name__ == "__main__" and sys.argv[1:] == [SERVE]:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve())
