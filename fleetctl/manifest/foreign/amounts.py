"""Amounts as SkyPilot and dstack write them: `8+`, `16GB..`, `A100:2`, `24GB..80GB`. Pure."""

from __future__ import annotations

import re
from typing import Any

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?b?)?", re.I)


def least(value: Any) -> str | None:
    """The lower end of `8`, `8+`, `8..16`, `..16`; None where nothing is said."""
    text = str(value).strip().rstrip("+")
    low, _, high = text.partition("..")
    return low or high or None


def is_open(value: Any) -> bool:
    """Whether more than the lower end would do as well."""
    return isinstance(value, str) and (value.rstrip().endswith("+") or ".." in value)


def cores(value: Any) -> float | int | None:
    """`8+`, `x86:4..` as a number of cores."""
    found = _NUMBER.fullmatch((least(value) or "").rpartition(":")[2])
    if found is None:
        return None
    number = float(found[1])
    return int(number) if number.is_integer() else number


def size(value: Any) -> str | None:
    """`32+`, `16GB..`, `512MB` as a quantity; a bare number counts GiB, as it does there."""
    found = _NUMBER.fullmatch(least(value) or "")
    if found is None:
        return None
    unit = (found[2] or "G")[0].upper()
    return f"{found[1]}{'K' if unit == 'K' else unit}i"


def is_size(text: str) -> bool:
    found = _NUMBER.fullmatch(least(text) or "")
    return found is not None and found[2] is not None
