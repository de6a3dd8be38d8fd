"""What the benchmarks of remote providers share: the figures that each must give, against an
emulator in a process of its own whose every call takes as long as a real one.

A provider's module says how to reach its emulator (`Cloud`); the tasks, the divisions of CPU time
and the goals are the same for all.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.harness import Figure, Home, home, machine_cpu_s, median

ROOT = Path(__file__).parents[2]
CALL_S = 0.05
TASK_S = 1.0
FEW, FEW_AT_ONCE = 100, 10
TINY, TINY_PARALLELISM = 400, 20
IDLE_SANDBOXES, IDLE_S = 20, 30.0
READY_WAIT_S = 30.0
ROUNDS = 3
SLEEPING = f"import time; time.sleep({TASK_S}); SUBMIT(slept={TASK_S})"
# As many warm containers as two cores can hold; a real service has more.
FUNCTION = """apiVersion: fleetctl.dev/v1alpha1
kind: Function
metadata: {{name: warm}}
spec: {{provider: {}, minContainers: 4, maxContainers: 4, scaledownSeconds: 120}}
"""
REUSE = "  sandbox: {reuse: all}\n"
TINY_CODE = "SUBMIT(total=sum(range(1000)))"


@dataclass(frozen=True, slots=True)
class Cloud:
    """provider: its name in manifests. env: what its SDK and its settings need. calls: how often
    each call was made so far. seeds_loop: the module that runs a batch in the seeds' way, called as
    `python -m MODULE TASKS THREADS CODE`. unavoidable: calls that a task's slot waits for, one
    after the other, and nothing can save. goal: how many times the ideal is allowed.
    """

    provider: str
    env: Mapping[str, str]
    calls: Callable[[], Counter[str]]
    live: Callable[[], int]
    seeds_loop: str
    unavoidable: Sequence[str]
    tasks: int = 1000
    parallelism: int = 100
    goal: float = 1.15

    def ideal_s(self, tasks: int, parallelism: int) -> float:
        return tasks / parallelism * (TASK_S + len(self.unavoidable) * CALL_S)

    def ideal_reusing_s(self, tasks: int, parallelism: int) -> float:
        """Each sandbox is made and ended once; each of its tasks waits for one call, its order."""
        once_s = (len(self.unavoidable) - 1) * CALL_S
        return tasks / parallelism * (TASK_S + CALL_S) + once_s


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds and calls of one job, apply to end."""

    wall_s: float
    ours_s: float  # CPU of the controller outside of the SDK
    sdk_s: float
    machine_s: float  # CPU of everything on this machine
    calls: Counter[str]


class Metered(Home):
    """A home whose controller runs in a process that tells its CPU time apart; see meter.py."""

    def __init__(self, base: Home, cloud: Cloud) -> None:
        super().__init__(base.path)
        self.env |= cloud.env
        self.cloud = cloud
        self._file = base.path / "readings.json"
        self._controller: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.bench.meter", str(self._file), "up"]
        with (self.path / "controller.log").open("ab") as log:
            self._controller = subprocess.Popen(
                command, cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until = time.monotonic() + READY_WAIT_S
        while not self.json("status")["ready"]:
            assert time.monotonic() < until, (self.path / "controller.log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        assert self._controller is not None
        self.run("down")
        self._controller.wait()

    def readings(self) -> dict[str, float]:
        assert self._controller is not None
        self._file.unlink(missing_ok=True)
        self._controller.send_signal(signal.SIGUSR1)
        until = time.monotonic() + READY_WAIT_S
        while not self._file.exists():
            assert time.monotonic() < until, "the controller does not answer"
            time.sleep(0.01)
        found: dict[str, float] = json.loads(self._file.read_text())
        return found

    def spend(self, name: str, manifest: str, count: int) -> Spent:
        """Apply, wait for the end, and see that every task gave its result."""
        path = self.write(f"{name}.yaml", manifest)
        before, calls = self.readings(), self.cloud.calls()
        busy_s, begun_s = machine_cpu_s(), time.perf_counter()
        self.run("apply", "-f", path, "--wait", "--timeout", "10m")
        wall_s, busy_s = time.perf_counter() - begun_s, machine_cpu_s() - busy_s
        after = self.readings()
        rows = self.json("results", f"job/{name}")
        assert len(rows) == count and all(row["result"] == rows[0]["result"] for row in rows)
        spent = {key: after[key] - before[key] for key in after}
        sdk_s = spent["sdk_threads"] + spent["sdk_steps"]
        ours_s = spent["process"] - sdk_s
        return Spent(wall_s, ours_s, sdk_s, busy_s, self.cloud.calls() - calls)


@contextmanager
def metered(cloud: Cloud) -> Iterator[Metered]:
    with home() as base:
        made = Metered(base, cloud)
        made.start()
        try:
            made.spend("warm", job(cloud, "warm", 4, 4, TINY_CODE), 4)
            yield made
        finally:
            made.stop()


def job(
    cloud: Cloud, name: str, count: int, parallelism: int, code: str, *, extra: str = ""
) -> str:
    """A BatchJob of `count` Python tasks. extra: further lines of the manifest, as a whole."""
    return f"""apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {{name: {name}}}
spec:
  completions: {count}
  parallelism: {parallelism}
  cache: {{policy: Never}}
  placement: {{provider: {cloud.provider}}}
{extra}  template:
    python: |
      {code}
"""


def seeds_loop_s(cloud: Cloud, tasks: int, threads: int) -> tuple[float, Counter[str]]:
    """Seconds, and calls, of the same tasks at the same parallelism in the seeds' way."""
    before = cloud.calls()
    words = [sys.executable, "-m", cloud.seeds_loop, str(tasks), str(threads), SLEEPING]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **cloud.env}, stdout=subprocess.PIPE, check=True
    )
    return float(done.stdout), cloud.calls() - before


def against_the_seeds_loop(at: Metered) -> list[Figure]:
    """Many one-second tasks, ours (in a sandbox each, and in sandboxes in turn) and the seeds' in
    turns.
    """
    cloud = at.cloud
    many, at_once = cloud.tasks, cloud.parallelism
    ours: list[Spent] = []
    reusing: list[Spent] = []
    seeds: list[tuple[float, Counter[str]]] = []
    for number in range(ROUNDS):
        manifest = job(cloud, f"sleep-{number}", many, at_once, SLEEPING)
        ours.append(at.spend(f"sleep-{number}", manifest, many))
        manifest = job(cloud, f"in-turns-{number}", many, at_once, SLEEPING, extra=REUSE)
        reusing.append(at.spend(f"in-turns-{number}", manifest, many))
        seeds.append(seeds_loop_s(cloud, many, at_once))
    seeds_s = [wall_s for wall_s, _ in seeds]
    return [
        _makespan_figure(cloud, ours, many, at_once),
        _pool_figure(ours, seeds_s),
        _calls_figure(cloud, ours[0].calls, seeds[0][1]),
        *_cpu_figures(cloud, ours),
        _makespan_figure(cloud, reusing, many, at_once, reuse=True),
        _pool_figure(reusing, seeds_s),
        *_cpu_figures(cloud, reusing),
    ]


def with_idle_cores(at: Metered) -> list[Figure]:
    """The same with so few sandboxes that this machine, which runs them all, has cores to spare:
    what is left over the ideal then is the engine's and the provider's own delay.
    """
    ours: list[Spent] = []
    seeds_s: list[float] = []
    for number in range(ROUNDS):
        name = f"few-{number}"
        ours.append(at.spend(name, job(at.cloud, name, FEW, FEW_AT_ONCE, SLEEPING), FEW))
        seeds_s.append(seeds_loop_s(at.cloud, FEW, FEW_AT_ONCE)[0])
    return [_makespan_figure(at.cloud, ours, FEW, FEW_AT_ONCE), _pool_figure(ours, seeds_s)]


def _makespan_figure(
    cloud: Cloud, spent: Sequence[Spent], tasks: int, parallelism: int, *, reuse: bool = False
) -> Figure:
    wall_s, ideal_s = median([one.wall_s for one in spent]), cloud.ideal_s(tasks, parallelism)
    waits = f"{len(cloud.unavoidable)} calls in line: {', '.join(cloud.unavoidable)}"
    if reuse:
        ideal_s = cloud.ideal_reusing_s(tasks, parallelism)
        waits = f"`sandbox.reuse`: 1 of {waits}"
    what = f"{tasks:,} tasks of {TASK_S:.0f} s, `parallelism: {parallelism}`; {waits}"
    return Figure(
        f"{cloud.provider}: {what}",
        f"{wall_s:.1f} s, {wall_s / ideal_s:.2f} x the ideal of {ideal_s:.1f} s",
        f"{cloud.goal} x",
        wall_s <= cloud.goal * ideal_s,
    )


def _pool_figure(ours: Sequence[Spent], seeds_s: list[float]) -> Figure:
    pool_s = median(seeds_s)
    slower = pool_s > median([one.wall_s for one in ours])
    return Figure("the seeds' thread pool beside it", f"{pool_s:.1f} s", "slower", slower)


def _calls_figure(cloud: Cloud, ours: Counter[str], seeds: Counter[str]) -> Figure:
    each, pool = ours.total() / cloud.tasks, seeds.total() / cloud.tasks
    usual = [name for name, count in ours.most_common() if count >= cloud.tasks / 2]
    text = f"{each:.2f} ({', '.join(usual)}) against {pool:.2f}"
    return Figure("calls a task, against the pool's", text, "", None)


def _cpu_figures(cloud: Cloud, spent: Sequence[Spent]) -> list[Figure]:
    ours_ms = median([one.ours_s for one in spent]) / cloud.tasks * 1000
    sdk_ms = median([one.sdk_s for one in spent]) / cloud.tasks * 1000
    return [
        Figure(
            "controller CPU a task outside the SDK", f"{ours_ms:.2f} ms", "2 ms", ours_ms <= 2.0
        ),
        Figure("the SDK's own beside it", f"{sdk_ms:.2f} ms", "", None),
        _machine_figure(cloud, spent),
    ]


def _machine_figure(cloud: Cloud, spent: Sequence[Spent]) -> Figure:
    """A real cloud has CPUs of its own; here its makespan cannot be shorter than this."""
    each_ms = median([one.machine_s for one in spent]) / cloud.tasks * 1000
    cores = len(os.sched_getaffinity(0))
    return Figure(
        f"CPU a task of all that shares these {cores} cores: controller, SDK, emulated service, "
        "and the sandboxes' own processes",
        f"{each_ms:.1f} ms, so {cloud.tasks:,} take {cloud.tasks * each_ms / cores / 1000:.1f} s "
        "at the least",
        "",
        None,
    )


def idle_calls(at: Metered) -> list[Figure]:
    """Calls for sandboxes whose tasks have nothing to say."""
    cloud, name = at.cloud, "idle"
    code = "import time; time.sleep(600)"
    path = at.write(f"{name}.yaml", job(cloud, name, IDLE_SANDBOXES, IDLE_SANDBOXES, code))
    at.run("apply", "-f", path)
    until = time.monotonic() + READY_WAIT_S
    while at.json("get", f"job/{name}")["status"]["active"] < IDLE_SANDBOXES:
        assert time.monotonic() < until, "the sandboxes did not come up"
        time.sleep(0.1)
    time.sleep(5.0)
    before = cloud.calls()
    time.sleep(IDLE_S)
    spent = cloud.calls() - before
    at.run("delete", f"job/{name}")
    assert cloud.live() == 0, "sandboxes were left"
    rate = spent.total() / IDLE_SANDBOXES / (IDLE_S / 10)
    kinds = ", ".join(f"{key} {count}" for key, count in spent.most_common(3)) or "none"
    what = f"idle calls a live sandbox in 10 s ({IDLE_SANDBOXES} sandboxes, {IDLE_S:.0f} s)"
    return [Figure(what, f"{rate:.2f} ({kinds})", "1", rate <= 1.0)]


def warm_tasks(at: Metered, *, functions: bool) -> list[Figure]:
    """Tiny tasks a second: a sandbox each, sandboxes in turn, and warm containers of a function."""
    cloud = at.cloud
    kinds = {"alone": "", "reuse": REUSE}
    if functions:
        at.run("apply", "-f", at.write("function.yaml", FUNCTION.format(cloud.provider)))
        at.spend("warming", _tiny(cloud, "warming", function=True), TINY)
        kinds["function"] = ""
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(ROUNDS):
        for kind, extra in kinds.items():
            name = f"{kind}-{number}"
            manifest = _tiny(cloud, name, extra, function=kind == "function")
            rates[kind].append(TINY / at.spend(name, manifest, TINY).wall_s)
    alone, *others = (median(found) for found in rates.values())
    best = max(others) / alone
    shown = " and ".join(f"{rate:.0f}/s" for rate in others)
    named = "`sandbox.reuse`" + (" and `runtime: function`" if functions else "")
    return [
        Figure(
            f"{cloud.provider}: {TINY:,} tiny tasks, `parallelism: {TINY_PARALLELISM}`: {named} "
            "against a sandbox a task",
            f"{shown} against {alone:.0f}/s: {best:.1f} times",
            "3 times",
            best >= 3.0,
        )
    ]


def _tiny(cloud: Cloud, name: str, extra: str = "", *, function: bool = False) -> str:
    manifest = job(cloud, name, TINY, TINY_PARALLELISM, TINY_CODE, extra=extra)
    return manifest + ("    function: warm\n" if function else "")
