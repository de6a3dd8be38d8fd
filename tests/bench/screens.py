"""What a person waits for: reads, applies, the controller's start, and what an idle one costs."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from tests.bench import manyobjects
from tests.bench.harness import (
    Figure,
    Home,
    home,
    job,
    median,
    process_cpu_s,
    process_rss_mb,
    timed,
)

ROUNDS = 7
OBJECTS = 1000
IDLE_S = 20.0


def _suspended(count: int, *, prefix: str = "job") -> str:
    """Jobs that wait for nothing and run nothing."""
    text = [job(f"{prefix}-{number}", 1) for number in range(count)]
    return "---\n".join(text).replace("  parallelism: 8\n", "  suspend: true\n")


def reads() -> list[Figure]:
    figures = []
    with home() as at:
        spent = median([at.cpu_s("--help") for _ in range(ROUNDS)]) * 1000
        figures.append(Figure("`--help`", f"{spent:.0f} ms CPU", "60 ms", spent <= 60))
    for count, goal_ms in ((1, 60), (OBJECTS, 100), (10 * OBJECTS, 400)):
        with home() as at:
            manyobjects.build(Path(at.env["FLEETCTL_HOME"]), count)
            for words in (("get", "jobs"), ("describe", "job/job-0"), ("events",)):
                spent = median([at.cpu_s(*words) for _ in range(ROUNDS)]) * 1000
                what = f"`{' '.join(words)}` with {count:,}"
                text = f"{spent:.0f} ms CPU"
                figures.append(Figure(what, text, f"{goal_ms} ms", spent <= goal_ms))
    return figures


def applies() -> list[Figure]:
    with home() as at:
        at.run("up", "--detach")
        first = median([_first_task(at, number) for number in range(ROUNDS)]) * 1000
        path = at.write("many.yaml", _suspended(OBJECTS, prefix="many"))
        spent: list[float] = []
        with timed(spent):
            at.run("apply", "-f", path)
        assert len(at.run("get", "jobs", "-o", "name").stdout.split()) == OBJECTS + ROUNDS
        again: list[float] = []
        with timed(again):
            at.run("apply", "-f", path)
    return [
        Figure(
            "`apply` of one job to its first task running",
            f"{first:.0f} ms",
            "150 ms",
            first <= 150,
        ),
        Figure(
            "`apply` of 1,000 manifests in one file", f"{spent[0]:.2f} s", "1.5 s", spent[0] <= 1.5
        ),
        Figure("the same file again, nothing changed", f"{again[0]:.2f} s", "", None),
    ]


def _first_task(at: Home, number: int) -> float:
    """Seconds from the start of `apply` to the first line of the task's own code."""
    stamp = at.path / f"stamp-{number}"
    # The task's clock is the machine's, so its own word on when it began needs no polling.
    work = "import time; SUBMIT(at=time.time())"
    path = at.write(f"first-{number}.yaml", job(f"first-{number}", 1, work=work))
    begun_s = time.time()
    at.run("apply", "-f", path)
    at.run("wait", f"job/first-{number}", "--for=succeeded", "--timeout", "30s")
    stamp.touch()
    rows = at.json("results", f"job/first-{number}")
    return float(rows[0]["result"]["at"]) - begun_s


def starting() -> list[Figure]:
    spent: list[float] = []
    rss = 0.0
    for _ in range(ROUNDS):
        with home() as at:
            with timed(spent):
                at.run("up", "--detach")
            rss = max(rss, process_rss_mb(at.pid()))
    ready = median(spent)
    return [
        Figure("controller start to ready", f"{ready:.2f} s", "1 s", ready <= 1.0),
        Figure("controller memory when ready", f"{rss:.0f} MB", "100 MB", rss <= 100),
    ]


def idle() -> list[Figure]:
    """1,000 finished objects and 10 that run."""
    with home() as at:
        finished = "---\n".join(job(f"done-{number}", 1) for number in range(OBJECTS))
        at.run("apply", "-f", at.write("done.yaml", finished), "--wait", "--timeout", "10m")
        sleeping = [
            job(f"live-{number}", 1, work="import time; time.sleep(600)") for number in range(10)
        ]
        at.run("apply", "-f", at.write("live.yaml", "---\n".join(sleeping)))
        time.sleep(5)
        pid = at.pid()
        before_s = process_cpu_s(pid)
        time.sleep(IDLE_S)
        share = (process_cpu_s(pid) - before_s) / IDLE_S * 100
        at.run("delete", *[f"job/live-{number}" for number in range(10)])
    text = f"{share:.2f} % of a core"
    return [Figure("idle controller, 1,000 finished and 10 running", text, "1 %", share <= 1.0)]


def machine() -> str:
    """One line for the README."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    python = platform.python_version()
    kernel = os.uname().release.split("-")[0]
    return f"{os.cpu_count()} cores ({model}), Linux {kernel}, Python {python}"
