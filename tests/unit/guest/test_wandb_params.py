"""The parameters' file of a trial, as wandb reads it: by PyYAML, so by YAML 1.1."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.guest.wandb.trial import parameter_file

FLOATS = [float(f"1e{exponent}") for exponent in range(-320, 301)]


def read_back(params: dict[str, Any]) -> dict[str, Any]:
    whole = yaml.safe_load(parameter_file(params))
    assert whole.pop("wandb_version") == 1
    assert all(set(it) == {"value"} for it in whole.values())
    return {name: it["value"] for name, it in whole.items()}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("factor", [1.0, 1.5, 2.225])
def test_each_float_arrives_as_the_same_float(sign: int, factor: float) -> None:
    values = [sign * factor * it for it in FLOATS]
    found = read_back({"x": values})["x"]
    assert [type(it) for it in found] == [float] * len(values)
    assert found == values


def test_zeros_keep_their_sign_and_odd_numbers_their_kind() -> None:
    found = read_back({"x": [0.0, -0.0, math.inf, -math.inf, math.nan]})["x"]
    assert [math.copysign(1, it) for it in found[:2]] == [1, -1]
    assert found[2:4] == [math.inf, -math.inf]
    assert math.isnan(found[4])


@pytest.mark.parametrize(
    "text",
    [
        *("1e5", "3e-05", "on", "off", "yes", "No", "y", "null", "~", "", " ", "true", "0x1F"),
        *("0o17", "010", "1_000", "1:30", "2020-01-01", ".inf", ".nan", "-", "?", "a: b", "#c"),
        *("- a", "!!int 3", "&a", "*a", "<<", "=", '"', "'", "\\", "\n", "\t", "\r\n", "\0"),
        *("\x7f", "\x85", "\xa0", "\u2028", "\ufeff", "é", "日本", "\U0001f600", "{{x}}"),
    ],
)
def test_a_text_stays_a_text(text: str) -> None:
    assert read_back({"x": text, "y": {text: [text]}}) == {"x": text, "y": {text: [text]}}


def test_whole_numbers_and_truth_values_keep_their_kind() -> None:
    params = {"a": 1, "b": -(10**30), "c": True, "d": False, "e": None, "f": 0}
    found = read_back(params)
    assert found == params
    assert [type(it) for it in found.values()] == [type(it) for it in params.values()]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(JSON)
def test_whatever_a_search_may_hold_arrives_as_it_is(value: Any) -> None:
    found = read_back({"x": value})["x"]
    assert found == value
    assert type(found) is type(value)
