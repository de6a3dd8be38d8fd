"""Studies whose pictures are recorded: drawn from a seed, so that they are the same everywhere."""

from __future__ import annotations

import math
from random import Random

from fleetctl.views.plotting.curves import TaskCurve
from fleetctl.views.plotting.trials import PlottedTrial, Study, build_trial

SEED = 3


def support_vectors(count: int = 36) -> Study:
    """Scores that hang on the kernel and on gamma, and on nothing else."""
    random, trials = Random(SEED), list[PlottedTrial]()
    for index in range(count):
        kernel = random.choice(["rbf", "poly", "sigmoid"])
        decades = random.uniform(-5, -1)
        params = {
            "kernel": kernel,
            "C": 10 ** random.uniform(-2, 3),
            "gamma": 10**decades,
            "net": {"dropout": random.uniform(0, 0.5)},
            "batch": 64,
        }
        off = {"rbf": 0.0, "poly": 0.04, "sigmoid": 0.1}[kernel]
        score = 0.98 - 0.04 * (decades + 3) ** 2 - off + random.gauss(0, 0.005)
        trials.append(build_trial(index, float(index), params, None if index == 7 else score))
    evens = frozenset({"net.dropout"})
    return Study("accuracy", "maximize", tuple(trials), frozenset({"C", "gamma"}), evens)


def curves(names: tuple[str, ...]) -> dict[str, TaskCurve]:
    """Losses that fall at different speeds."""
    made = {}
    for at, name in enumerate(names):
        made[name] = TaskCurve()
        made[name].add(
            (s, (2 + at) * math.exp(-s / (10 + 5 * at)) + 0.2, float(s)) for s in range(60)
        )
    return made
