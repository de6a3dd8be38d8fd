"""BatchJob: many independent indexed tasks. Called by reconcile.py through
controllers/planning/kind.py; pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from fleetctl.controllers.depends.results import Rows, rows_in
from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.intervals import IntervalSet
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
from fleetctl.controllers.trials.winner import with_arguments, with_sweeps_command
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.controllers.wandb.program import (
    PARAMETERS_UNREAD,
    stopped_by_unread,
    winner_unread,
    winner_wandb,
)
from fleetctl.specs.content import NO_PINS, Pins, content_of, given_params, template_hash
from fleetctl.specs.values.hashing import canonical_json, params_hash

if TYPE_CHECKING:
    from fleetctl.specs.blocks.template import Template
    from fleetctl.specs.kinds.batchjob import BatchJobSpec


INTERVALS_MAX = 1000  # of a status, which stays far below 256 KiB


class BatchJob(KindController):
    """A task's identity is its index; its params tell whether a finished one still counts."""

    total: int | None

    def __init__(
        self,
        spec: BatchJobSpec,
        allocated: Mapping[str, int],  # noqa: ARG002
        pins: Pins = NO_PINS,
    ) -> None:
        template = with_sweeps_command(spec.template, spec.params_from, pins)
        self.spec = spec = spec.model_copy(update={"template": template})
        self.policy = policy_of(spec, pins)
        self.limits = limits_of(spec)
        if spec.params_from is not None:
            self.limits = stopped_by_unread(self.limits)
        self.rows = _rows(spec, pins)
        self.total = spec.count() if self.rows is None or self.rows.stale else len(self.rows.params)
        self.template_hash = template_hash(spec.template, spec.placement, pins, spec.params_from)
        self.given = given_params(spec.params_from, pins)
        if self.total is None:
            self.given = None  # nothing begins
        self.contents = self.contents_of(spec, pins)
        # Its own indexes, and how many of them are known to have begun.
        self._order, self._begun = () if self.rows is None else (*self.rows.params,), 0
        self._same_params = params_hash({}) if spec.tasks is None else None
        self.unit = lru_cache(UNITS_KEPT_MAX)(self._unit)

    @staticmethod
    def contents_of(spec: BatchJobSpec, pins: Pins) -> tuple[str, ...]:
        template = with_sweeps_command(spec.template, spec.params_from, pins)
        return (content_of(template, pins, spec.params_from),)

    def _unit(self, index: int) -> Unit | None:
        params = self._params(index)
        if params is None:
            return None
        digest = self._same_params or params_hash(params)
        params = {**(self.given or {}), **params}
        return Unit(index, params, digest, self.template_hash, self.contents[0])

    def _params(self, index: int) -> Params | None:
        """Its own; None of a task that there is not. What is being taken anew keeps what it has."""
        if self.rows is not None:
            return self.rows.params.get(index)
        return self.spec.params(index) if 0 <= index < (self.total or 0) else None

    def indexes(self) -> Iterable[int]:
        return range(self.total or 0) if self.rows is None else self.rows.params

    @property
    def first(self) -> int:
        return next(iter(self.indexes()), 0)

    def template(self, index: int) -> Template:
        """One for all tasks, but for arguments that a sweep's best trial gives."""
        unit = self.unit(index) if self.spec.params_from is not None else None
        return with_arguments(self.spec.template, unit.params) if unit else self.spec.template

    def content(self, index: int) -> Template:  # noqa: ARG002 - one for all tasks
        return self.spec.template

    def wandb(self, name: str, index: int) -> WandbTrial | None:  # noqa: ARG002
        return winner_wandb(self.spec.params_from, self.spec.template)

    @cached_property
    def repeats(self) -> bool:
        tasks = self.spec.tasks
        if tasks is None or tasks.completions is not None:
            return True
        if tasks.matrix is not None:
            axes = [[canonical_json(value) for value in axis] for axis in tasks.matrix.values()]
            return any(len(set(axis)) < len(axis) for axis in axes)
        found = [self._params(index) or {} for index in self.indexes()]
        return len({params_hash(it) for it in found}) < len(found)

    def next(self, history: History) -> Iterator[Unit]:
        end = self.total or 0
        if self.rows is not None:
            # What has begun stays so: of 100,000 rows the next is found without the ones before.
            while self._begun < len(self._order) and self._order[self._begun] in history.taken:
                self._begun += 1
            for at in range(self._begun, len(self._order)):
                unit = self.unit(self._order[at])
                if unit is not None and unit.index not in history.taken:
                    yield unit
            return
        for index in history.fresh(0, end):
            unit = self.unit(index)
            assert unit is not None
            yield unit

    def verdict(self, history: History) -> Verdict | None:
        if self.total is None:
            return None
        unread = history.failed_job
        if unread is not None and unread.reason == PARAMETERS_UNREAD:
            return Verdict(False, PARAMETERS_UNREAD, winner_unread(unread))
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
        if self.rows is not None and self.total is not None:
            out["taskIndexes"] = IntervalSet(self._order).text(intervals_max=INTERVALS_MAX)
        # A successPolicy may still be met; nothing else makes up for a task that was given up.
        if history.failed and self.spec.success_policy is None:
            out["cannotSucceed"] = self._failures(history)
        return out

    def _failures(self, history: History) -> str:
        return f"{len(history.failed)} of {self.total} tasks failed"


def _rows(spec: BatchJobSpec, pins: Pins) -> Rows | None:
    """What its tasks are, where another job's results say so; None while that is not known."""
    given = spec.tasks.from_results if spec.tasks is not None else None
    return rows_in(pins.results) if given is not None else None
