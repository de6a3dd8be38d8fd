"""Chooses the items of a listing to delete, with the reason. Pure.

    decide(items, limits, now_s) -> Decision        called by the controller and by `fleetctl gc`

Called once for each sort. Held items stay and count: where the held alone exceed the size, all
others are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from fleetctl.controllers.kinds.retention.limits import RetentionLimits

Sort = TypeVar("Sort")


@dataclass(frozen=True, slots=True)
class RetentionItem:
    """One stored item of a sort. key: identifies it in its store; name: shown to users. used_s:
    when it was needed last, in seconds since the epoch. held: why it may not be deleted; empty
    where it may.
    """

    key: str
    name: str
    bytes: int
    used_s: float
    held: str = ""


@dataclass(frozen=True, slots=True)
class ExpiredItem:
    item: RetentionItem
    why: str


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """goes: the items to delete, oldest first. items and bytes count all items; held counts those
    that may not be deleted.
    """

    goes: tuple[ExpiredItem, ...]
    items: int
    bytes: int
    held: int

    @property
    def bytes_going(self) -> int:
        return sum(it.item.bytes for it in self.goes)


def decide_retention(
    items: Sequence[RetentionItem],
    limits: RetentionLimits,
    now_s: float,
) -> RetentionDecision:
    """Chooses all items that are too old, then the oldest until the rest is small enough. The
    newest `keep_last` and the held ones stay.
    """
    oldest_first = sorted(items, key=lambda it: (it.used_s, it.key))
    kept = len(oldest_first) - limits.keep_last
    goes: list[ExpiredItem] = []
    total = left = sum(it.bytes for it in items)
    for number, item in enumerate(oldest_first):
        if number >= kept:
            break
        if item.held:
            continue
        why = _explain_expiry(item, left, limits, now_s)
        if why:
            goes.append(ExpiredItem(item, why))
            left -= item.bytes
    return RetentionDecision(tuple(goes), len(items), total, sum(1 for it in items if it.held))


def shrink_group(
    items: Mapping[Sort, Sequence[RetentionItem]],
    decisions: Mapping[Sort, RetentionDecision],
    keep_last: Mapping[Sort, int],
    bytes_max: int,
) -> dict[Sort, RetentionDecision]:
    """Returns the decisions with the oldest items of all these sorts added, until the rest of all
    is small enough. The newest `keep_last` of each sort and the held ones stay.
    """
    left = sum(it.bytes - it.bytes_going for it in decisions.values())
    goes = {sort: list(it.goes) for sort, it in decisions.items()}
    candidates = []
    for sort, listed in items.items():
        gone = {it.item.key for it in goes[sort]}
        oldest_first = sorted(listed, key=lambda it: (it.used_s, it.key))
        may_go = oldest_first[: max(0, len(oldest_first) - keep_last[sort])]
        candidates += [(it, sort) for it in may_go if not it.held and it.key not in gone]

    for item, sort in sorted(candidates, key=lambda it: (it[0].used_s, it[0].key)):
        if left <= bytes_max:
            break
        goes[sort].append(ExpiredItem(item, "maxSize"))
        left -= item.bytes
    return {sort: replace(it, goes=tuple(goes[sort])) for sort, it in decisions.items()}


def _explain_expiry(
    item: RetentionItem,
    left_bytes: int,
    limits: RetentionLimits,
    now_s: float,
) -> str:
    """Returns the limit by which it is deleted, `maxAge` or `maxSize`; empty where it stays."""
    if limits.max_age_s is not None and now_s - item.used_s > limits.max_age_s:
        return "maxAge"
    if limits.max_bytes is not None and left_bytes > limits.max_bytes:
        return "maxSize"
    return ""
