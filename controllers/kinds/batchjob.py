"""BatchJob: many independent indexed tasks. Called by reconcile.py through
controllers/planning/kind.py; pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import WandbTrial
from fleetctl.controllers.planning.kind import (
    UNITS_KEPT_MAX,
    KindController,
    Params,
    Unit,
    Verdict,
    limits_of,
    policy_of,
    taken_from,
)
from fleetctl.controllers.schedule.early_end import early_verdict
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.controllers.wandb.program import winner_wandb
from fleetctl.specs.content import NO_PINS, Pins, content_of, given_params, template_hash
from fleetctl.specs.values.hashing import canonical_json, params_hash

if TYPE_CHECKING:
    from fleetctl.specs.blocks.template import Template
    from fleetctl.specs.kinds.batchjob import BatchJobSpec


class BatchJob(KindController):
    """A task's identity is its index; its params tell whether a finished one still counts."""

    total: int

    def __init__(
        self,
        spec: BatchJobSpec,
        allocated: Mapping[str, int],  # noqa: ARG002
        pins: Pins = NO_PINS,
    ) -> None:
        self.spec = spec
        self.policy = policy_of(spec, pins)
        self.limits = limits_of(spec)
        self.total = spec.count()
        self.template_hash = template_hash(spec.template, spec.placement, pins, spec.params_from)
        self.given = given_params(spec.params_from, pins)
        self.contents = self.contents_of(spec, pins)
        self._same_params = params_hash({}) if spec.tasks is None else None
        self.unit = lru_cache(UNITS_KEPT_MAX)(self._unit)

    @staticmethod
    def contents_of(spec: BatchJobSpec, pins: Pins) -> tuple[str, ...]:
        return (content_of(spec.template, pins, spec.params_from),)

    def _unit(self, index: int) -> Unit | None:
        if not 0 <= index < self.total:
            return None
        params: Params = self.spec.params(index)
        digest = self._same_params or params_hash(params)
        params = {**(self.given or {}), **params}
        return Unit(index, params, digest, self.template_hash, self.contents[0])

    def template(self, index: int) -> Template:  # noqa: ARG002 - one template for all tasks
        return self.spec.template

    def wandb(self, name: str, index: int) -> WandbTrial | None:  # noqa: ARG002
        return winner_wandb(self.spec.params_from)

    @cached_property
    def repeats(self) -> bool:
        tasks = self.spec.tasks
        if tasks is None or tasks.completions is not None:
            return True
        if tasks.matrix is not None:
            axes = [[canonical_json(value) for value in axis] for axis in tasks.matrix.values()]
            return any(len(set(axis)) < len(axis) for axis in axes)
        hashes = {params_hash(self.spec.params(index)) for index in range(self.total)}
        return len(hashes) < self.total

    def next(self, history: History) -> Iterator[Unit]:
        for index in history.fresh(0, self.total):
            unit = self.unit(index)
            assert unit is not None
            yield unit

    def verdict(self, history: History) -> Verdict | None:
        early = early_verdict(self.spec, history, units="tasks")
        if early is not None:
            return early
        done, failed = len(history.succeeded), len(history.failed)
        if done + failed < self.total:
            return None
        if failed:
            return Verdict(False, "FailedIndexes", self._failures(history))
        return Verdict(True, "Completed", f"{done} of {self.total} tasks succeeded")

    def summary(self, history: History) -> Status:
        out = taken_from(self.spec.params_from, self.given)
        # A successPolicy may still be met; nothing else makes up for a task that was given up.
        if history.failed and self.spec.success_policy is None:
            out["cannotSucceed"] = self._failures(history)
        return out

    def _failures(self, history: History) -> str:
        return f"{len(history.failed)} of {self.total} tasks failed"
