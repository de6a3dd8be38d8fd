"""The cost of keeping outputs: tasks that write 10 KB each, with and without `outputs`, in turn on
provider `local`.
"""

from __future__ import annotations

import time

from tests.bench.harness import Figure, Home, home, job, median

TASKS, BYTES, ROUNDS = 1000, 10_000, 5
WORK = f"open('out.bin', 'wb').write(b'0123456789' * {BYTES // 10})"
KEPT = "    outputs: [out.bin]\n"


def figures() -> list[Figure]:
    ratios: list[float] = []
    kept: list[float] = []
    plain: list[float] = []
    with home() as at:
        at.run("up", "--detach")
        _seconds(at, "warm", "")
        for number in range(ROUNDS):
            # In turn, so that neither is always the one that begins.
            sides = [(plain, f"plain-{number}", ""), (kept, f"kept-{number}", KEPT)]
            for found, name, more in sides if number % 2 else reversed(sides):
                found.append(_seconds(at, name, more))
            ratios.append(kept[-1] / plain[-1])
    message = (
        f"{median(kept):.2f} s against {median(plain):.2f} s: {median(ratios):.2f} times"
        f" (from {min(ratios):.2f} to {max(ratios):.2f})"
    )
    what = f"keeping the outputs of {TASKS:,} tasks of {BYTES // 1000} KB, against not keeping them"
    return [Figure(what, message, "1.15 times", median(ratios) <= 1.15)]


def _seconds(at: Home, name: str, more: str) -> float:
    path = at.write(f"{name}.yaml", job(name, TASKS, work=WORK) + more)
    begun_s = time.perf_counter()
    at.run("apply", "-f", path, "--wait", "--timeout", "15m")
    return time.perf_counter() - begun_s
