"""The order in a queue: `priority` of running kinds. A number, or a name for one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

PRIORITY_MAX = 1_000_000_000  # as of a Kubernetes PriorityClass

PRIORITIES = {"low": -1000, "normal": 0, "high": 1000}

Priority = (
    Annotated[
        int,
        Field(
            strict=True,
            ge=-PRIORITY_MAX,
            le=PRIORITY_MAX,
        ),
    ]
    | Literal["low", "normal", "high"]
)


def rank_of(priority: int | str) -> int:
    """Returns the number of a priority; the higher goes first."""
    if isinstance(priority, str):
        return PRIORITIES[priority]
    return priority
