from __future__ import annotations

import pytest

from fleetctl.manifest.plain_scalars import resolve_scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("Null", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-12", -12),
        ("+12", 12),
        ("007", 7),
        ("0o17", 15),
        ("0x1f", 31),
        ("3e-5", 3e-5),
        ("1E5", 1e5),
        ("1e+5", 1e5),
        (".5", 0.5),
        ("5.", 5.0),
        ("-0.0", -0.0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_plain_scalars_have_the_values_of_the_core_schema(text: str, value: object) -> None:
    assert (resolve_scalar(text), type(resolve_scalar(text))) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "yes",
        "on",
        "off",
        "y",
        "1_000",
        "1:30",
        "2024-01-01",
        "2001-12-14t21:59:43.10-05:00",
        "0b1",
        "0O17",
        "-0x1f",
        "017_",
        "e5",
        "1e",
        ".",
        "+",
        "-",
        "nULL",
        "TRue",
        "1.2.3",
        "0x",
        "١٢",
        "1e5x",
        "--1",
        "infinity",
        "nan",
        "NaN",
    ],
)
def test_everything_else_is_a_text(text: str) -> None:
    assert resolve_scalar(text) == text


@pytest.mark.parametrize(
    "text",
    [
        ".nan",
        ".inf",
        "-.INF",
        "1e999",
        "9223372036854775808",
        "9" * 5000,
        "0x" + "f" * 5000,
        "-9223372036854775809",
        "0" * 5000 + "9" * 30,
    ],
)
def test_numbers_that_cannot_be_kept_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quote it if a text is meant"):
        resolve_scalar(text)
