"""BatchJob: many independent indexed tasks. Called by reconcile.py through controllers/kind.py;
pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from controllers.history import History
from controllers.kind import Unit, Verdict, limits_of, policy_of
from specs.hashing import params_hash, template_hash
from specs.quantities import parse_indexes

if TYPE_CHECKING:
    from specs.batchjob import BatchJobSpec
    from specs.policies import SuccessRule
    from specs.template import Template


class BatchJob:
    """A task's identity is its index; its params tell whether a finished one still counts."""

    def __init__(self, spec: BatchJobSpec) -> None:
        self.spec = spec
        self.policy = policy_of(spec)
        self.limits = limits_of(spec)
        self.total = spec.count()
        self.template_hash = template_hash(spec.template, spec.placement)
        self._same_params = params_hash({}) if spec.tasks is None else None

    def unit(self, index: int) -> Unit | None:
        if not 0 <= index < self.total:
            return None
        params = self.spec.params(index)
        digest = self._same_params or params_hash(params)
        return Unit(index, params, digest, self.template_hash)

    def template(self, index: int) -> Template:  # noqa: ARG002 - one template for all tasks
        return self.spec.template

    def next(self, history: History) -> Iterator[Unit]:
        for index in history.fresh(0, self.total):
            unit = self.unit(index)
            assert unit is not None
            yield unit

    def verdict(self, history: History) -> Verdict | None:
        """First match wins, in the order in which the Kubernetes Job controller looks at them."""
        done, failed = len(history.succeeded), len(history.failed)
        if history.failed_job is not None:
            run = history.failed_job
            return Verdict(False, "FailureRule", f"task {run.index} ended with {run.reason}")
        limit = self.spec.max_failed_indexes
        if limit is not None and failed > limit:
            text = f"{failed} tasks failed, more than maxFailedIndexes {limit}"
            return Verdict(False, "MaxFailedIndexesExceeded", text)
        total_limit = self.spec.backoff_limit
        if total_limit is not None and history.failures > total_limit:
            text = f"{history.failures} failures, more than backoffLimit {total_limit}"
            return Verdict(False, "BackoffLimitExceeded", text)
        if self._enough(history):
            return Verdict(
                True, "SuccessPolicy", f"{done} tasks succeeded, enough for successPolicy"
            )
        if done + failed < self.total:
            return None
        if failed:
            return Verdict(False, "FailedIndexes", f"{failed} of {self.total} tasks failed")
        return Verdict(True, "Completed", f"{done} of {self.total} tasks succeeded")

    def summary(self, history: History) -> dict[str, object]:  # noqa: ARG002
        return {}

    def _enough(self, history: History) -> bool:
        """Kubernetes successPolicy: any rule that holds is enough."""
        if self.spec.success_policy is None:
            return False
        return any(self._meets(rule, history) for rule in self.spec.success_policy.rules)

    def _meets(self, rule: SuccessRule, history: History) -> bool:
        if rule.succeeded_indexes is None:
            count = len(history.succeeded)
        else:
            named = [index for span in parse_indexes(rule.succeeded_indexes) for index in span]
            count = sum(1 for index in named if index in history.succeeded)
            if rule.succeeded_count is None and count < len(named):
                return False
        return rule.succeeded_count is None or count >= rule.succeeded_count
