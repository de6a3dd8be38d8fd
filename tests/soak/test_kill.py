"""P1, P2 and P4 against a real controller that is killed 20 times, and a training on two nodes
whose controller, nodes and supervisor are; `make soak` does more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inside import show_checkout
from tests.soak.killing import live_through
from tests.soak.training import train_through

KILLS = 20  # in a life


@pytest.mark.parametrize(
    "seed",
    [1, pytest.param(2, marks=pytest.mark.only_all(reason="a further life with kill -9"))],
)
def test_a_controller_that_is_killed_at_any_moment_loses_and_repeats_nothing(
    tmp_path: Path, seed: int
) -> None:
    assert live_through(tmp_path, kills=KILLS, seed=seed) == []


def test_a_training_that_is_killed_at_any_moment_has_the_weights_of_an_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show_checkout(monkeypatch)
    assert train_through(tmp_path, kills=5, seed=3) == []
