"""What a bayes search finds in 30 trials, one at a time and with eight running, and what a point
costs; and what a report of a trial costs where trials are ended early.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from fleetctl.controllers.history.curves import Curves
from fleetctl.controllers.model import Metric
from fleetctl.controllers.trials.axes import Trial
from fleetctl.controllers.trials.bayes import suggest
from fleetctl.controllers.trials.early_terminate import early_end
from fleetctl.controllers.trials.points import random_point
from fleetctl.specs.search.config import Search
from fleetctl.specs.search.early_terminate import EarlyTerminate
from tests.bench.harness import Figure

SEEDS, TRIALS = 7, 30
Point = Mapping[str, Any]

_SCALES = [
    [10, 3, 17, 3.5, 1.7, 8],
    [0.05, 10, 17, 0.1, 8, 14],
    [3, 3.5, 1.7, 10, 17, 8],
    [17, 8, 0.05, 10, 0.1, 14],
]
_CENTRES = [
    [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
    [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
    [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.665],
    [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
]


def branin(point: Point) -> float:
    x, y = point["x"], point["y"]
    bowl = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return float(bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.397887)


def hartmann(point: Point) -> float:
    depth = 0.0
    for weight, scales, centre in zip((1, 1.2, 3, 3.2), _SCALES, _CENTRES, strict=True):
        far = sum(
            scale * (point[f"x{at}"] - place) ** 2
            for at, (scale, place) in enumerate(zip(scales, centre, strict=True))
        )
        depth += weight * math.exp(-far)
    return 3.32237 - depth


def mixed(point: Point) -> float:
    kind = {"a": 0.0, "b": 0.3, "c": 0.5, "d": 0.8}[point["kind"]]
    rest = (point["n"] - 7) ** 2 / 50 + (math.log10(point["lr"]) + 3) ** 2 / 2
    return float(kind + rest + (point["share"] - 0.3) ** 2)


# Value of the library of W&B, one at a time and with 8 running; mixed is another function there.
Case = tuple[Callable[[Point], float], dict[str, Any], tuple[float, float] | None]
_PLANE = {"x": {"min": -5.0, "max": 10.0}, "y": {"min": 0.0, "max": 15.0}}
_MIXED = {
    "kind": {"values": list("abcd")},
    "n": {"min": 1, "max": 20},
    "lr": {"distribution": "log_uniform_values", "min": 1e-5, "max": 1e-1},
    "share": {"min": 0.0, "max": 1.0},
}
FUNCTIONS: dict[str, Case] = {
    "Branin": (branin, _PLANE, (0.016, 0.16)),
    "Hartmann-6": (hartmann, {f"x{at}": {"min": 0.0, "max": 1.0} for at in range(6)}, (0.65, 1.2)),
    "mixed": (mixed, _MIXED, None),
}


def figures() -> list[Figure]:
    made: list[Figure] = []
    for name, (value, parameters, known) in FUNCTIONS.items():
        for at, running in enumerate((1, 8)):
            found = [_searched(value, parameters, seed, running) for seed in range(SEEDS)]
            regret = statistics.median(it for it, _ in found)
            cost_ms = 1000 * statistics.median(cost for _, cost in found)
            what = f"regret of {name} after {TRIALS} trials, {running} running, {SEEDS} seeds"
            goal = f"{known[at]:g}" if known else "none"
            reached = regret <= known[at] if known else None
            made.append(Figure(what, f"{regret:.2g}, {cost_ms:.0f} ms a point", goal, reached))
    return [*made, _many(), _reports()]


def _searched(
    value: Callable[[Point], float], parameters: dict[str, Any], seed: int, running: int
) -> tuple[float, float]:
    """(the least value, CPU seconds a suggestion)."""
    drawn = max(4, min(8, 2 * len(parameters)))
    search = Search(method="random", parameters=parameters)
    over: list[tuple[int, Point]] = []
    live: list[tuple[int, Point]] = []
    spent_s = 0.0
    for index in range(TRIALS):
        if len(live) == running:
            over.append(live.pop(0))
        if index < drawn:
            point: Point | None = random_point(search, seed, index)
        else:
            trials = [Trial(it, value(it)) for _, it in sorted(over, key=lambda it: it[0])]
            trials += [Trial(it, None) for _, it in live]
            begin_s = time.process_time()
            point = suggest(parameters, seed, index, trials)
            spent_s += time.process_time() - begin_s
        assert point is not None
        live.append((index, point))
    return min(value(it) for _, it in [*over, *live]), spent_s / (TRIALS - drawn)


def _many() -> Figure:
    value, parameters, _ = FUNCTIONS["Hartmann-6"]
    search = Search(method="random", parameters=parameters)
    points = [random_point(search, 0, index) for index in range(1000)]
    trials = [Trial(it, value(it)) for it in points]
    begin_s = time.process_time()
    suggest(parameters, 0, 1000, trials)
    took_ms = 1000 * (time.process_time() - begin_s)
    return Figure(
        "a suggestion after 1,000 trials, CPU", f"{took_ms:.0f} ms", "300 ms", took_ms <= 300
    )


def _reports() -> Figure:
    early = EarlyTerminate(type="hyperband", min_iter=3, eta=3)
    curves = Curves("loss", maximize=False, bands=early.bands)
    trials, reports = 1000, 81
    begin_s = time.process_time()
    for seq in range(reports):
        for trial in range(trials):
            run = f"run-{trial}"
            curves.take(trial, run, [Metric(seq, seq, "loss", trial / (seq + 1), 0.0)])
            early_end(curves, run, early)
    took_ms = 1000 * (time.process_time() - begin_s) / (trials * reports)
    what = "a report of one of 1,000 trials, taken in and judged, CPU"
    return Figure(what, f"{took_ms:.4f} ms", "1 ms", took_ms <= 1)
