"""Hyperband as W&B has it: one bracket of asynchronous successive halving. Pure.

A trial that has passed a band is compared with all trials that passed it, however they ended, and
stops when it is worse than the best one in `eta` such trials. It may be judged again by the same
value when others arrive at its band. tests/unit/controllers/test_controllers_hyperband.py holds
this to the decisions of `sweeps` 0.3.0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetctl.controllers.history.curves import MetricCurves
from fleetctl.controllers.planning.kind_controller import StopNow
from fleetctl.controllers.status_keys import EARLY_TERMINATED

if TYPE_CHECKING:
    from fleetctl.specs.search.config import EarlyTerminate


# The two sentences of `judge_early_end`.
_TOLD = re.compile(
    r"(?:best )?value (\S+) (?:of [\d,]+ iterations is \w+ \S+ )?at iteration ([\d,]+)"
)


def judge_early_end(
    curves: MetricCurves,
    run: str,
    early: EarlyTerminate,
) -> StopNow | None:
    """Returns why a live attempt should stop now; None where it may go on. Values that an earlier
    attempt reported do not count against it.
    """
    curve = curves.of(run)
    if curve is None or not curve.at:
        return None
    band = len(curve.at) - 1
    worst = find_threshold(curves.passed(band), early.eta)
    value = curve.at[band] if early.strict else curve.best
    if value <= worst:
        return None
    side = "above" if curves.shown(value) > curves.shown(worst) else "below"
    at, shown, limit = (
        curves.bands[band],
        _format_value(curves, value),
        _format_value(curves, worst),
    )
    if early.strict:
        return StopNow(EARLY_TERMINATED, f"value {shown} at iteration {at:,} is {side} {limit}")
    best = f"best value {shown} of {curve.count:,} iterations"
    return StopNow(EARLY_TERMINATED, f"{best} is {side} {limit} at iteration {at:,}")


def parse_stop(message: str) -> tuple[int, float] | None:
    """Parses (iteration, value) from a sentence that `judge_early_end` wrote, as trials keep it."""
    found = _TOLD.match(message)
    if found:
        return (int(found[2].replace(",", "")), float(found[1]))
    return None


def find_threshold(values: Sequence[float], eta: float) -> float:
    """Returns the value that a trial must not exceed, of the sorted ones at a band."""
    share = 1 / eta  # first, as the library does: eta 49 of 49 values is the best one
    return values[int(share * len(values))]


def list_rungs(curves: MetricCurves, early: EarlyTerminate) -> list[dict[str, object]]:
    """Returns, for users, each band that a trial has passed, and the value now needed to go on from
    it.
    """
    return [
        {
            "iteration": band,
            "trials": len(values),
            "threshold": curves.shown(find_threshold(values, early.eta)),
        }
        for band, values in curves.rungs()
        if values
    ]


def _format_value(curves: MetricCurves, value: float) -> str:
    return f"{curves.shown(value):.6g}"
