"""Failure rules by a reason that no attempt can have: they could never match."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.text import did_you_mean
from fleetctl.controllers.vocabulary.reasons import OF_ATTEMPTS, is_reason
from fleetctl.manifest.messages import Finding
from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.values.scalars import Spec


def wrong(spec: Spec) -> Iterator[Finding]:
    if not isinstance(spec, Execution) or spec.failure_policy is None:
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
