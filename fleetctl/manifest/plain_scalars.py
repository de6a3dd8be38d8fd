"""The meaning of a plain scalar: the core schema of YAML 1.2, no extensions.

`no`, `2024-01-01`, `1_000` and `1:30` are texts; `3e-5` is a number.
"""

from __future__ import annotations

import math
import re

# The range of integers that every reader of JSON, and SQLite, can hold.
INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
_SAFE_DIGITS = 18  # any whole number with this many digits fits

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_BEGINS = frozenset("+-.0123456789")
_INT = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def resolve_scalar(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar. Raises ValueError for a number that cannot be kept exactly."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_BEGINS:
        return text
    if _INT.fullmatch(text):
        if len(text) <= _SAFE_DIGITS:
            return int(text)
        return _parse_int(text, 10)
    if _OTHER_BASE.fullmatch(text):
        return _parse_int(text, 0)
    if _FLOAT.fullmatch(text):
        value = float(text)
        if not math.isfinite(value):
            raise ValueError("the number is too large; quote it if a text is meant")
        return value
    if _NOT_FINITE.fullmatch(text):
        raise ValueError("a number must be finite; quote it if a text is meant")
    return text


def _parse_int(text: str, base: int) -> int:
    # 20 digits hold every 64-bit number; leading zeros are allowed and do not count.
    digits = text.lstrip("+-").lstrip("0ox")
    value = int(text, base) if len(digits) <= 20 else None
    if value is None or not INT_MIN <= value <= INT_MAX:
        raise ValueError("a whole number must fit into 64 bits; quote it if a text is meant")
    return value
