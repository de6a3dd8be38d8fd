"""What is over and what others do must not be felt: start, idle and plans beside 10,000 finished
objects, and a question while 2,000 run.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from fleetctl.daemon.client.socket_client import send_request
from tests.bench import manyobjects
from tests.bench.harness import (
    BIN,
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
FINISHED = 10_000
RUNS_EACH = 2
IDLE_S = 60.0  # at least one full scan, one sweep and one poll
RUNNING = 2_000
ASK_EVERY_S = 0.05


def beside_finished() -> list[Figure]:
    with home() as at:
        where = Path(at.env["FLEETCTL_HOME"])
        manyobjects.build(where, FINISHED, runs=RUNS_EACH, local=True)
        path = at.write("fresh.yaml", job("fresh", 10))
        planned: list[float] = []
        listed: list[float] = []
        for _ in range(ROUNDS):
            with timed(planned):
                at.run("plan", "-f", path)
            with timed(listed):
                at.run("get", "jobs")
        ready, share, megabytes = _controller(at)
    beside = f"beside {FINISHED:,} finished objects"
    plan, listing = median(planned), median(listed)
    return [
        Figure(f"controller start {beside}", f"{ready:.2f} s", "1.5 s", ready <= 1.5),
        Figure(f"its memory {beside}", f"{megabytes:.0f} MB", "100 MB", megabytes <= 100),
        Figure(f"its share of a core {beside}", f"{share:.2f} %", "0.5 %", share <= 0.5),
        Figure(f"`plan -f` {beside}", f"{plan:.2f} s", "0.5 s", plan <= 0.5),
        Figure(f"`get jobs` with {FINISHED:,}", f"{listing:.2f} s", "", None),
    ]


def _controller(at: Home) -> tuple[float, float, float]:
    """(seconds to ready, percent of a core while idle, megabytes after that)."""
    spent: list[float] = []
    for number in range(ROUNDS):
        if number:
            at.run("down")
        with timed(spent):
            at.run("up", "--detach")
    pid = at.pid()
    before_s = process_cpu_s(pid)
    time.sleep(IDLE_S)
    share = (process_cpu_s(pid) - before_s) / IDLE_S * 100
    return median(spent), share, process_rss_mb(pid)


def while_many_run() -> list[Figure]:
    """2,000 jobs of one task each: how long their apply takes, and how long a question waits."""
    with home() as at:
        at.run("up", "--detach")
        where = Path(at.env["FLEETCTL_HOME"])
        text = "---\n".join(job(f"many-{number}", 1) for number in range(RUNNING))
        applied: list[float] = []
        asked: list[float] = []
        with timed(applied):
            at.run("apply", "-f", at.write("many.yaml", text))
        words = [str(BIN), "wait", *_keys(), "--for=succeeded", "--timeout", "20m"]
        with subprocess.Popen(words, env=at.env, stdout=subprocess.DEVNULL) as waiting:
            while waiting.poll() is None:
                with timed(asked):
                    send_request(where, {"verb": "ping"})
                time.sleep(ASK_EVERY_S)
        at.run("delete", *_keys())
    worst, middle = max(asked), median(asked)
    return [
        Figure(
            f"`apply` of {RUNNING:,} manifests that run",
            f"{applied[0]:.2f} s",
            "1 s",
            applied[0] <= 1,
        ),
        Figure(
            f"a question while {RUNNING:,} objects run",
            f"{middle * 1000:.0f} ms (worst of {len(asked):,}: {worst:.2f} s)",
            "0.3 s",
            worst <= 0.3,
        ),
    ]


def _keys() -> list[str]:
    return [f"job/many-{number}" for number in range(RUNNING)]
