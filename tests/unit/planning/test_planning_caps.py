"""What a plan says of an apply and a budget: whether it fits, and what happens if it does not."""

from __future__ import annotations

import pytest

from fleetctl.apply.cost.estimate import BudgetCap


def cap(expected_usd: float | None, high_usd: float | None, then: str = "Suspend") -> BudgetCap:
    return BudgetCap("its budget", 20.0, 8.0, expected_usd, high_usd, then)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (cap(None, 12.0), "this apply fits (at most $12.00)"),
        (cap(None, 16.0), "at most $16.00 against $12.00 left: it may stop at the cap"),
        (cap(9.5, 16.0),
         "probably $9.50, at most $16.00 against $12.00 left: it may stop at the cap"),
        (cap(14.0, 16.0), "about $14.00 against $12.00 left: it will probably stop at the cap"),
        (cap(None, None), "nothing bounds this apply, $12.00 left: it may stop at the cap"),
        (cap(None, 16.0, "Cancel"), "at most $16.00 against $12.00 left: it may fail at the cap"),
        (cap(None, 16.0, "Warn"),
         "at most $16.00 against $12.00 left: it may go beyond the cap, with a warning"),
    ],
)  # fmt: skip
def test_the_worst_case_is_told_against_what_is_left(found: BudgetCap, said: str) -> None:
    assert found.sentence == f"its budget: $8.00 of $20.00 used, {said}"
