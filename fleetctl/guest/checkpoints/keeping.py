"""Chooses the checkpoints that `keep` no longer retains. Pure; called by watch.py."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence


def choose_removable(
    steps: Sequence[int],
    last: int,
    every: Optional[int],
    resumed: Optional[int],
) -> list[int]:
    """Returns the steps of the complete checkpoints to remove, ascending: neither the newest `last`
    (at least 1), nor multiples of `every`, nor the step that the attempt resumed from.
    """
    ordered = sorted(set(steps))
    older = ordered[: len(ordered) - max(1, last)]
    return [
        step for step in older if step != resumed and not (every is not None and step % every == 0)
    ]
