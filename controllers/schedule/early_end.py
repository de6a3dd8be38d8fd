"""Ends the whole before all its units have ended: limits on failures, and enough successes.

The fields behind it are shared by all running kinds, so their meaning is here, once. Called by the
kinds; pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.controllers.history.history import History
from fleetctl.controllers.planning.kind_controller import ObjectVerdict
from fleetctl.specs.values.quantities import parse_indexes

if TYPE_CHECKING:
    from fleetctl.specs.blocks.common import WorkSpec
    from fleetctl.specs.blocks.policies import SuccessRule


def early_verdict(
    spec: WorkSpec,
    history: History,
    *,
    units: str,
) -> ObjectVerdict | None:
    """Returns the first verdict that matches, in the order of the Kubernetes Job controller's
    checks.

    units: the kind's word for them, in the plural.
    """
    done = len(history.succeeded)
    failed = len(history.failed)
    if history.failed_job is not None:
        run = history.failed_job
        text = f"{units.removesuffix('s')} {run.index} failed with {run.reason}"
        return ObjectVerdict(False, "FailureRule", text)
    limit = spec.max_failed_indexes
    if limit is not None and failed > limit:
        text = f"{failed} {units} failed, more than maxFailedIndexes {limit}"
        return ObjectVerdict(False, "MaxFailedIndexesExceeded", text)
    limit = spec.backoff_limit
    if limit is not None and history.failures > limit:
        text = f"{history.failures} failures, more than backoffLimit {limit}"
        return ObjectVerdict(False, "BackoffLimitExceeded", text)
    # Kubernetes successPolicy: any rule that holds is enough.
    if spec.success_policy and any(
        _meets_rule(rule, history) for rule in spec.success_policy.rules
    ):
        text = f"{done} {units} succeeded, enough for successPolicy"
        return ObjectVerdict(True, "SuccessPolicy", text)
    return None


def _meets_rule(rule: SuccessRule, history: History) -> bool:
    if rule.succeeded_indexes is None:
        count = len(history.succeeded)
    else:
        spans = parse_indexes(rule.succeeded_indexes)
        count = sum(history.succeeded.count(span.start, span.stop) for span in spans)
        if rule.succeeded_count is None and count < sum(map(len, spans)):
            return False
    return rule.succeeded_count is None or count >= rule.succeeded_count
