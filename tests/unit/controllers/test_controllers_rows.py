"""Which index each row of a changed spec has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.reuse.row_matching import (
    RowHolder,
    RowIndexes,
    assign_indexes,
    make_holder,
)


def run(state: RunState, params_hash: str = "a", **fields: Any) -> Run:
    return Run(
        "run", "u", 0, 1, state, "local", "run", "t", "{}", params_hash, 1.0, content="c", **fields
    )


def held(*rows: str, **states: RunState) -> list[RowHolder]:
    """Indexes from 0 on; states: by `i` and the index, of those that have not succeeded."""
    found = []
    for index, row in enumerate(rows):
        attempt = run(states.get(f"i{index}", RunState.SUCCEEDED), row)
        found.append(make_holder(index, row, attempt, "c"))
    return found


def indexes(rows: str, before: list[RowHolder]) -> list[int]:
    return assign_indexes(list(enumerate(rows)), before)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("abcd", "abcd", [0, 1, 2, 3]),
        ("abcd", "bcd", [1, 2, 3]),
        ("abc", "xabc", [3, 0, 1, 2]),
        ("abc", "axc", [0, 1, 2]),
        ("abcd", "dcba", [3, 2, 1, 0]),
        ("zaabcd", "aabcd", [1, 2, 3, 4, 5]),
        ("ab", "aab", [0, 2, 1]),
        ("aab", "ba", [2, 0]),
        ("abc", "xyz", [0, 1, 2]),
        ("", "ab", [0, 1]),
    ],
)
def test_a_row_keeps_its_index_and_new_ones_get_their_place_or_what_is_free(
    before: str, after: str, expected: list[int]
) -> None:
    assert indexes(after, held(*before)) == expected


def test_of_equal_rows_what_succeeded_stays_before_what_runs_and_what_failed() -> None:
    states = {"i0": RunState.FAILED, "i1": RunState.RUNNING, "i2": RunState.STOPPING}
    before = held("a", "a", "a", "a", **states)
    assert indexes("a", before) == [3]
    assert indexes("aa", before) == [1, 3]


def test_a_removed_row_that_comes_back_has_its_index_while_nothing_else_does() -> None:
    gone = [RowHolder(0, "", "a", 0), RowHolder(1, "b", "b", 0)]
    assert indexes("ba", gone) == [1, 0]
    assert indexes("bx", gone) == [1, 0]


def test_what_another_row_came_to_says_nothing_of_a_row_that_never_began() -> None:
    before = [RowHolder(0, "b", "a", 0), RowHolder(1, "b", "b", 1)]
    assert indexes("ab", before) == [0, 1]


def test_a_success_that_was_put_aside_is_worth_no_more_than_a_failure() -> None:
    aside = make_holder(0, "a", run(RunState.SUCCEEDED, put_aside=True), "c")
    older = make_holder(1, "a", run(RunState.SUCCEEDED), "another")
    assert aside.worth > older.worth > make_holder(2, "a", run(RunState.RUNNING), "c").worth


ROWS = st.text("abcd", max_size=8)


@given(ROWS, ROWS)
def test_each_row_has_an_index_of_its_own_and_as_many_as_can_keep_theirs(
    before: str, after: str
) -> None:
    found = indexes(after, held(*before))
    assert len(set(found)) == len(after)
    kept = sum(at < len(before) and before[at] == row for at, row in zip(found, after, strict=True))
    assert kept == sum(min(before.count(row), after.count(row)) for row in set(after))
    assert max(found, default=0) < max(len(before), len(after), 1)


@given(st.permutations(range(9)), st.integers(0, 9))
def test_indexes_are_read_back_as_they_were_written(order: list[int], length: int) -> None:
    order = order[:length]
    made = RowIndexes.of(order)
    assert list(made) == order
    assert [made.row(index) for index in order] == list(range(length))
    assert made.row(9) is None
    if made.text():
        assert list(RowIndexes.parse(made.text())) == order
    else:
        assert order == list(range(length))
