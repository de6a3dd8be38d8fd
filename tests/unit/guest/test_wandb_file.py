"""Reading what wandb writes of a run, while it grows and when it is broken."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.guest.wandb.file import BLOCK_BYTES, WandbFile
from tests.unit.guest.wandb_writer import (
    MAGIC,
    blocks,
    chunk,
    field,
    header,
    history,
    summary,
)


def rows(data: bytes) -> tuple[list[dict[str, float]], WandbFile]:
    file = WandbFile()
    return [values for _, _, values in file.take(data)], file


def test_a_row_has_its_step_its_time_and_its_numbers() -> None:
    record = history({"loss": 0.25, "_step": 3, "_timestamp": 1e9, "_runtime": 2, "epoch": 1})
    assert WandbFile().take(blocks([record])) == [(3, 1e9, {"loss": 0.25, "epoch": 1.0})]


def test_a_step_may_stand_beside_the_items() -> None:
    assert WandbFile().take(blocks([history({"x": 1}, step=300)])) == [(300, None, {"x": 1.0})]


@pytest.mark.parametrize(
    ("number", "step"), [(1 << 62, 1 << 62), ((1 << 64) - 3, -3), (1 << 90, None)]
)
def test_a_step_is_a_whole_number_of_64_bits(number: int, step: int | None) -> None:
    record = history({"x": 1}, step=number)
    rows = WandbFile().take(blocks([record]))
    assert rows == ([] if step is None else [(step, None, {"x": 1.0})])


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), "text", None, 10**400, -1e300])
def test_odd_times_and_steps_of_wandbs_own_are_passed_over(odd: object) -> None:
    record = history({"_timestamp": odd, "_step": odd, "_runtime": odd, "x": 1})
    [(step, at_s, values)] = WandbFile().take(blocks([record]))
    assert (step, values) == (None, {"x": 1.0})
    assert at_s in (None, -1e300)


def test_nested_names_are_joined_by_points_in_either_form() -> None:
    as_parts = history({("a", "b", "c"): 1.5, ("val/loss",): 2})
    as_value = history({"a": {"b": {"c": 1.5}}, "val/loss": 2})
    for record in (as_parts, as_value):
        assert rows(blocks([record]))[0] == [{"a.b.c": 1.5, "val/loss": 2.0}]


def test_what_is_no_number_is_left_out_and_the_first_that_is_not_finite_is_named() -> None:
    record = history(
        {
            "loss": float("nan"),
            "up": float("inf"),
            "down": float("-inf"),
            "huge": 10**400,
            "on": True,
            "text": "1.5",
            "list": [1, 2],
            "none": None,
            "good": -1e-320,
        },
        step=4,
    )
    found, file = rows(blocks([record]))
    assert {name: str(it) for name, it in found[0].items()} == {
        "loss": "nan",
        "up": "inf",
        "down": "-inf",
        "huge": "inf",
        "good": "-1e-320",
    }
    assert file.not_finite == "`loss` at step 4"


def test_numbers_of_pictures_and_tables_are_no_metrics() -> None:
    records = [
        history({"h": {"_type": "histogram", "bins": 3}, "x": 1}),
        history({("h", "_type"): "image-file", ("h", "width"): 640, ("x",): 2, ("hx",): 3}),
    ]
    assert rows(blocks(records))[0] == [{"x": 1.0}, {"x": 2.0, "hx": 3.0}]


def test_a_record_in_many_pieces_and_the_tail_of_a_block_are_read() -> None:
    long = {f"metric/{number}": number for number in range(6000)}
    data = blocks([header("0.31.0"), history(long), history({"x": 1})])
    assert len(data) > 3 * BLOCK_BYTES
    found, file = rows(data)
    assert [len(it) for it in found] == [6000, 1]
    assert (file.version, file.offset, file.damaged) == ("0.31.0", len(data), 0)


@pytest.mark.parametrize("left", range(8))
def test_each_end_of_a_block_is_passed(left: int) -> None:
    """So many bytes are left after the first record."""
    first = field(4, b"x" * (BLOCK_BYTES - 7 - 7 - left - 4))
    assert len(blocks([first])) == BLOCK_BYTES - left
    assert rows(blocks([first, history({"x": 1})]))[0] == [{"x": 1.0}]


def test_the_summary_holds_what_was_set_last() -> None:
    _, file = rows(
        blocks(
            [
                summary({"best": 0.5, "name": "a", "gone": 1, "_runtime": 3}),
                summary({"best": 0.25, "deep": {"min": 1, "on": True}}, remove=("gone",)),
                summary({("a", "b"): 7, "nan": float("nan"), ("_wandb", "runtime"): 1}),
                summary({("h", "_type"): "histogram", ("h", "n"): 4, "list": [1]}),
            ]
        )
    )
    assert file.summary() == {"best": 0.25, "name": "a", "deep.min": 1, "deep.on": True, "a.b": 7}


def test_a_file_that_grows_gives_each_row_once() -> None:
    data = blocks([header("0.22.3"), *(history({"x": it}, step=it) for it in range(2000))])
    for size in (1, 7, 33, 4096, 40_000):
        file, found, end = WandbFile(), [], 0
        while end < len(data):
            end = min(len(data), end + size)
            found += file.take(data[file.offset : end])
        assert [step for step, _, _ in found] == list(range(2000))


def test_a_broken_block_costs_its_own_rows_alone() -> None:
    records = [history({"x": it}, step=it) for it in range(4000)]
    data = bytearray(blocks(records))
    data[BLOCK_BYTES + 100] ^= 1
    file = WandbFile()
    found = [step for step, _, _ in file.take(bytes(data))]
    assert file.damaged == 1
    lost = set(range(4000)) - set(filter(None, [*found, 0]))
    assert found == sorted(found) and 0 < len(lost) < 4000 // 2
    assert found[0] == 0 and found[-1] == 3999


def test_a_torn_end_waits_for_the_rest() -> None:
    data = blocks([history({"x": 1}, step=1), history({"x": 2}, step=2)])
    file = WandbFile()
    assert [step for step, _, _ in file.take(data[:-3])] == [1]
    assert [step for step, _, _ in file.take(data[file.offset :])] == [2]


def test_another_file_gives_nothing() -> None:
    file = WandbFile()
    assert file.take(b"PK\3\4" + bytes(100)) == []
    assert file.foreign


def test_a_record_of_another_form_is_passed_over() -> None:
    odd = chunk(1, b"\x12\xff\xff\xff\xff\x0f")  # longer than what it is in
    file = WandbFile()
    assert file.take(MAGIC + odd + chunk(1, history({"x": 1}))) == [(None, None, {"x": 1.0})]
    assert file.damaged == 1


@settings(max_examples=200)
@given(st.binary(max_size=300), st.integers(0, 2000), st.integers(0, 255))
def test_no_content_makes_it_fail(noise: bytes, at: int, value: int) -> None:
    data = bytearray(blocks([history({"x": it, "é": {"b": 1}}) for it in range(20)]))
    data[at % len(data)] = value
    for text in (MAGIC + noise, MAGIC + chunk(1, noise), bytes(data), bytes(data) + noise):
        file = WandbFile()
        file.take(text)
        file.summary()
        assert file.offset <= len(text)
