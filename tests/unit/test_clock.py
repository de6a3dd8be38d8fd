"""The clock of the engine, the store and the CLI."""

from __future__ import annotations

import time

import pytest

from fleetctl.common.clock import SystemClock


@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0])
def test_a_jump_of_the_wall_clock_moves_no_time_of_a_process(
    monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    clock = SystemClock()
    before_s, wall = clock.now_s(), time.time
    monkeypatch.setattr(time, "time", lambda: wall() + jump_s)
    assert 0.0 <= clock.now_s() - before_s < abs(jump_s) / 2
