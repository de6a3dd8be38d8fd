"""The sorts of things that stay on this machine when work is over, and what holds for each where
`kind: Settings` says nothing. Pure.

The defaults are those of a laptop: all sorts together come to 9.5 GiB at the most, and what is in
use comes on top of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fleetctl.specs.kinds.settings import Limit, RetentionSettings

DAY_S = 86_400.0
MIB, GIB = 1 << 20, 1 << 30


class Sort(StrEnum):
    """In the order of the screens; the words are the fields of `spec.retention`."""

    OBJECTS = "objects"
    RUNS = "runs"
    LOGS = "logs"
    EVENTS = "events"
    WORK_DIRECTORIES = "workDirectories"
    ENVIRONMENTS = "environments"
    SOURCES = "sources"
    REPOSITORIES = "repositories"
    REUSE = "reuse"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Limits:
    """None = no limit. keep_last: so many of the newest stay, whatever their age and size."""

    max_age_s: float | None = None
    max_bytes: int | None = None
    keep_last: int = 0


DEFAULTS: Mapping[Sort, Limits] = {
    Sort.OBJECTS: Limits(),
    # Ten million reports. What every metric came to last stays in any case.
    Sort.RUNS: Limits(None, 512 * MIB, keep_last=1),
    # A month back one may still ask why something failed.
    Sort.LOGS: Limits(30 * DAY_S, GIB, keep_last=10),
    Sort.EVENTS: Limits(90 * DAY_S, 256 * MIB, keep_last=10),
    # As long as a failed task may still be looked into, over two weekends.
    Sort.WORK_DIRECTORIES: Limits(14 * DAY_S, 2 * GIB, keep_last=1),
    # One with torch and its CUDA packages has some 5 GiB: the last two stay whatever they weigh.
    Sort.ENVIRONMENTS: Limits(60 * DAY_S, 4 * GIB, keep_last=2),
    # Work that is over can be run again with its copy for half a year; then it is applied again.
    Sort.SOURCES: Limits(180 * DAY_S, 512 * MIB, keep_last=1),
    Sort.REPOSITORIES: Limits(30 * DAY_S, 512 * MIB, keep_last=1),
    # The store bounds them too, entry by entry.
    Sort.REUSE: Limits(180 * DAY_S, 256 * MIB),
    # A quarter's bill can be told, and the store stays a file that is copied in seconds.
    Sort.DELETED: Limits(90 * DAY_S, 512 * MIB),
}


def limits_of(settings: RetentionSettings, deleted_s: float | None = None) -> dict[Sort, Limits]:
    """What holds. deleted_s: what the controller's environment says of deleted objects' records,
    which counts where the settings say nothing.
    """
    found = {sort: _over(DEFAULTS[sort], _said(settings, sort)) for sort in Sort}
    if deleted_s is not None and settings.deleted.max_age is None:
        least = found[Sort.DELETED]
        found[Sort.DELETED] = Limits(deleted_s, least.max_bytes, least.keep_last)
    return found


def _said(settings: RetentionSettings, sort: Sort) -> Limit:
    by_word = {info.alias: name for name, info in type(settings).model_fields.items()}
    said: Limit = getattr(settings, by_word[sort.value])
    return said


def _over(default: Limits, said: Limit) -> Limits:
    return Limits(
        default.max_age_s if said.max_age is None else said.max_age,
        default.max_bytes if said.max_size is None else said.max_size,
        default.keep_last if said.keep_last is None else said.keep_last,
    )
