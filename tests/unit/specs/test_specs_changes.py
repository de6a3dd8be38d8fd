"""What differs between two documents, told by path, and never more than that."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.specs.values.changes import UNSET, FieldChange, field_changes, value_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"parallelism": 8}, {"parallelism": 16}, ["parallelism 8 -> 16"]),
        ({}, {"suspend": True}, ["suspend unset -> true"]),
        ({"a": {"b": 1}}, {"a": {}}, ["a.b 1 -> unset"]),
        ({"a": [1, {"x": 2}]}, {"a": [1, {"x": 3}]}, ["a[1].x 2 -> 3"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a [1] -> [1, 2]"]),
        ({"env": {"my key": 1}}, {"env": {"my key": 2}}, ['env["my key"] 1 -> 2']),
        ({"t": 60.0}, {"t": 90.5}, ["t 60 -> 90.5"]),
        ({"code": "x" * 99}, {"code": "y"}, ["code"]),
        ({"x": list(range(99))}, {"x": [1]}, ["x [99 items] -> [1]"]),
        ({"on": 1}, {"on": True}, ["on 1 -> true"]),
    ],
)
def test_a_change_is_told_by_its_path(before: Any, after: Any, said: list[str]) -> None:
    assert [change.short for change in field_changes(before, after)] == said


@given(JSON, JSON)
def test_equal_documents_have_no_changes_and_others_have_some(before: Any, after: Any) -> None:
    assert field_changes(before, deepcopy(before)) == []
    if before != after:
        assert field_changes(before, after)


@given(JSON, JSON)
def test_forth_and_back_are_the_same_fields(before: Any, after: Any) -> None:
    forth = {it.path: (it.before, it.after) for it in field_changes(before, after)}
    back = {it.path: (it.after, it.before) for it in field_changes(after, before)}
    assert forth == back


def test_a_field_that_is_null_is_not_one_that_is_missing() -> None:
    assert field_changes({"a": None}, {}) == [FieldChange("a", None, UNSET)]
    assert (value_text(None), value_text(UNSET)) == ("null", "unset")
