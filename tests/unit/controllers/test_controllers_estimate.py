"""An estimate, as an apply notes it on an object and as its status shows it."""

from __future__ import annotations

import pytest

from fleetctl.controllers.budget import CostEstimate, estimate_of


@pytest.mark.parametrize(
    "estimate",
    [CostEstimate(6.1, 4.8, 8.9), CostEstimate(None, 0.0, 16.0), CostEstimate(2.0, 1.0, None)],
)
def test_a_note_is_read_back_as_it_was_written(estimate: CostEstimate) -> None:
    assert estimate_of(estimate.note) == estimate


@pytest.mark.parametrize(
    "note",
    ["", "much", "[]", "{}", '{"usd": "6"}', '{"usd": NaN}', '{"usd": -1}', '{"high": Infinity}'],
)
def test_what_somebody_else_wrote_there_says_nothing(note: str) -> None:
    assert estimate_of(note) is None


def test_a_status_has_only_what_is_known() -> None:
    assert CostEstimate(None, 0.0, 16.0).status() == {"estimatedHigh": 16.0}
    known = {"estimated": 2.0, "estimatedLow": 1.0}
    assert CostEstimate(2.0, 1.0, None).status() == known
