"""Flattens nested metrics to dotted names: `{"val": {"loss": 1}}` is `val.loss`, as wandb has it.
Called for metrics that a task reports and for lines of $FLEETCTL_METRICS.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

LEVELS_MAX = 8  # of a value whose numbers are taken


def flat_metrics(
    values: dict[str, Any], number: Callable[[Any], Optional[float]]
) -> tuple[dict[str, float], list[tuple[str, Any]]]:
    """Returns (the numbers, names and other values). number: converts a value; None for others."""
    kept: dict[str, float] = {}
    left_out: list[tuple[str, Any]] = []

    def take(
        name: str,
        value: Any,
        level: int,
    ) -> None:
        if isinstance(value, dict) and level < LEVELS_MAX:
            for key, inner in value.items():
                take(f"{name}.{key}", inner, level + 1)
            return
        found = number(value)
        if found is None:
            left_out.append((name, value))
        else:
            kept[name] = found

    for name, value in values.items():
        take(name, value, 0)
    return kept, left_out
