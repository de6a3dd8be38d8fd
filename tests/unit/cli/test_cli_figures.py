"""The figures of `describe`: cost with what runs now, where it ran, and when it will be over."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from fleetctl.cli.show.work_lines import (
    attempts_line,
    cost_line,
    eta_s,
    nodes_line,
    timing_line,
    usage_line,
    where_line,
)
from fleetctl.stores.read.rows import LiveRunPrices, ResourceRow
from fleetctl.views.objects import View, build_view

NOTHING_LIVE = LiveRunPrices(0, 0.0, 0.0, 0)


class Took:
    """A reading that knows how long tasks took, and nothing else."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = seconds

    def durations(self, _: View) -> list[float]:
        return list(self._seconds)


def job(**status: object) -> View:
    row = ResourceRow("u", "BatchJob", "x", 1, 1, 100.0, None, {}, {}, json.dumps(status))
    return build_view(row, lambda: "{}")


@pytest.mark.parametrize(
    ("status", "live", "line"),
    [
        ({}, NOTHING_LIVE, ""),
        ({"cost": {"actual": 4.0, "unpricedRuns": 0}}, LiveRunPrices(2, 0.02, 5.1, 0),
         "$4.02 so far, burn $5.10/h"),
        ({"phase": "Succeeded", "cost": {"actual": 4.0}}, NOTHING_LIVE, "$4.00 so far"),
        ({"phase": "Succeeded", "observedGeneration": 1, "cost": {"actual": 4.0}}, NOTHING_LIVE,
         "$4.00 spent"),
        ({"cost": {"actual": 1.0, "reserved": 2.0}, "budget": {"maxCost": 25.0, "left": 22.0}},
         NOTHING_LIVE, "$1.00 so far, $25.00 cap, $22.00 left, $2.00 set aside for what runs"),
        ({"cost": {"actual": 4.0, "estimated": 6.1, "estimatedHigh": 8.9}},
         LiveRunPrices(2, 0.02, 5.1, 0), "$4.02 so far, $6.10 estimated, burn $5.10/h"),
        ({"cost": {"actual": 0.0, "estimatedHigh": 16.0}}, NOTHING_LIVE,
         "at most $16.00 estimated"),
        ({"cost": {"actual": 1.0, "unpricedRuns": 1}}, LiveRunPrices(1, 0.0, 0.0, 1),
         "$1.00 so far and 2 runs without a known price"),
        ({"cost": {"actual": 0.0, "unpricedRuns": 1, "reserved": None}}, NOTHING_LIVE,
         "1 run without a known price"),
    ],
)  # fmt: skip
def test_the_cost_is_of_what_ended_and_of_what_runs(
    status: dict[str, object], live: LiveRunPrices, line: str
) -> None:
    assert cost_line(job(**status), live) == line


@pytest.mark.parametrize(
    ("status", "line"),
    [
        ({"placement": [{"provider": "modal", "total": 5}]}, ""),
        ({"retries": 4, "failed": 2, "infraFailures": 3,
          "placement": [{"provider": "modal", "total": 60}, {"provider": "local", "total": 6}]},
         "66: 3 failed, 3 ended by the infrastructure, not counted"),
        ({"retries": 0, "failed": 1, "placement": [{"provider": "local", "total": 3}]},
         "3: 1 failed"),
        ({"retries": 1, "infraFailures": 1}, "1 ended by the infrastructure, not counted"),
    ],
)  # fmt: skip
def test_attempts_tell_failures_and_what_does_not_count_as_one(
    status: dict[str, object], line: str
) -> None:
    assert attempts_line(job(**status)) == line


def test_where_follows_the_placement_and_then_what_it_does_not_name() -> None:
    seen = job(
        where={"modal": 36, "local": 8, "old": 1},
        placement=[
            {"provider": "daytona", "live": 0, "total": 5},
            {"provider": "modal", "live": 36, "total": 120},
            {"provider": "local", "live": 8, "total": 8},
            {"provider": "spare", "live": 0, "total": 0},
        ],
    )
    assert where_line(seen) == (
        "daytona 0 active of 5 runs, modal 36 active of 120 runs, local 8 active, old 1 active"
    )


def test_timing_tells_the_wait_the_first_result_the_middle_and_the_end() -> None:
    seen = job(startTime=102.0, firstResultTime=166.0, total=100, succeeded=40, active=10)
    assert timing_line(seen, Took(10.0, 30.0, 20.0), 300.0) == (
        "queued 2.0s, first result 1m04s, p50 task 20s, ETA 1m50s"
    )


@pytest.mark.parametrize(
    ("status", "took", "line"),
    [
        ({}, (), ""),
        ({"startTime": 100.5, "active": 1, "total": 9}, (), "begun 60s ago"),
        ({"startTime": 100.5, "succeeded": 2, "active": 1, "total": 9}, (1.0, 2.0),
         "begun 60s ago"),
        ({"startTime": 100.5, "succeeded": 3, "phase": "Succeeded", "observedGeneration": 1,
          "total": 3}, (1.0, 2.0, 3.0), "p50 task 2.0s"),
    ],
)  # fmt: skip
def test_timing_leaves_out_what_nobody_knows(
    status: dict[str, object], took: Sequence[float], line: str
) -> None:
    assert timing_line(job(**status), Took(*took), 160.5) == line


def test_there_is_no_end_in_sight_while_nothing_runs_or_the_total_is_unknown() -> None:
    assert eta_s(job(total=10, succeeded=5, active=0), [1.0]) is None
    assert eta_s(job(total=None, succeeded=5, active=2), [1.0]) is None
    assert eta_s(job(total=10, succeeded=4, failed=0, active=2), [10.0]) == 25.0


def test_gpus_are_told_by_use_memory_and_speed() -> None:
    sample = {"gpus": 8, "gpuPercent": 93, "memoryMib": 499_814, "memoryTotalMib": 655_360}
    assert usage_line(sample) == "8, 93 % busy, 488.1 of 640.0 GiB"
    assert usage_line({**sample, "stepsPerSecond": 2.1234}).endswith("GiB, 2.12 steps/s")


def test_the_nodes_of_an_attempt_are_counted_and_the_one_that_failed_is_named() -> None:
    stopped = {"state": "Stopped", "reason": "NodeEnded"}
    failed = {"state": "Failed", "reason": "Signal:KILL"}
    line = nodes_line([stopped, failed, stopped])
    assert line == "3: 2 Stopped, 1 Failed; node 1: Signal:KILL"
    assert nodes_line([{"state": "Running"}] * 2) == "2: 2 Running"
