"""A repository of 1,000 manifests, kept applied by a real controller."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.harness import BIN, Figure, Home, home, timed

MANIFESTS = 1_000
IDLE_S = 120.0
SETTLED_S = 15.0  # what an apply leads to is over
INTERVAL_S = 60


def figures() -> list[Figure]:
    with home() as at:
        tree = at.path / "tree"
        (tree / "jobs").mkdir(parents=True)
        for number in range(MANIFESTS):
            (tree / "jobs" / f"{number}.yaml").write_text(_manifest(number, 1))
        _git(tree, "init", "-q", "-b", "main")
        _commit(tree)
        whole: list[float] = []
        with _controller(at) as cpu:
            with timed(whole):
                _apply(at, tree, "1h")
                at.run("wait", "source/fleet", "--for", "condition=Ready", "--timeout", "15m")
            first_s, first_cpu_s = whole[-1], cpu.passed()
            time.sleep(SETTLED_S)
            cpu.passed()
            with timed(whole):
                at.run("reconcile", "source/fleet")
            same_s, same_cpu_s = whole[-1], cpu.passed()
            (tree / "jobs" / "0.yaml").write_text(_manifest(0, 2))
            _commit(tree)
            with timed(whole):
                at.run("reconcile", "source/fleet")
            one_s, one_cpu_s = whole[-1], cpu.passed()
            without_s = _idle(cpu)
            _apply(at, tree, f"{INTERVAL_S}s")
            with_s = _idle(cpu)
    share = (with_s - without_s) / IDLE_S * 100
    return [
        _figure("reconciled", first_s, first_cpu_s, 3.0),
        _figure("unchanged", same_s, same_cpu_s, 0.3),
        _figure("one of them changed", one_s, one_cpu_s, None),
        Figure(
            f"the same, idle: what an interval of {INTERVAL_S} s costs beside one of an hour, with"
            " git's CPU",
            f"{share:.2f} % of a core", "0.1 %", share <= 0.1,
        ),
    ]  # fmt: skip


def _apply(at: Home, tree: Path, interval: str) -> None:
    text = (
        "apiVersion: fleetctl.dev/v1alpha1\nkind: Source\nmetadata: {name: fleet}\n"
        f"spec: {{git: {{url: 'file://{tree}', ref: main, interval: {interval}}}}}\n"
    )
    at.run("apply", "-f", at.write("source.yaml", text))


def _idle(cpu: _Cpu) -> float:
    """Seconds of CPU in IDLE_S."""
    time.sleep(SETTLED_S)
    cpu.passed()
    time.sleep(IDLE_S)
    return cpu.passed()


def _figure(what: str, wall_s: float, cpu_s: float, goal_s: float | None) -> Figure:
    """The client's start is in the wall time, and not in the CPU."""
    return Figure(
        f"a Source of 1,000 manifests, {what}: until its verb returns; CPU of controller and git",
        f"{wall_s:.2f} s; {cpu_s:.2f} s",
        "" if goal_s is None else f"{goal_s:g} s",
        None if goal_s is None else wall_s <= goal_s,
    )


class _Cpu:
    """Of the controller and of all processes of it that ended."""

    def __init__(self, pid: int) -> None:
        self._pid, self._seen_s = pid, 0.0

    def passed(self) -> float:
        """Seconds since the last question."""
        stat = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        now_s = sum(int(it) for it in stat[11:15]) / os.sysconf("SC_CLK_TCK")
        passed_s, self._seen_s = now_s - self._seen_s, now_s
        return passed_s


@contextmanager
def _controller(at: Home) -> Iterator[_Cpu]:
    argv = [str(BIN), "up"]
    child = subprocess.Popen(argv, env=at.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while at.json("status").get("pid") != child.pid:
            time.sleep(0.1)
        cpu = _Cpu(child.pid)
        cpu.passed()
        yield cpu
    finally:
        at.run("down")
        child.wait(60)


def _manifest(number: int, completions: int) -> str:
    return (
        "apiVersion: fleetctl.dev/v1alpha1\nkind: BatchJob\n"
        f"metadata: {{name: job-{number}, labels: {{team: rlm}}}}\n"
        f"spec:\n  suspend: true\n  completions: {completions}\n"
        "  template:\n    python: SUBMIT(n=1)\n    resources: {cpu: 1}\n"
    )


def _commit(tree: Path) -> None:
    _git(tree, "add", "-A")
    _git(tree, "commit", "-q", "-m", "change")


def _git(tree: Path, *words: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(tree), *who, *words], check=True)
