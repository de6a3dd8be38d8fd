"""Rules of policies that can never hold: about more units than there are, or by a reason that no
attempt can have.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.text import did_you_mean
from fleetctl.controllers.trials.points import size
from fleetctl.controllers.vocabulary.reasons import OF_ATTEMPTS, is_reason
from fleetctl.manifest.messages import Finding
from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from fleetctl.specs.values.quantities import parse_indexes
from fleetctl.specs.values.scalars import Spec


def wrong(spec: Spec) -> Iterator[Finding]:
    if isinstance(spec, Execution):
        yield from _of_success(spec)
        yield from _of_failure(spec)


def _of_success(spec: Execution) -> Iterator[Finding]:
    if spec.success_policy is None:
        return
    total = units(spec)
    if total is None:
        return
    for number, rule in enumerate(spec.success_policy.rules):
        at = ("spec", "successPolicy", "rules", number)
        there = f"there {'is' if total == 1 else 'are'} {total:,} {_word(spec, total)}"
        last = parse_indexes(rule.succeeded_indexes)[-1][-1] if rule.succeeded_indexes else 0
        if last >= total:
            path = (*at, "succeededIndexes")
            message = f" is `{rule.succeeded_indexes}`; {there}, so the rule can never hold"
            yield Finding(path, path, message, f"indexes begin at 0: the last one is {total - 1:,}")
        count = rule.succeeded_count or 0
        if count > total:
            path = (*at, "succeededCount")
            message = f" is `{count}`; {there}, so the rule can never hold"
            yield Finding(path, path, message, f"it must be at most {total:,}")


def _of_failure(spec: Execution) -> Iterator[Finding]:
    if spec.failure_policy is None:
        return
    for number, rule in enumerate(spec.failure_policy.rules):
        for at, word in enumerate(rule.on_reasons):
            if is_reason(word):
                continue
            path = ("spec", "failurePolicy", "rules", number, "onReasons", at)
            hint = did_you_mean(word, OF_ATTEMPTS)
            message = f" is `{word}`, which is not a reason that an attempt can end with"
            yield Finding(
                path, path, message, hint or "such as `OOMKilled`, `Timeout`, `ExitCode:3`"
            )


def _word(spec: Execution, count: int) -> str:
    words: dict[type[Spec], str] = {BatchJobSpec: "task", SweepSpec: "trial"}
    word = words.get(type(spec), "stage")
    return word if count == 1 else f"{word}s"


def units(spec: Execution) -> int | None:
    """Tasks, trials or stages in all; None where nobody knows yet."""
    if isinstance(spec, BatchJobSpec | TrainingRunSpec):
        return spec.count()
    if isinstance(spec, SweepSpec):
        points = size(spec.search) if spec.search.method == "grid" else None
        limits = [it for it in (points, spec.trial_limit) if it is not None]
        return min(limits) if limits else None
    return None
