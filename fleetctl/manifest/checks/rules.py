"""Finds limits and rules of policies that can never have an effect: of another kind, about more
units than there are, or by a reason that no attempt can have.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.finding import Finding
from fleetctl.common.text import did_you_mean
from fleetctl.controllers.trials.points import count_points
from fleetctl.controllers.vocabulary.reasons import OF_ATTEMPTS, is_reason
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from fleetctl.specs.values.quantities import parse_indexes
from fleetctl.specs.values.scalars import Spec


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
