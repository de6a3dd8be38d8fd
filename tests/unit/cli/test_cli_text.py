"""Text for people: nothing that users wrote drives a terminal; spans read as people say them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.common.text import (
    cell_width,
    escape_line,
    escape_lines,
    format_age,
    format_assignments,
    format_duration,
    format_money,
    format_timestamp,
    pad_cells,
    shorten_text,
)

HOSTILE = {
    "\x1b[31mred": "\\x1b[31mred",
    "a\rb": "a\\rb",
    "a\nb": "a\\nb",
    "\x9b31m": "\\x9b31m",
    "\x7f": "\\x7f",
    "a\u202eb": "a\\u202eb",
    "\u2066x\u2069": "\\u2066x\\u2069",
    "zero\u200bwidth": "zero\\u200bwidth",
    "line\u2028sep": "line\\u2028sep",
    "\ud800": "\\ud800",
    "\U000e0041": "\\U000e0041",
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.items())
def test_what_drives_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert escape_line(text) == shown


@given(st.text(alphabet=st.characters(codec=None)))
def test_no_text_leaves_a_control_behind(text: str) -> None:
    for char in escape_line(text):
        assert unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


@given(st.text(alphabet=st.characters(codec=None)))
def test_lines_are_split_at_line_feeds_alone_and_each_is_safe(text: str) -> None:
    lines = escape_lines(text)
    assert len(lines) == text.rstrip("\n").count("\n") + 1
    assert all(line == escape_line(line) for line in lines)


@pytest.mark.parametrize("text", ["plain", "größer", "数据", "no\u00a0break", "a\u3000b"])
def test_ordinary_text_of_any_language_is_left_alone(text: str) -> None:
    assert escape_line(text) == text


def test_wide_characters_take_two_cells_and_marks_none() -> None:
    assert cell_width("数据") == 4
    assert cell_width("e\u0301") == 1
    assert pad_cells("数据", 6) == "数据  "


@pytest.mark.parametrize(
    ("span_s", "shown"),
    [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"),
     (2 * 86400, "2d"), (3 * 86400 + 4 * 3600, "3d4h"), (40 * 86400, "40d")],
)  # fmt: skip
def test_ages_are_short(span_s: float, shown: str) -> None:
    assert format_age(span_s) == shown


@pytest.mark.parametrize(
    ("span_s", "shown"),
    [(-1, "0.0s"), (0.04, "0.0s"), (9.94, "9.9s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m00s"),
     (182, "3m02s"), (3599.7, "1h00m"), (5400, "1h30m"), (49 * 3600, "2d1h")],
)  # fmt: skip
def test_durations_are_as_exact_as_a_person_cares_for(span_s: float, shown: str) -> None:
    assert format_duration(span_s) == shown


def test_times_are_written_as_kubernetes_writes_them() -> None:
    assert format_timestamp(1_700_000_000.9) == "2023-11-14T22:13:20Z"


def test_parameters_read_as_assignments_with_numbers_in_full() -> None:
    values = {
        "lr": 0.01,
        "batch_size": 64,
        "name": "adam w",
        "flag": True,
        "none": None,
        "list": [1],
    }
    assert (
        format_assignments(values)
        == 'lr=0.01 batch_size=64 name="adam w" flag=true none=null list=[1]'
    )


def test_a_long_text_is_cut_and_says_so() -> None:
    assert shorten_text("abcdef", 4) == "abc…"
    assert shorten_text("abcd", 4) == "abcd"


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0.0, "$0.00"),
        (0.00001, "<$0.0001"),
        (0.0031, "$0.0031"),
        (0.45, "$0.45"),
        (1204.1, "$1,204.10"),
    ],
)
def test_money_has_the_digits_that_matter(amount: float, shown: str) -> None:
    assert format_money(amount) == shown
