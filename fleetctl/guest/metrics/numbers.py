"""Extracts numbers by dotted name from the JSON values of wandb's records. Pure; called by
wandb/file.py.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

NESTED_MAX = 8  # levels of a nested value; numbers below are left out


def parse_finite(text: bytes) -> Optional[float]:
    """Returns the number in a text; None for a text that is not a finite number."""
    try:
        value = float(text)
    except ValueError:
        return None
    if value - value == 0:
        return value
    return None


def parse_json(text: bytes) -> Any:
    """Returns the parsed JSON, with NaN and Infinity, which wandb writes; None for invalid JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def flatten_value(
    name: str,
    value: Any,
    found: dict[str, Any],
    typed: list[str],
    level: int = 0,
) -> None:
    """Adds the numbers, texts and truth values of a nested value to `found`, by dotted name.

    typed: gains the names of pictures, tables and the like, whose numbers are not metrics.
    """
    if name.endswith("._type"):
        typed.append(name[: -len("_type")])
    elif isinstance(value, dict):
        if "_type" not in value and level < NESTED_MAX:
            for key, inner in value.items():
                flatten_value(
                    f"{name}.{key}",
                    inner,
                    found,
                    typed,
                    level + 1,
                )
    elif isinstance(value, (bool, str)):
        found[name] = value
    elif isinstance(value, (int, float)):
        try:
            float(value)
        except OverflowError:
            return
        found[name] = value


def select_numbers(found: dict[str, Any], typed: list[str]) -> dict[str, float]:
    """Returns the numbers of flattened values, without those of the `typed` names."""
    kept = without_media(found, typed)
    return {name: float(it) for name, it in kept.items() if not isinstance(it, (bool, str))}


def without_media(found: dict[str, Any], typed: list[str]) -> dict[str, Any]:
    if not typed:
        return found
    return {name: it for name, it in found.items() if not name.startswith(tuple(typed))}
