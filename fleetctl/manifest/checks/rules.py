"""Finds limits and rules of policies that can never have an effect, and the old form of
`retention`, with the limits that it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.common.finding import Finding, Severity
from fleetctl.common.text import did_you_mean
from fleetctl.controllers.kinds.retention_decision import limits_of
from fleetctl.controllers.reasons import OF_ATTEMPTS, is_reason
from fleetctl.controllers.trials.points import count_points
from fleetctl.manifest.hints.synonyms import join_names
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.settings import (
    CACHES,
    FINISHED_WORK,
    RetentionBudget,
    RetentionSettings,
    SettingsSpec,
)
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from fleetctl.specs.values.quantities import parse_indexes
from fleetctl.specs.values.scalars import Spec

_AT = ("spec", "retention")
_DAY_S = 86_400
_SIZES = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_NO_FIELDS = (
    "give each object `ttlSecondsAfterFinished` in place of `objects`; the newest few stay without"
    " `keepLast`"
)


def find_problems(spec: WorkSpec) -> Iterator[Finding]:
    yield from _of_success(spec)
    yield from _of_failure(spec)
    yield from _check_sandbox(spec)
    if isinstance(spec, TrainingRunSpec):
        yield from _check_stage_limits(spec)


def _of_success(spec: WorkSpec) -> Iterator[Finding]:
    if spec.success_policy is None:
        return
    total = count_units(spec)
    if total is None:
        return
    for number, rule in enumerate(spec.success_policy.rules):
        at = ("spec", "successPolicy", "rules", number)
        there = f"there {'is' if total == 1 else 'are'} {total:,} {_unit_word(spec, total)}"
        last = parse_indexes(rule.succeeded_indexes)[-1][-1] if rule.succeeded_indexes else 0
        if last >= total:
            path = (*at, "succeededIndexes")
            message = f" is `{rule.succeeded_indexes}`; {there}, so the rule can never hold"
            yield Finding(path, message, f"indexes begin at 0: the last one is {total - 1:,}")
        count = rule.succeeded_count or 0
        if count > total:
            path = (*at, "succeededCount")
            message = f" is `{count}`; {there}, so the rule can never hold"
            yield Finding(path, message, f"it must be at most {total:,}")


def _check_stage_limits(spec: TrainingRunSpec) -> Iterator[Finding]:
    """Checks for limits of independent units: a run ends with its first stage that fails for
    good."""
    if limit := spec.backoff_limit_per_index:
        at = ("spec", "backoffLimitPerIndex")
        message = f" is `{limit}`, and the failures of a stage are limited by `maxRestarts`"
        yield Finding(at, message, f"write `maxRestarts: {limit}`")
    if spec.max_failed_indexes is not None:
        at = ("spec", "maxFailedIndexes")
        message = " has no effect: the first stage that fails for good ends the run"
        yield Finding(at, message, "leave it out; `backoffLimit` limits all failures together")


def _check_sandbox(spec: WorkSpec) -> Iterator[Finding]:
    """Checks for limits of a sandbox that takes several units, where none does."""
    nodes = max(nodes_of(part.template).max for part in spec.parts())
    if nodes > 1 and spec.sandbox.reuse != 1:
        at = ("spec", "sandbox", "reuse")
        message = f" is `{spec.sandbox.reuse}`, and {nodes} nodes end together with each attempt"
        yield Finding(at, message, "leave it out")
    per_sandbox = spec.trials_per_worker if isinstance(spec, SweepSpec) else 1
    if spec.sandbox.max_lifetime_seconds is not None and spec.sandbox.reuse == per_sandbox == 1:
        at = ("spec", "sandbox", "maxLifetimeSeconds")
        message = " has no effect: each sandbox takes one task"
        hint = "write `reuse: all` beside it; `template.timeoutSeconds` limits a task"
        yield Finding(at, message, hint)


def _of_failure(spec: WorkSpec) -> Iterator[Finding]:
    if spec.failure_policy is None:
        return
    for number, rule in enumerate(spec.failure_policy.rules):
        for at, word in enumerate(rule.on_reasons):
            if is_reason(word):
                continue
            path = ("spec", "failurePolicy", "rules", number, "onReasons", at)
            hint = did_you_mean(word, OF_ATTEMPTS)
            message = f" is `{word}`, which is not a reason that an attempt can end with"
            yield Finding(path, message, hint or "such as `OOMKilled`, `Timeout`, `ExitCode:3`")


def _unit_word(spec: WorkSpec, count: int) -> str:
    words: dict[type[Spec], str] = {BatchJobSpec: "task", SweepSpec: "trial"}
    word = words.get(type(spec), "stage")
    if count == 1:
        return word
    return f"{word}s"


def count_units(spec: WorkSpec) -> int | None:
    """Counts tasks, trials or stages in all; None if the number is not known yet."""
    if isinstance(spec, BatchJobSpec | TrainingRunSpec):
        return spec.count()
    if isinstance(spec, SweepSpec):
        points = count_points(spec.search) if spec.search.method == "grid" else None
        limits = [it for it in (points, spec.trial_limit) if it is not None]
        if limits:
            return min(limits)
        return None
    return None


def find_doubts(spec: SettingsSpec) -> Iterator[Finding]:
    """Yields one warning for all sorts that have limits of their own."""
    given = spec.retention
    old = [it for it in ("objects", *FINISHED_WORK, *CACHES) if it in given.model_fields_set]
    if given.events.keep_last is not None:
        old.append("events")
    if old:
        alias = RetentionSettings.model_fields[old[0]].alias or old[0]
        path = (*_AT, alias)
        more = f", as {_count_others(len(old) - 1)}" if len(old) > 1 else ""
        text = f" is the old form{more}: limits are now those of three groups"
        yield Finding(path, text, _suggest_group(given), Severity.DOUBT, at_key=True)


def _count_others(others: int) -> str:
    return "is 1 more" if others == 1 else f"are {others} more"


def _suggest_group(given: RetentionSettings) -> str:
    groups = {
        "finishedWork": ("finished_work", *FINISHED_WORK),
        "caches": ("caches", *CACHES),
        "events": ("events",),
    }
    written = []
    limits = {}
    for word, fields in groups.items():
        limits[word] = _join_limits([getattr(given, it) for it in fields])
        if text := _write_limit(limits[word]):
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


def _join_limits(limits: list[RetentionBudget]) -> RetentionBudget:
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


def _write_limit(limit: RetentionBudget) -> str:
    parts = [f"maxAge: {_format_age(limit.max_age)}"] if limit.max_age is not None else []
    return ", ".join(
        [*parts, *([f"maxSize: {_format_size(limit.max_size)}"] if limit.max_size else [])]
    )


def _format_age(seconds: float) -> str:
    return f"{seconds / _DAY_S:.0f}d" if seconds % _DAY_S == 0 else f"{seconds:g}"


def _format_size(size: int) -> str:
    for unit, factor in _SIZES:
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)
