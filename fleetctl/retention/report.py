"""What a survey found, as data for screens and scripts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from fleetctl.controllers.kinds.retention.decide import Doomed
from fleetctl.controllers.kinds.retention.limits import Sort
from fleetctl.retention.survey import Found


class Going(TypedDict):
    """key: by which it is found. why: `maxAge` or `maxSize`. lastUsed: seconds since the epoch."""

    key: str
    name: str
    bytes: int
    lastUsed: float
    why: str


class SortReport(TypedDict):
    """items and bytes: of all that there is; held: of those that may not go. limits: as in
    `kind: Settings`, seconds and bytes; null: none.
    """

    sort: str
    items: int
    bytes: int
    held: int
    limits: Mapping[str, float | int | None]
    goes: list[Going]
    bytesGoing: int


def report(found: Mapping[Sort, Found]) -> list[SortReport]:
    """One of each sort, in their order."""
    return [_of(it) for it in found.values()]


def _of(it: Found) -> SortReport:
    return {
        "sort": it.sort.value,
        "items": it.decision.items,
        "bytes": it.decision.bytes,
        "held": it.decision.held,
        "limits": {
            "maxAge": it.limits.max_age_s,
            "maxSize": it.limits.max_bytes,
            "keepLast": it.limits.keep_last,
        },
        "goes": [_going(one) for one in it.decision.goes],
        "bytesGoing": it.decision.bytes_going,
    }


def _going(it: Doomed) -> Going:
    item = it.item
    return {
        "key": item.key,
        "name": item.name,
        "bytes": item.bytes,
        "lastUsed": item.used_s,
        "why": it.why,
    }
