"""What the benchmarks share: a private home, the real command line, and figures beside their goals.

Every figure is of this machine in this minute; ratios between things measured in one run are what
counts.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).with_name("fleetctl")


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the README's table. reached is None where there is no goal."""

    what: str
    measured: str
    goal: str
    reached: bool | None

    def __str__(self) -> str:
        mark = {True: "reached", False: "MISSED", None: ""}[self.reached]
        return f"| {self.what} | {self.measured} | {self.goal} | {mark} |"


class Home:
    """A private state directory and the command line on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Compiled files are written as an installed package has them; some machines turn that off.
        self.env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.env["FLEETCTL_HOME"] = str(path / "home")

    def run(self, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """The command's end; raises when it failed."""
        done = subprocess.run(
            [str(BIN), *args],
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=900,
        )
        if done.returncode:
            raise RuntimeError(f"fleetctl {' '.join(args)}: exit {done.returncode}\n{done.stderr}")
        return done

    def json(self, *args: str) -> Any:
        return json.loads(self.run(*args, "-o", "json").stdout)

    def cpu_s(self, *args: str) -> float:
        """User and system seconds of the whole process."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.run(*args)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def pid(self) -> int:
        pid = self.json("status")["pid"]
        assert isinstance(pid, int), "no controller runs"
        return pid

    def write(self, name: str, text: str) -> str:
        path = self.path / name
        path.write_text(text, encoding="utf-8")
        return str(path)


@contextmanager
def home() -> Iterator[Home]:
    """A fresh home; its controller and files are gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="fleetctl-bench-"))
    made = Home(path)
    try:
        yield made
    finally:
        made.run("down")
        shutil.rmtree(path, ignore_errors=True)


def process_cpu_s(pid: int) -> float:
    """User and system seconds that a living process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cpu_s() -> float:
    """Seconds that the cores of this machine were not idle so far, whoever kept them busy."""
    user, nice, system, _, _, irq, softirq = Path("/proc/stat").read_text().split()[1:8]
    return sum(map(int, (user, nice, system, irq, softirq))) / os.sysconf("SC_CLK_TCK")


def process_rss_mb(pid: int, *, peak: bool = False) -> float:
    """Resident megabytes now, or the most so far."""
    name = "VmHWM" if peak else "VmRSS"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {name} for process {pid}")


def median(values: list[float]) -> float:
    return statistics.median(values)


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    begun_s = time.perf_counter()
    yield
    into.append(time.perf_counter() - begun_s)


def job(
    name: str, count: int, *, parallelism: int = 8, work: str = "SUBMIT(total=sum(range(1000)))"
) -> str:
    """A BatchJob of `count` Python tasks."""
    return f"""apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {{name: {name}}}
spec:
  completions: {count}
  parallelism: {parallelism}
  cache: {{policy: Never}}
  template:
    python: |
      {work}
"""
