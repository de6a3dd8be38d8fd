"""Quantities such as 500m, 2Gi and 1e3."""

from __future__ import annotations

import re

from tests.emulators.kubernetes.store.errors import ApiError

_SUFFIX = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    **{f"{name}i": 1024.0 ** (number + 1) for number, name in enumerate("KMGTPE")},
}
_FORM = r"([+-]?[0-9.]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?"
_REGEX = "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def quantity(value: str | int | float) -> float:
    """Raises ApiError 400, as the server cannot decode a body that has another."""
    if isinstance(value, int | float):
        return float(value)
    found = re.fullmatch(_FORM, value)
    if found is None:
        raise ApiError(400, f"quantities must match the regular expression {_REGEX}")
    unit = found[2] or ""
    if unit[:1] in ("e", "E") and len(unit) > 1:
        return float(value)
    return float(found[1]) * _SUFFIX[unit]
