"""1,000 tiny Python tasks, each its own process with durable accounting, against the seed's loop in
the same run.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.bench.harness import Figure, Home, home, job, median, process_cpu_s, process_rss_mb

COUNT = 1000
WORKERS = 8
ROUNDS = 3
MANY = 100_000
CODE = "result = sum(range(1000)); print(result)"


def the_seeds_loop() -> float:
    """Seconds for ThreadPoolExecutor(8) around subprocess.run, as the first seed has it."""

    def one(_: int) -> str:
        done = subprocess.run(
            [sys.executable, "-c", CODE], capture_output=True, text=True, check=True
        )
        return done.stdout

    begun_s = time.perf_counter()
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        results = list(pool.map(one, range(COUNT)))
    assert len(results) == COUNT
    return time.perf_counter() - begun_s


def ours(at: Home, name: str) -> float:
    """Seconds from `apply` to the end of `apply --wait`, all of it."""
    path = at.write(f"{name}.yaml", job(name, COUNT, parallelism=WORKERS))
    begun_s = time.perf_counter()
    at.run("apply", "-f", path, "--wait")
    spent_s = time.perf_counter() - begun_s
    results = at.json("results", f"job/{name}")
    assert [row["result"] for row in results] == [{"total": 499500}] * COUNT
    return spent_s


def against_the_seeds_loop() -> list[Figure]:
    seeds: list[float] = []
    fleet: list[float] = []
    with home() as at:
        at.run("up", "--detach")
        for number in range(ROUNDS):
            seeds.append(the_seeds_loop())
            fleet.append(ours(at, f"tiny-{number}"))
    ratio = median([a / b for a, b in zip(seeds, fleet, strict=True)])
    text = (
        f"{COUNT / median(fleet):,.0f}/s against {COUNT / median(seeds):,.0f}/s: {ratio:.1f} times"
    )
    return [Figure("1,000 tiny tasks against the seed's loop", text, "10 times", ratio >= 10)]


def cost_of(at: Home, name: str, count: int) -> float:
    """Milliseconds of controller CPU per finished task."""
    pid = at.pid()
    before_s = process_cpu_s(pid)
    at.run("apply", "-f", at.write(f"{name}.yaml", job(name, count)), "--wait", "--timeout", "15m")
    return (process_cpu_s(pid) - before_s) / count * 1000


def many_tasks() -> list[Figure]:
    with home() as at:
        at.run("up", "--detach")
        cost_of(at, "warm", COUNT)
        small = median([cost_of(at, f"small-{number}", COUNT) for number in range(ROUNDS)])
        begun_s = time.perf_counter()
        large = cost_of(at, "large", MANY)
        spent_s = time.perf_counter() - begun_s
        rss = process_rss_mb(at.pid(), peak=True)
        after = median([cost_of(at, f"after-{number}", COUNT) for number in range(ROUNDS)])
    ratio = large / median([small, after])
    cost = (
        f"{large:.2f} ms against {small:.2f} ms a task: {ratio:.2f} times ({MANY / spent_s:,.0f}/s)"
    )
    return [
        Figure(
            "controller CPU a task, 100,000 against 1,000 tasks", cost, "1.2 times", ratio <= 1.2
        ),
        Figure("controller memory at 100,000 tasks", f"{rss:.0f} MB", "250 MB", rss <= 250),
    ]
