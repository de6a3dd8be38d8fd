"""Providers `ssh` and `slurm` on the real software on loopback: how much of a second's work is
waiting, what an idle host costs, and how few words a scheduler is asked.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.harness import Figure, Home, home, job, median, process_cpu_s, timed
from tests.machines.slurm_cluster import SlurmCluster
from tests.machines.ssh_server import SshServer

ROUNDS = 5
TASKS, SLOTS, TASK_S = 200, 10, 1.0
IDLE_S = 20.0
SMALL, SMALL_S, ALLOCATIONS = 1000, 0.1, 4
ALONE = 40  # with a job each, of which Slurm starts a few a second
ARRAY = 200
PENDING = 500
ASKED_S = 20.0
ASKED = ("REQUEST_JOB_INFO", "REQUEST_SUBMIT_BATCH_JOB", "REQUEST_KILL_JOB", "REQUEST_KILL_JOBS")
DEADLINE = ("--wait", "--timeout", "30m")


def ssh_figures() -> list[Figure]:
    with _server() as server, home() as at:
        host = {**server.host, "directory": str(server.directory / "machine"), "slots": SLOTS}
        _declare(at, {"type": "ssh", "ssh": {"hosts": [host], "config": str(server.config)}})
        _run(at, "warm", 1)
        first: list[float] = []
        for number in range(ROUNDS):
            with timed(first):
                _run(at, f"first-{number}", 1)
        spent: list[float] = []
        with timed(spent):
            _run(at, "many", TASKS, work=f"import time; time.sleep({TASK_S})", parallelism=SLOTS)
        share, connections = _idle(server)
    ideal_s = TASKS * TASK_S / SLOTS
    ratio = spent[0] / ideal_s
    return [
        Figure(
            "ssh: `apply --wait` of one task on a known host",
            f"{median(first):.2f} s",
            "1 s",
            median(first) <= 1,
        ),
        Figure(
            f"ssh: {TASKS} tasks of {TASK_S:g} s on {SLOTS} slots",
            f"{spent[0]:.1f} s: {ratio:.2f} x ideal",
            "1.1 x",
            ratio <= 1.1,
        ),
        Figure(
            "ssh: a host without work, its connections and processes",
            f"{connections} connection, {share:.2f} % of a core",
            "1, 0.1 %",
            connections <= 1 and share <= 0.1,
        ),
    ]


def slurm_figures() -> list[Figure]:
    with _cluster() as cluster, home() as at:
        at.env.update(cluster.env)
        shared = str(cluster.directory / "shared")
        _declare(at, {"type": "slurm", "slurm": {"sharedDir": shared}})
        _run(at, "warm", 1)
        work = f"import time; time.sleep({SMALL_S})"
        together: list[float] = []
        with timed(together):
            _run(at, "small", SMALL, work=work, parallelism=ALLOCATIONS, reuse=SMALL)
        apart: list[float] = []
        with timed(apart):
            _run(at, "alone", ALONE, work=work, parallelism=ALLOCATIONS, reuse=1)
        array_per_s = _array_rate(cluster)
        asked_per_s = _asked_while_pending(at, cluster)
    ratio = (SMALL / together[0]) / (ALONE / apart[0])
    return [
        Figure(
            f"slurm: {SMALL} tasks of {SMALL_S:g} s in {ALLOCATIONS} jobs, against a job each",
            f"{SMALL / together[0]:.0f}/s against {ALONE / apart[0]:.1f}/s: {ratio:.0f} times",
            "20 times",
            ratio >= 20,
        ),
        Figure(
            f"slurm: {ARRAY} tasks of {SMALL_S:g} s as a job array, without fleetctl",
            f"{array_per_s:.0f}/s",
            "",
            None,
        ),
        Figure(
            f"slurm: commands with {PENDING} jobs pending",
            f"{asked_per_s:.1f}/s",
            "2/s",
            asked_per_s <= 2,
        ),
    ]


def _array_rate(cluster: SlurmCluster) -> float:
    """Returns the tasks a second that the scheduler itself starts and ends of an array."""
    begun_s = time.perf_counter()
    words = ("--parsable", "-o", "/dev/null", f"--wrap=sleep {SMALL_S:g}")
    job = cluster.run("sbatch", f"--array=0-{ARRAY - 1}%{ALLOCATIONS}", *words).strip()
    while cluster.run("squeue", "--noheader", "-j", job):
        time.sleep(0.2)
    return ARRAY / (time.perf_counter() - begun_s)


def _asked_while_pending(at: Home, cluster: SlurmCluster) -> float:
    """Returns the scheduler's requests a second, as it counts them."""
    cluster.run("scontrol", "update", "PartitionName=debug", "State=DOWN")
    text = _manifest("pending", PENDING, "SUBMIT(n=1)", PENDING, 1)
    at.run("apply", "-f", at.write("pending.yaml", text))
    while len(cluster.run("squeue", "--noheader", "-o", "%i").split()) < PENDING:
        time.sleep(1.0)
    before, begun_s = _count_requests(cluster), time.perf_counter()
    time.sleep(ASKED_S)
    found = (_count_requests(cluster) - before) / (time.perf_counter() - begun_s)
    at.run("delete", "job/pending", "--timeout", "10m")
    return found


def _count_requests(cluster: SlurmCluster) -> int:
    text = cluster.run("sdiag")
    rows = re.findall(r"^\s*(REQUEST_\w+)\s*\(\s*\d+\) count:(\d+)", text, re.MULTILINE)
    return sum(int(count) for name, count in dict(rows).items() if name.startswith(ASKED))


def _idle(server: SshServer) -> tuple[float, int]:
    """Returns (percent of a core of the host's side, connections to it)."""
    pids = server.below()
    before_s = sum(map(process_cpu_s, pids))
    time.sleep(IDLE_S)
    after_s = sum(process_cpu_s(pid) for pid in pids if os.path.exists(f"/proc/{pid}"))
    rows = [it.split() for it in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    mine = [it for it in rows if it[1].endswith(f":{server.port:04X}") and it[3] == "01"]
    return (after_s - before_s) / IDLE_S * 100, len(mine)


def _declare(at: Home, spec: dict[str, object]) -> None:
    document = {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "Provider",
        "metadata": {"name": "own"},
        "spec": spec,
    }
    at.run("apply", "-f", at.write("provider.json", json.dumps(document)))


def _run(
    at: Home,
    name: str,
    count: int,
    *,
    work: str = "SUBMIT(n=1)",
    parallelism: int = 1,
    reuse: int = 1,
) -> None:
    text = _manifest(name, count, work, parallelism, reuse)
    at.run("apply", "-f", at.write(f"{name}.yaml", text), *DEADLINE)


def _manifest(name: str, count: int, work: str, parallelism: int, reuse: int) -> str:
    more = f"  placement: {{provider: own}}\n  sandbox: {{reuse: {reuse}}}\n"
    return job(name, count, parallelism=parallelism, work=work) + more


@contextmanager
def _server() -> Iterator[SshServer]:
    with tempfile.TemporaryDirectory() as place, SshServer(Path(place, "server")) as one:
        yield one


@contextmanager
def _cluster() -> Iterator[SlurmCluster]:
    with tempfile.TemporaryDirectory() as place, SlurmCluster(Path(place, "cluster")) as one:
        yield one
