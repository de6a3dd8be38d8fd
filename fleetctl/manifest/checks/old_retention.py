"""Finds the old form of `retention`, which had a limit for each sort of data, and states the new,
which has three groups. Pure; called with specs that their model accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.common.finding import Finding, Severity
from fleetctl.controllers.kinds.retention.limits import limits_of
from fleetctl.manifest.hints.synonyms import join_names
from fleetctl.specs.kinds.settings import (
    CACHES,
    FINISHED_WORK,
    RetentionBudget,
    RetentionSettings,
    SettingsSpec,
)

_AT = ("spec", "retention")
_DAY_S = 86_400
_SIZES = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_NO_FIELDS = (
    "give each object `ttlSecondsAfterFinished` in place of `objects`; the newest few stay without"
    " `keepLast`"
)


def find_doubts(spec: SettingsSpec) -> Iterator[Finding]:
    """Yields one warning for all sorts that have limits of their own."""
    given = spec.retention
    old = [it for it in ("objects", *FINISHED_WORK, *CACHES) if it in given.model_fields_set]
    if given.events.keep_last is not None:
        old.append("events")
    if old:
        alias = RetentionSettings.model_fields[old[0]].alias or old[0]
        path = (*_AT, alias)
        more = f", as {_count(len(old) - 1)}" if len(old) > 1 else ""
        text = f" is the old form{more}: limits are now those of three groups"
        yield Finding(path, text, _suggest(given), Severity.DOUBT, at_key=True)


def _count(others: int) -> str:
    return "is 1 more" if others == 1 else f"are {others} more"


def _suggest(given: RetentionSettings) -> str:
    groups = {
        "finishedWork": ("finished_work", *FINISHED_WORK),
        "caches": ("caches", *CACHES),
        "events": ("events",),
    }
    written = []
    limits = {}
    for word, fields in groups.items():
        limits[word] = _join([getattr(given, it) for it in fields])
        if text := _write(limits[word]):
            written.append(f"{word}: {{{text}}}")
    dropped = "objects" in given.model_fields_set or any(
        getattr(given, it).keep_last is not None for it in (*FINISHED_WORK, *CACHES, "events")
    )
    parts = [f"write `retention: {{{', '.join(written)}}}`"] if written else []
    if earlier := _find_earlier(given, limits):
        parts.append(
            f"{join_names(earlier)} then go earlier than now, so raise `maxAge` to keep them"
        )
    return "; ".join([*parts, *([_NO_FIELDS] if dropped else [])])


def _join(limits: list[RetentionBudget]) -> RetentionBudget:
    """Returns the longest age and the sum of the sizes that the file has."""
    ages = [it.max_age for it in limits if it.max_age is not None]
    sizes = [it.max_size for it in limits if it.max_size is not None]
    return RetentionBudget(max_age=max(ages, default=None), max_size=sum(sizes) or None)


def _find_earlier(given: RetentionSettings, limits: Mapping[str, RetentionBudget]) -> list[str]:
    """Returns the sorts that would be removed at a lower age by the new form than they are now."""
    before = limits_of(given)
    written = {word: it.model_dump(by_alias=True, exclude_none=True) for word, it in limits.items()}
    after = limits_of(RetentionSettings.model_validate(written))
    return [
        sort.value
        for sort, now in before.items()
        if (then := after[sort].max_age_s) is not None
        and (now.max_age_s is None or then < now.max_age_s)
    ]


def _write(limit: RetentionBudget) -> str:
    parts = [f"maxAge: {_age(limit.max_age)}"] if limit.max_age is not None else []
    return ", ".join([*parts, *([f"maxSize: {_size(limit.max_size)}"] if limit.max_size else [])])


def _age(seconds: float) -> str:
    return f"{seconds / _DAY_S:.0f}d" if seconds % _DAY_S == 0 else f"{seconds:g}"


def _size(size: int) -> str:
    for unit, factor in _SIZES:
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)
