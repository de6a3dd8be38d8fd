"""A person's condition over rows: it chooses among them, and reads and does nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.common.errors import UsageError
from fleetctl.stores.read.query import COLUMNS, SUCCEEDED, check_condition, choose_rows


def row(idx: int, **fields: Any) -> tuple[Any, ...]:
    given = {"idx": idx, "state": "Succeeded", "result": f'{{"n": {idx}}}', **fields}
    return tuple(given.get(name) for name in COLUMNS)


ROWS = [row(3), row(0), row(1, state="Failed", result=None), row(2, exit_code=7)]


@pytest.mark.parametrize(
    ("where", "indexes"),
    [
        (SUCCEEDED, [0, 2, 3]),
        ("result ->> 'n' > 1", [2, 3]),
        ("json_extract(result, '$.n') in (0, 3) -- the outer ones", [0, 3]),
        ("exit_code is not null or result is null", [1, 2]),
        ("idx = (select max(idx) from tasks)", [3]),
        ("1 = 0", []),
    ],
)
def test_a_condition_chooses_rows_by_their_indexes(where: str, indexes: list[int]) -> None:
    assert choose_rows(ROWS, where) == indexes


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("stat = 'Succeeded'", "no such column: stat"),
        ("1 = 1) union select 5 --", "syntax error"),
        ("1 = 1); drop table tasks; --", "one statement at a time|syntax error"),
        ("load_extension('x')", "may only read tasks"),
        ("state =", "syntax error"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_columns(where: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        check_condition(where)
    assert caught.value.hint


def test_a_condition_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetctl.stores.read.query.STEPS_MAX", 2_000_000)
    endless = (
        "(with recursive n(x) as (select 1 union all select x + 1 from n) select max(x) from n)"
    )
    with pytest.raises(UsageError, match="takes too long"):
        choose_rows(ROWS, f"{endless} > idx")
