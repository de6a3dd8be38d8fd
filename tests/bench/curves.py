"""A training that reports much: 10,000 points a second taken in, and a curve of a million drawn."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Metric, Resource, Run, RunState
from fleetctl.stores.sqlite.store import open_store
from tests.bench.harness import Figure, Home, home, median, process_cpu_s

POINTS = 1_000_000
ROUNDS = 5
WRITERS, LINES_S, SECONDS = 8, 250, 30  # each line has five points
POINTS_S = WRITERS * LINES_S * 5

_WRITER = """\
apiVersion: fleetctl.dev/v1alpha1
kind: TrainingRun
metadata: {{name: t{number}}}
spec:
  placement: {{provider: local}}
  template:
    command:
      - python3
      - -c
      - |
        import os, time
        begun, done = time.monotonic(), 0
        with open(os.environ["FLEETCTL_METRICS"], "a") as file:
            while done < {lines}:
                due = min({lines}, int((time.monotonic() - begun) * {per_s}))
                for at in range(done, due):
                    file.write('{{"step": %d, "loss": 1, "a": 1, "b": 2, "c": 3, "d": 4}}\\n' % at)
                done = due
                file.flush()
                time.sleep(0.05)
"""


def figures() -> list[Figure]:
    return [_drawn(), *_taken()]


def _drawn() -> Figure:
    with home() as at:
        _fill(Path(at.env["FLEETCTL_HOME"]))
        spent = [at.cpu_s("plot", "trainingrun/x", "--metric", "loss") for _ in range(ROUNDS)]
    took_s = median(spent)
    return Figure(
        f"`plot` of a curve of {POINTS:,} points", f"{took_s:.2f} CPU s", "2 s", took_s <= 2
    )


def _fill(place: Path) -> None:
    store, now_s = open_store(place, SystemClock()), SystemClock().now_s()
    run = Run(
        "r0", "u", 0, 1, RunState.STARTING, "local", "r0", "t", '{"stage":"main"}', "p", now_s
    )
    with store.transaction():
        row = Resource("u", "TrainingRun", "x", 1, 0, "{}", "", {}, {}, now_s)
        store.resources.put(row, expected_version=None)
        store.runs.begin([run])
        points = [Metric(at, at, "loss", 1 / (at + 1), now_s) for at in range(POINTS)]
        store.runs.advance(replace(run, state=RunState.SUCCEEDED, ended_at_s=now_s), metrics=points)
    store.close()


def _taken() -> list[Figure]:
    wanted = WRITERS * LINES_S * SECONDS * 5
    with home() as at:
        at.run("up", "--detach")
        lines = LINES_S * SECONDS
        texts = [_WRITER.format(number=one, per_s=LINES_S, lines=lines) for one in range(WRITERS)]
        at.run("apply", "-f", at.write("t.yaml", "---\n".join(texts)))
        while not _stored(at):
            time.sleep(0.2)
        pid, begun_s = at.pid(), time.monotonic()
        before_s = process_cpu_s(pid)
        for number in range(WRITERS):
            at.run("wait", f"trainingrun/t{number}", "--timeout", "10m")
        took_s, spent_s = time.monotonic() - begun_s, process_cpu_s(pid) - before_s
        kept = _stored(at)
    # Of the time that the points are of, whatever else this machine had to do meanwhile.
    share = spent_s / (kept / POINTS_S) * 100
    what = f"a controller that takes in {POINTS_S:,} points a second of {WRITERS} trainings"
    return [
        Figure(what, f"{share:.0f} % of a core", "25 %", share <= 25),
        Figure(
            "points of these that are stored",
            f"{kept:,} in {took_s:.0f} s",
            f"{wanted:,}",
            kept == wanted,
        ),
    ]


def _stored(at: Home) -> int:
    (row,) = json.loads(at.run("query", "select count(*) many from metrics", "-o", "json").stdout)
    return int(row["many"])
