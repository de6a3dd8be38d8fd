"""What the JSON values of wandb's records say as numbers by dotted name. Pure; called by
wandb/file.py.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

NESTED_MAX = 8  # levels of a value whose numbers are taken


def finite(text: bytes) -> Optional[float]:
    """None for what is not a finite number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value - value == 0 else None


def parsed(text: bytes) -> Any:
    """As Python does it: with NaN and Infinity, which wandb writes. None for what is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def flatten(name: str, value: Any, found: dict[str, Any], typed: list[str], level: int = 0) -> None:
    """Adds what a value holds, by dotted name. typed: gains the names of pictures, tables and the
    like, whose numbers are not metrics.
    """
    if name.endswith("._type"):
        typed.append(name[: -len("_type")])
    elif isinstance(value, dict):
        if "_type" not in value and level < NESTED_MAX:
            for key, inner in value.items():
                flatten(f"{name}.{key}", inner, found, typed, level + 1)
    elif isinstance(value, (bool, str)):
        found[name] = value
    elif isinstance(value, (int, float)):
        try:
            float(value)
        except OverflowError:
            return
        found[name] = value


def numbers(found: dict[str, Any], typed: list[str]) -> dict[str, float]:
    kept = without_media(found, typed)
    return {name: float(it) for name, it in kept.items() if not isinstance(it, (bool, str))}


def without_media(found: dict[str, Any], typed: list[str]) -> dict[str, Any]:
    if not typed:
        return found
    return {name: it for name, it in found.items() if not name.startswith(tuple(typed))}
