"""Chooses the items of a listing to delete, with the reason, by the limits on each sort of data
that stays after work has finished. Pure.

    decide_retention(items, limits, now_s) -> RetentionDecision

The controller and `fleetctl gc` call it, once for each sort. Held items stay and count: where the
held alone exceed the size, all others are deleted. The default limits are those of a laptop: all
sorts together come to 13.5 GiB at the most, without data in use and without outputs, which tasks
were asked to keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from fleetctl.specs.kinds.settings import (
    CACHES,
    FINISHED_WORK,
    RetentionBudget,
    RetentionLimit,
    RetentionSettings,
)

Sort = TypeVar("Sort")

DAY_S = 86_400.0
MIB = 1 << 20
GIB = 1 << 30


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


class RetentionSort(StrEnum):
    """The sorts in the order of the screens."""

    OBJECTS = "objects"
    RUNS = "runs"
    LOGS = "logs"
    OUTPUTS = "outputs"
    EVENTS = "events"
    WORK_DIRECTORIES = "workDirectories"
    ENVIRONMENTS = "environments"
    SOURCES = "sources"
    INPUTS = "inputs"
    REPOSITORIES = "repositories"
    REUSE = "reuse"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The limits of a sort; None = no limit. keep_last: the number of newest items that stay at any
    age and size. group: the word of its group in `spec.retention`, and group_bytes: the size that
    all sorts of that group have together.
    """

    max_age_s: float | None = None
    max_bytes: int | None = None
    keep_last: int = 0
    group: str = ""
    group_bytes: int | None = None


DEFAULTS: Mapping[RetentionSort, RetentionLimits] = {
    RetentionSort.OBJECTS: RetentionLimits(),
    # Ten million reports. The last value of every metric stays in any case.
    RetentionSort.RUNS: RetentionLimits(None, 512 * MIB, keep_last=1),
    # A user may still ask after a month why a run failed.
    RetentionSort.LOGS: RetentionLimits(30 * DAY_S, GIB, keep_last=10),
    # Asked for by name, as results are, so none goes for its size, and all within a season.
    RetentionSort.OUTPUTS: RetentionLimits(90 * DAY_S, None, keep_last=10),
    RetentionSort.EVENTS: RetentionLimits(90 * DAY_S, 256 * MIB, keep_last=10),
    # As long as a failed task may still be looked into, over two weekends.
    RetentionSort.WORK_DIRECTORIES: RetentionLimits(14 * DAY_S, 2 * GIB, keep_last=1),
    # One with torch and its CUDA packages has some 5 GiB: the last two stay at any size.
    RetentionSort.ENVIRONMENTS: RetentionLimits(60 * DAY_S, 4 * GIB, keep_last=2),
    # Finished work can be run again with its copy for half a year; then it is applied again.
    RetentionSort.SOURCES: RetentionLimits(180 * DAY_S, 512 * MIB, keep_last=1),
    # A job has at most 4 GiB of them, so that the tasks of the last one can be tried again.
    RetentionSort.INPUTS: RetentionLimits(180 * DAY_S, 4 * GIB),
    RetentionSort.REPOSITORIES: RetentionLimits(30 * DAY_S, 512 * MIB, keep_last=1),
    # The store bounds them too, entry by entry.
    RetentionSort.REUSE: RetentionLimits(180 * DAY_S, 256 * MIB),
    # A quarter's costs can be reported, and the store stays a file that is copied in seconds.
    RetentionSort.DELETED: RetentionLimits(90 * DAY_S, 512 * MIB),
}


# The fields of `spec.retention` that hold for several sorts; `inputs` never had one of its own.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "finished_work": FINISHED_WORK,
    "caches": (*CACHES, "inputs"),
}


def limits_of(
    settings: RetentionSettings, deleted_s: float | None = None
) -> dict[RetentionSort, RetentionLimits]:
    """Returns the limits in force: a sort's own, an old form; else its group's; else its default.
    deleted_s: the age limit for deleted objects' records from the controller's environment, which
    counts where the settings have none.
    """
    fields = {info.alias or name: name for name, info in type(settings).model_fields.items()}
    found = {}
    for sort in RetentionSort:
        field = fields.get(sort.value, sort.value)
        default = DEFAULTS[sort]
        if sort is RetentionSort.DELETED and deleted_s is not None:
            default = replace(default, max_age_s=deleted_s)
        group = next((name for name, sorts in GROUPS.items() if field in sorts), "")
        if group:
            word = type(settings).model_fields[group].alias or group
            default = _limit_by_group(default, getattr(settings, group), word)
        own: RetentionLimit | None = getattr(settings, field, None)
        found[sort] = default if own is None else _merge_limits(default, own)
    return found


def _limit_by_group(
    default: RetentionLimits, given: RetentionBudget, group: str
) -> RetentionLimits:
    return replace(
        default,
        max_age_s=default.max_age_s if given.max_age is None else given.max_age,
        max_bytes=default.max_bytes if given.max_size is None else None,
        group=group,
        group_bytes=given.max_size,
    )


def _merge_limits(default: RetentionLimits, given: RetentionLimit) -> RetentionLimits:
    return replace(
        default,
        max_age_s=default.max_age_s if given.max_age is None else given.max_age,
        max_bytes=default.max_bytes if given.max_size is None else given.max_size,
        keep_last=default.keep_last if given.keep_last is None else given.keep_last,
    )
