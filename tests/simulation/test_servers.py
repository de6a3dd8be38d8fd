"""Servers of an endpoint before prompts that none can answer, and the bugs that this must find."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from fleetctl.gateway.rules.servers import FAILURES_IN_A_ROW, UpstreamServer
from tests.simulation.planted.plant import swapped
from tests.simulation.servers import live

SEEDS = 100

Plant = AbstractContextManager[object]


def test_nobodys_prompts_take_a_server_from_the_others() -> None:
    assert [(seed, found[:1]) for seed in range(SEEDS) if (found := live(seed))] == []


def a_server_rests_for_one_callers_prompts() -> Plant:
    """Failures in a row prove it, whoever asked."""
    return swapped(
        UpstreamServer, "at_fault", property(lambda self: self.failures >= FAILURES_IN_A_ROW)
    )


def the_last_server_rests_for_a_prompt() -> Plant:
    """That no other is awake makes no difference."""

    def failed(self: UpstreamServer, now_s: float, *, caller: str, status: int, last: bool) -> None:
        self.failures += 1
        if self.failures >= FAILURES_IN_A_ROW:
            self.rest(now_s)

    return swapped(UpstreamServer, "failed", failed)


def a_rest_never_ends() -> Plant:
    return swapped(UpstreamServer, "record_probe", lambda self, now_s, *, there: self.rest(now_s))


@pytest.mark.parametrize(
    "plant",
    [a_server_rests_for_one_callers_prompts, the_last_server_rests_for_a_prompt, a_rest_never_ends],
)
def test_planted_bugs_are_caught(plant: Callable[[], Plant]) -> None:
    with plant():
        assert any(live(seed) for seed in range(SEEDS))
