"""Bodies and replies of an API server as JSON: all that the standard library reads is read."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetctl.kubernetes.connection import format_document, parse_json

TEXTS = st.text(st.characters(), max_size=20)  # with halves of characters
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
@example({"message": "\ud800 is half a character"})
@example({"amount": 1e300, "small": 5e-324, "whole": 2.0, "many": 10**30})
@example([{"op": "add", "path": "/a~1b", "value": None}])
def test_a_body_is_read_back_as_it_was(value: object) -> None:
    for text in (format_document(value), json.dumps(value).encode()):
        found = parse_json(text)
        assert found == value
        assert json.dumps(found) == json.dumps(value)  # 1 and 1.0 are equal, and two texts


def test_a_deep_reply_and_keys_that_are_given_twice_are_read_as_before() -> None:
    deep = b"[" * 500 + b"]" * 500
    assert parse_json(deep) == json.loads(deep)
    assert parse_json(b'{"a": 1, "a": 2}') == {"a": 2}


def test_a_reply_that_is_no_json_is_an_error() -> None:
    for text in (b"<html>", b"{", b'{"a": 1} x', b""):
        with pytest.raises(ValueError, match=r"Expecting|Extra|expecting"):
            parse_json(text)
