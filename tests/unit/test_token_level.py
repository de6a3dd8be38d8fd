"""The level of a token bucket, on a clock that the test holds."""

from __future__ import annotations

import math

from fleetctl.common.token_level import TokenLevel


def test_a_burst_passes_at_once_and_then_the_rate() -> None:
    level = TokenLevel(2.0, 3.0)
    assert [level.take(100.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert level.take(100.4) > 0.0
    assert (level.take(100.5), level.take(100.5)) == (0.0, 0.5)
    assert level.left(1000.0) == 3.0


def test_who_lines_up_waits_for_those_before_and_may_leave_the_line() -> None:
    level = TokenLevel(1.0, 1.0)
    assert [level.line_up(0.0) for _ in range(3)] == [0.0, 1.0, 2.0]
    level.give_back()
    assert level.line_up(0.0) == 2.0


def test_a_clock_that_is_set_back_holds_up_no_call() -> None:
    level = TokenLevel(1.0, 2.0)
    assert (level.take(10_000.0), level.take(10_000.0)) == (0.0, 0.0)
    assert math.isclose(level.take(0.0), 1.0)
    assert level.take(1.0) == 0.0
