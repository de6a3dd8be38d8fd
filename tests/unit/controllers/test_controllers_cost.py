"""What runs cost: by the price at their intent and their duration, over all attempts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.controllers.history.history import History, ReplayedRun, replay_runs
from fleetctl.controllers.history.retry_limits import RetryLimits
from fleetctl.controllers.model import Run, RunState

RUN = Run("r0", "u", 0, 1, RunState.RUNNING, "local", "r0", "t", "{}", "p", 10.0, started_at_s=20.0)


def ended(run: Run, **changes: object) -> Run:
    return replace(run, **({"state": RunState.LOST, "ended_at_s": 50.0} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "usd"),
    [
        ({"usd_per_s": 0.5}, 15.0),
        ({"usd_per_s": 0.0}, 0.0),
        ({"usd_per_s": None}, None),
        ({"usd_per_s": None, "started_at_s": None}, 0.0),  # it never began
        ({"usd_per_s": 0.5, "ended_at_s": 19.0}, 0.0),  # a clock that went back
    ],
)
def test_a_run_costs_its_price_times_its_duration(
    changes: dict[str, object], usd: float | None
) -> None:
    assert ended(RUN, **changes).cost_usd == usd


def test_every_attempt_counts_also_those_of_an_older_wish() -> None:
    history = History(RetryLimits())
    first = replace(RUN, usd_per_s=0.5)
    history.began(first)
    history.ended(ended(first), superseded=True)
    second = replace(first, name="r1", attempt=2, sandbox="r1", usd_per_s=None)
    history.began(second)
    history.ended(ended(second, state=RunState.SUCCEEDED))
    assert (history.spent_usd, history.unpriced) == (15.0, 1)


def test_reading_the_rows_back_gives_the_same_sum() -> None:
    rows = [
        ReplayedRun(ended(replace(RUN, usd_per_s=0.5)), superseded=True),
        ReplayedRun(ended(replace(RUN, name="r1", attempt=2, usd_per_s=2.0))),
        ReplayedRun(ended(replace(RUN, name="r2", index=1, usd_per_s=None)), wanted=False),
    ]
    history = History(RetryLimits())
    replay_runs(history, rows)
    assert (history.spent_usd, history.unpriced) == (75.0, 1)
