"""Converts the findings of a survey to data for screens and scripts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from fleetctl.controllers.kinds.retention.limits import RetentionSort
from fleetctl.controllers.kinds.retention.retention_decision import ExpiredItem
from fleetctl.retention.survey import SortSurvey


class GoingItem(TypedDict):
    """key: by which it is found. why: `maxAge` or `maxSize`. lastUsed: seconds since the epoch."""

    key: str
    name: str
    bytes: int
    lastUsed: float
    why: str


class SortReport(TypedDict):
    """items and bytes: of all items; held: of items that may not be deleted. limits: as in `kind:
    Settings`, seconds and bytes; null: no limit. groupSize: the bytes of all sorts of its group.
    """

    sort: str
    items: int
    bytes: int
    held: int
    limits: Mapping[str, float | int | None]
    goes: list[GoingItem]
    bytesGoing: int


def build_report(found: Mapping[RetentionSort, SortSurvey]) -> list[SortReport]:
    """Returns one report for each sort, in their order."""
    return [_report_sort(it) for it in found.values()]


def _report_sort(it: SortSurvey) -> SortReport:
    return {
        "sort": it.sort.value,
        "items": it.decision.items,
        "bytes": it.decision.bytes,
        "held": it.decision.held,
        "limits": {
            "maxAge": it.limits.max_age_s,
            "maxSize": it.limits.max_bytes,
            "keepLast": it.limits.keep_last,
            **({"groupSize": it.limits.group_bytes} if it.limits.group_bytes is not None else {}),
        },
        "goes": [_report_item(one) for one in it.decision.goes],
        "bytesGoing": it.decision.bytes_going,
    }


def _report_item(it: ExpiredItem) -> GoingItem:
    item = it.item
    return {
        "key": item.key,
        "name": item.name,
        "bytes": item.bytes,
        "lastUsed": item.used_s,
        "why": it.why,
    }
