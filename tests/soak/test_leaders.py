"""P1, P2 and P4 in a cluster whose operators and API server come and go; `make soak` does more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.leaders import ACTS, lead_through


@pytest.mark.parametrize(
    "seed",
    [1, pytest.param(2, marks=pytest.mark.only_all(reason="a further life of operators"))],
)
def test_leaders_that_come_and_go_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    assert lead_through(tmp_path, kills=len(ACTS), seed=seed) == []
