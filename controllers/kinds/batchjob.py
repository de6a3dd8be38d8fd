"""BatchJob: many independent indexed tasks. Called by reconcile.py through
controllers/planning/kind.py; pure.
"""

from __future__ import annotations

from collections import Counter
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
from fleetctl.controllers.reuse.rows import RowIndexes, Span
from fleetctl.controllers.schedule.early_end import early_verdict
from fleetctl.controllers.trials.winner import with_arguments, with_sweeps_command
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.controllers.wandb.program import winner_wandb
from fleetctl.specs.content import NO_PINS, Pins, content_of, given_params, template_hash
from fleetctl.specs.values.hashing import canonical_json, params_hash

if TYPE_CHECKING:
    from fleetctl.specs.blocks.template import Template
    from fleetctl.specs.kinds.batchjob import BatchJobSpec


INTERVALS_MAX = 1000  # of a status, which stays far below 256 KiB


class BatchJob(KindController):
    """A task's identity is its index, which goes with its parameters wherever its row stands."""

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
        self.rows = _rows(spec, pins)
        self.total = spec.count() if self.rows is None or self.rows.stale else len(self.rows.params)
        self.template_hash = template_hash(spec.template, spec.placement, pins, spec.params_from)
        self.given = given_params(spec.params_from, pins)
        if self.total is None:
            self.given = None  # nothing begins
        self.contents = self.contents_of(spec, pins)
        # Of its rows in their order, and how many spans of them are known to have begun.
        self._indexes, self._begun = _row_indexes(spec, pins, self.rows, self.total), 0
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
        row = self._indexes.row(index)
        return None if row is None else self.spec.params(row)

    def indexes(self) -> Iterable[int]:
        return self._indexes

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
        return tasks is None or tasks.completions is not None

    def equal_before(self, index: int) -> int:
        return self._repeated.get(index, 0)

    @cached_property
    def _repeated(self) -> Mapping[int, int]:
        """Of the tasks whose parameters an earlier one has: how many."""
        tasks = self.spec.tasks
        if tasks is not None and tasks.matrix is not None:
            axes = [[canonical_json(value) for value in axis] for axis in tasks.matrix.values()]
            if all(len(set(axis)) == len(axis) for axis in axes):
                return {}
        seen: Counter[str] = Counter()
        found: dict[int, int] = {}
        for index in self.indexes():
            digest = params_hash(self._params(index) or {})
            if seen[digest]:
                found[index] = seen[digest]
            seen[digest] += 1
        return found

    def next(self, history: History) -> Iterator[Unit]:
        spans = self._indexes.spans
        # What has begun stays so: of 100,000 rows the next is found without the ones before.
        while self._begun < len(spans) and _has_begun(history, spans[self._begun]):
            self._begun += 1
        for at in range(self._begun, len(spans)):
            for index in history.fresh(spans[at].index, spans[at].index + spans[at].length):
                unit = self.unit(index)
                assert unit is not None
                yield unit

    def verdict(self, history: History) -> Verdict | None:
        if self.total is None:
            return None
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
        if self._shown_indexes:
            out["taskIndexes"] = self._shown_indexes
        # A successPolicy may still be met; nothing else makes up for a task that was given up.
        if history.failed and self.spec.success_policy is None:
            out["cannotSucceed"] = self._failures(history)
        return out

    @cached_property
    def _shown_indexes(self) -> str:
        """Where they are not those from 0 on."""
        if self.total is None or (self.rows is None and self._indexes.plain):
            return ""
        return IntervalSet(self._indexes).text(intervals_max=INTERVALS_MAX)

    def _failures(self, history: History) -> str:
        return f"{len(history.failed)} of {self.total} tasks failed"


def _row_indexes(
    spec: BatchJobSpec, pins: Pins, rows: Rows | None, total: int | None
) -> RowIndexes:
    if rows is not None:
        return RowIndexes.of(rows.params)
    if pins.indexes and spec.tasks is not None and spec.tasks.completions is None:
        known = RowIndexes.parse(pins.indexes)
        if known.total == total:
            return known
    return RowIndexes([(0, total or 0)])


def _has_begun(history: History, span: Span) -> bool:
    return next(history.fresh(span.index, span.index + span.length), None) is None


def _rows(spec: BatchJobSpec, pins: Pins) -> Rows | None:
    """What its tasks are, where another job's results say so; None while that is not known."""
    given = spec.tasks.from_results if spec.tasks is not None else None
    return rows_in(pins.results) if given is not None else None
