"""What comes before the first dollar and after a save: `plan`, and `apply --watch`."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

from tests.bench.harness import BIN, Figure, Home, home, job, median
from tests.unit.planning.repositories import job as review_job
from tests.unit.planning.repositories import repository

TASKS = 1000
CHANGED_FILES = 200
POLICY = """apiVersion: fleetctl.dev/v1alpha1
kind: Policy
metadata: {name: limits}
spec:
  rules:
    - expression: "!has(object.spec.parallelism) || object.spec.parallelism <= 8"
    - expression: cost.known && cost.usd <= 50.0
    - expression: plan.changes.all(c, c.path != 'parallelism')
"""
ROUNDS = 7


def plans() -> list[Figure]:
    """1,000 tasks of a job whose first half is done, on two clouds' prices, without an account."""
    with home() as at:
        at.run("apply", "-f", at.write("half.yaml", job("half", TASKS // 2)), "--wait")
        path = at.write("whole.yaml", job("half", TASKS))
        at.run("plan", "-f", path)
        spent = median([at.cpu_s("plan", "-f", path) for _ in range(ROUNDS)])
        diff = median([_cpu_of_diff(at, path) for _ in range(ROUNDS)])
    return [
        Figure(
            f"`plan` of {TASKS:,} tasks, half of them kept", f"{spent:.2f} s CPU", "1 s", spent <= 1
        ),
        Figure("`diff` of the same", f"{diff:.2f} s CPU", "", None),
    ]


def reviews() -> list[Figure]:
    """A pull request that changes 200 of 200 files, and one that changes 200 of 400, each a job of
    50 tasks; and what a policy of three rules adds.
    """
    figures = []
    with home() as at:
        for among in (CHANGED_FILES, 2 * CHANGED_FILES):
            place = at.path / f"repository{among}"
            old = {f"jobs/{it:03}.yaml": review_job(f"j{it:03}") for it in range(among)}
            new = {
                f"jobs/{it:03}.yaml": review_job(f"j{it:03}", program="2")
                for it in range(CHANGED_FILES)
            }
            repository(place, {**old, "p.yaml": POLICY}, {**old, **new, "p.yaml": POLICY})
            words = ["plan", "-f", str(place / "jobs"), "--diff-from", "v0", "-o", "markdown"]
            for more, what in (([], ""), (["--policy", str(place / "p.yaml")], ", a policy")):
                spent = median([at.cpu_s(*words, *more) for _ in range(ROUNDS)])
                text = f"`plan` of a pull request of {CHANGED_FILES} files of {among}{what}"
                figures.append(Figure(text, f"{spent:.2f} s CPU", "2 s", spent <= 2))
    return figures


def _cpu_of_diff(at: Home, path: str) -> float:
    """`diff` ends with 1 where something differs; the same state again ends with 0."""
    same = at.write("same.yaml", Path(path).read_text().replace(f": {TASKS}", f": {TASKS // 2}"))
    return at.cpu_s("diff", "-f", same)


def watches() -> list[Figure]:
    with home() as at:
        path = Path(at.write("watched.yaml", _suspended(1)))
        words = [str(BIN), "apply", "-f", str(path), "--watch"]
        with subprocess.Popen(
            words, env=at.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as it:
            assert it.stderr is not None
            it.stderr.readline()  # it watches
            spent = sorted(_stored_after_s(at, path, number) for number in range(2, 2 + 3 * ROUNDS))
            it.send_signal(signal.SIGINT)
    middle, worst = spent[len(spent) // 2] * 1000, spent[-1] * 1000
    text = f"{middle:.0f} ms (worst of {len(spent)}: {worst:.0f} ms)"
    return [Figure("`apply --watch`: save to stored", text, "100 ms", middle <= 100)]


def _suspended(parallelism: int) -> str:
    return job("watched", 1, parallelism=parallelism).replace("spec:\n", "spec:\n  suspend: true\n")


def _stored_after_s(at: Home, path: Path, number: int) -> float:
    """Seconds from the end of the write until a reader of the store sees it."""
    database = at.path / "home" / "store" / "state.db"
    with sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True) as reader:
        path.write_text(_suspended(number))
        begun_s = time.perf_counter()
        while time.perf_counter() - begun_s < 10:
            ((spec,),) = reader.execute("SELECT spec FROM specs").fetchall()
            if json.loads(spec).get("parallelism") == number:
                return time.perf_counter() - begun_s
            time.sleep(0.001)
    raise RuntimeError("the save was not stored within 10 s")
