"""Amounts as SkyPilot and dstack write them: `8+`, `16GB..`, `A100:2`, `24GB..80GB`. Pure."""

from __future__ import annotations

import re
from typing import Any

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?b?)?", re.I)


def lower_end(value: Any) -> str | None:
    """Returns the lower end of `8`, `8+`, `8..16`, `..16`; None without a lower end."""
    text = str(value).strip().rstrip("+")
    low, _, high = text.partition("..")
    return low or high or None


def is_open(value: Any) -> bool:
    """Returns True if more than the lower end would do as well."""
    return isinstance(value, str) and (value.rstrip().endswith("+") or ".." in value)


def parse_cores(value: Any) -> float | int | None:
    """Parses `8+`, `x86:4..` as a number of cores."""
    found = _NUMBER.fullmatch((lower_end(value) or "").rpartition(":")[2])
    if found is None:
        return None
    number = float(found[1])
    if number.is_integer():
        return int(number)
    return number


def parse_size(value: Any) -> str | None:
    """Parses `32+`, `16GB..`, `512MB` as a quantity; a bare number counts GiB, as in the other
    tool.
    """
    found = _NUMBER.fullmatch(lower_end(value) or "")
    if found is None:
        return None
    unit = (found[2] or "G")[0].upper()
    return f"{found[1]}{'K' if unit == 'K' else unit}i"


def is_size(text: str) -> bool:
    found = _NUMBER.fullmatch(lower_end(text) or "")
    return found is not None and found[2] is not None
