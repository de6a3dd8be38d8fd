"""Of two operators one acts at a time, whatever the network does; and bugs that would break it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.operator import elector
from fleetctl.operator.elector import LeaseKnowledge, LeaseStep, LeaseTimes
from tests.simulation.leases import live
from tests.simulation.planted.plant import around, swapped

SEEDS = range(60)


def test_of_two_operators_one_acts_at_a_time_and_one_always_does_again() -> None:
    for seed in SEEDS:
        assert live(seed).violations() == [], seed


@contextmanager
def a_leader_that_lost_the_network_goes_on() -> Iterator[None]:
    """As the official client's election does: only an answer ends it."""

    def endless(me: str, known: LeaseKnowledge, now_s: float, times: LeaseTimes) -> bool:
        held = known.renewed_at_s is not None and known.record is not None
        return held and known.record.holder == me  # type: ignore[union-attr]

    def unbounded(_self: Any) -> float:
        return 1e9

    with (
        swapped(elector, "is_leader", endless),
        swapped(elector, "is_leader", endless),
        swapped(elector.Elector, "_remaining_s", unbounded),
    ):
        yield


@contextmanager
def a_lease_is_taken_when_it_is_first_seen() -> Iterator[None]:
    """Its age is taken from the other one's clock, which tells nothing here."""

    def hasty(step: Any) -> Any:
        def made(me: str, known: LeaseKnowledge, now_s: float, times: LeaseTimes) -> LeaseStep:
            return step(me, replace(known, since_s=now_s - 1e6), now_s, times)  # type: ignore[no-any-return]

        return made

    with around(elector, "choose_step", hasty):
        yield


@contextmanager
def the_same_answer_counts_as_a_sign_of_life() -> Iterator[None]:
    def always_fresh(known: LeaseKnowledge, record: Any, at_s: float) -> LeaseKnowledge:
        return LeaseKnowledge(record, at_s, known.renewed_at_s)

    with swapped(elector, "update_known", always_fresh):
        yield


@pytest.mark.parametrize(
    "plant",
    [
        a_leader_that_lost_the_network_goes_on,
        a_lease_is_taken_when_it_is_first_seen,
        the_same_answer_counts_as_a_sign_of_life,
    ],
)
def test_a_planted_bug_of_the_lease_is_caught(plant: Any) -> None:
    with plant():
        assert any(live(seed).violations() for seed in SEEDS)


def test_a_server_that_takes_stale_writes_is_caught() -> None:
    """Without the check of the resourceVersion nothing else could hold."""
    assert any(live(seed, checks=False).violations() for seed in SEEDS)
