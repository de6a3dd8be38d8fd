"""Many jobs of one task against one job of as many tasks, all on provider `local`: what an object
costs beside its work, how many supervisors there are, and how long a question waits meanwhile.
"""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

from fleetctl.providers.local import supervisor_locks
from tests.bench.harness import Figure, Home, home, job, median

FEW, MANY = 200, 2000
ROUNDS = 5
ANSWER_S = 0.3
WORK = "SUBMIT(total=sum(range(1000)))"
LOOK_S = 0.1
QUESTIONS = (("status",), ("get", "jobs", "-o", "name"), ("get", "jobs"))


def small_jobs() -> list[Figure]:
    ratios: list[float] = []
    one: list[float] = []
    each: list[float] = []
    for number in range(ROUNDS):
        with home() as at:  # each round as it is for somebody who begins
            at.run("up", "--detach")
            together = at.write("one.yaml", job(f"one-{number}", FEW, work=WORK))
            apart = at.write("each.yaml", _jobs(f"each-{number}", FEW))
            one.append(_seconds(at, together))
            each.append(_seconds(at, apart))
            ratios.append(each[-1] / one[-1])
    message = (
        f"{median(each):.2f} s against {median(one):.2f} s: {median(ratios):.1f} times"
        f" ({FEW / median(each):.0f} jobs/s)"
    )
    what = f"{FEW} jobs of one task against one job of {FEW} tasks"
    return [Figure(what, message, "2 times", median(ratios) <= 2), *_many()]


def _many() -> list[Figure]:
    with home() as at:
        at.run("up", "--detach")
        path = at.write("many.yaml", _jobs("many", MANY))
        watch = _Watch(at)
        spent_s = _seconds(at, path)
        watch.end()
    return [
        Figure(f"{MANY} jobs of one task", f"{spent_s:.0f} s: {MANY / spent_s:.0f}/s", "", None),
        Figure("supervisors alive at most meanwhile", str(watch.supervisors_max), "", None),
        Figure(
            f"`status` and `get jobs` meanwhile, slowest of {len(watch.answers)}",
            f"{max(watch.answers):.2f} s, median {median(watch.answers):.2f} s",
            f"{ANSWER_S} s",
            max(watch.answers) <= ANSWER_S,
        ),
    ]


class _Watch:
    """Asks and counts while the jobs run."""

    def __init__(self, at: Home) -> None:
        self._at = at
        self._over = threading.Event()
        self.answers: list[float] = []
        self.supervisors_max = 0
        self._threads = [threading.Thread(target=one) for one in (self._ask, self._count)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        asked = itertools.cycle(QUESTIONS)
        while not self._over.wait(LOOK_S):
            begun_s = time.perf_counter()
            self._at.run(*next(asked))
            self.answers.append(time.perf_counter() - begun_s)

    def _count(self) -> None:
        supervisors = Path(self._at.env["FLEETCTL_HOME"]) / "local" / "keepers"
        while not self._over.wait(LOOK_S):
            serving = [one.parent for one in supervisors.glob("*/sock")]
            living = sum(not supervisor_locks.lock_is_free(one) for one in serving)
            self.supervisors_max = max(self.supervisors_max, living)


def _seconds(at: Home, path: str) -> float:
    """From `apply` to the end of `apply --wait`, all of it."""
    begun_s = time.perf_counter()
    at.run("apply", "-f", path, "--wait", "--timeout", "15m")
    return time.perf_counter() - begun_s


def _jobs(name: str, count: int) -> str:
    return "---\n".join(job(f"{name}-{number}", 1, work=WORK) for number in range(count))
