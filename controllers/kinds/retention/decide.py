"""What of a listing goes, and why. Pure.

    decide(items, limits, now_s) -> Decision        called by the controller and by `fleetctl gc`

Called once for each sort. What is held stays and counts: where the held alone are above the size,
all else goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.controllers.kinds.retention.limits import Limits


@dataclass(frozen=True, slots=True)
class Item:
    """One thing of a sort. key: by which it is found again; name: for people. used_s: when it was
    needed last, in seconds since the epoch. held: why it may not go; empty where it may.
    """

    key: str
    name: str
    bytes: int
    used_s: float
    held: str = ""


@dataclass(frozen=True, slots=True)
class Doomed:
    item: Item
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """goes: the oldest first. items and bytes are of all that there is; held of those that may not
    go.
    """

    goes: tuple[Doomed, ...]
    items: int
    bytes: int
    held: int

    @property
    def bytes_going(self) -> int:
        return sum(it.item.bytes for it in self.goes)


def decide(items: Sequence[Item], limits: Limits, now_s: float) -> Decision:
    """What goes: all that is too old, then the oldest until the rest is small enough. The newest
    `keep_last` and what is held stay.
    """
    oldest_first = sorted(items, key=lambda it: (it.used_s, it.key))
    kept = len(oldest_first) - limits.keep_last
    goes: list[Doomed] = []
    total = left = sum(it.bytes for it in items)
    for number, item in enumerate(oldest_first):
        if number >= kept:
            break
        if item.held:
            continue
        why = _why(item, left, limits, now_s)
        if why:
            goes.append(Doomed(item, why))
            left -= item.bytes
    return Decision(tuple(goes), len(items), total, sum(1 for it in items if it.held))


def _why(item: Item, left_bytes: int, limits: Limits, now_s: float) -> str:
    """`maxAge` or `maxSize`: by which limit it goes; empty where it stays."""
    if limits.max_age_s is not None and now_s - item.used_s > limits.max_age_s:
        return "maxAge"
    if limits.max_bytes is not None and left_bytes > limits.max_bytes:
        return "maxSize"
    return ""
