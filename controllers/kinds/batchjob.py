"""BatchJob: many independent indexed tasks. Called by reconcile.py through
controllers/planning/kind_controller.py; pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from fleetctl.controllers.depends.results import ResultParameters, rows_in
from fleetctl.controllers.history.facts import IntervalSet
from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import WandbTrial
from fleetctl.controllers.planning.kind_controller import (
    UNITS_KEPT_MAX,
    KindController,
    ObjectVerdict,
    Params,
    Unit,
    describe_params_source,
    limits_of,
    policy_of,
)
from fleetctl.controllers.reuse.row_matching import RowIndexes, RowSpan
from fleetctl.controllers.schedule.end import find_early_verdict
from fleetctl.controllers.status_keys import Status
from fleetctl.controllers.trials.winner import with_arguments, with_sweeps_command
from fleetctl.controllers.wandb import winner_wandb
from fleetctl.specs.content import NO_PINS, Pins, content_of, read_given_params, template_hash
from fleetctl.specs.values.hashing import canonical_json, params_hash

if TYPE_CHECKING:
    from fleetctl.specs.blocks.template import Template
    from fleetctl.specs.kinds.batchjob import BatchJobSpec


INTERVALS_MAX = 1000  # of a status, which stays far below 256 KiB


class BatchJobController(KindController):
    """Decides for a BatchJob. A task's identity is its index, which belongs to its parameters at
    any position of its row.
    """

    total: int | None

    def __init__(
        self,
        spec: BatchJobSpec,
        allocated: Mapping[str, int],
        pins: Pins = NO_PINS,
    ) -> None:
        template = _template_of(spec, pins)
        self.spec = spec = spec.model_copy(update={"template": template})
        self.policy = policy_of(spec, pins)
        self.limits = limits_of(spec)
        self.rows = _read_pinned_rows(spec, pins)
        self.total = spec.count() if self.rows is None or self.rows.stale else len(self.rows.params)
        self.template_hash = template_hash(spec.template, spec.placement, pins, spec.params_from)
        self.given = read_given_params(spec.params_from, pins)
        if self.total is None:
            self.given = None  # unset: no task begins
        self.contents = self.contents_of(spec, pins)
        # Order of its rows, and how many of their spans are known to have begun.
        self._indexes = _row_indexes(spec, pins, self.rows, self.total)
        self._begun = 0
        self._same_params = params_hash({}) if spec.tasks is None else None
        self.has_files = spec.tasks is not None and spec.tasks.files is not None
        self.unit = lru_cache(UNITS_KEPT_MAX)(self._unit)

    @staticmethod
    def contents_of(spec: BatchJobSpec, pins: Pins) -> tuple[str, ...]:
        template = _template_of(spec, pins)
        return (content_of(template, pins, spec.params_from),)

    def _unit(self, index: int) -> Unit | None:
        params = self._params(index)
        if params is None:
            return None
        digest = self._same_params or params_hash(params)
        params = {**(self.given or {}), **params}
        return Unit(
            index,
            params,
            digest,
            self.template_hash,
            self.contents[0],
        )

    def _params(self, index: int) -> Params | None:
        """Returns the task's own parameters; None for a task that does not exist. While the rows
        are taken again, a task keeps its parameters.
        """
        if self.rows is not None:
            return self.rows.params.get(index)
        row = self._indexes.row(index)
        if row is None:
            return None
        return self.spec.params(row)

    def indexes(self) -> Iterable[int]:
        return self._indexes

    @property
    def first(self) -> int:
        return next(iter(self.indexes()), 0)

    def template(self, index: int) -> Template:
        """Returns one template for all tasks, except for arguments from a sweep's best trial."""
        unit = self.unit(index) if self.spec.params_from is not None else None
        if unit:
            return with_arguments(self.spec.template, unit.params)
        return self.spec.template

    def content(self, index: int) -> Template:  # one for all tasks
        return self.spec.template

    def wandb(self, name: str, index: int) -> WandbTrial | None:
        return winner_wandb(self.spec.params_from, self.spec.template)

    @cached_property
    def repeats(self) -> bool:
        tasks = self.spec.tasks
        return tasks is None or tasks.completions is not None

    def equal_before(self, index: int) -> int:
        return self._repeated.get(index, 0)

    @cached_property
    def _repeated(self) -> Mapping[int, int]:
        """Counts, for each repeated task, the tasks whose parameters an earlier task has."""
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
        # A begun span stays begun: of 100,000 rows the next is found without a look at the earlier
        # ones.
        while self._begun < len(spans) and _has_begun(history, spans[self._begun]):
            self._begun += 1
        for at in range(self._begun, len(spans)):
            for index in history.fresh(spans[at].index, spans[at].index + spans[at].length):
                unit = self.unit(index)
                assert unit is not None
                yield unit

    def verdict(self, history: History) -> ObjectVerdict | None:
        if self.total is None:
            return None
        early = find_early_verdict(self.spec, history, units="tasks")
        if early is not None:
            return early
        done = len(history.succeeded)
        failed = len(history.failed)
        if done + failed < self.total:
            return None
        if failed:
            return ObjectVerdict(False, "FailedIndexes", self._failures(history))
        return ObjectVerdict(True, "Completed", f"{done} of {self.total} tasks succeeded")

    def summary(self, history: History) -> Status:
        out = describe_params_source(self.spec.params_from, self.given)
        if self._shown_indexes:
            out["taskIndexes"] = self._shown_indexes
        # A successPolicy may still be met; otherwise a task that was given up makes success
        # impossible.
        if history.failed and self.spec.success_policy is None:
            out["cannotSucceed"] = self._failures(history)
        return out

    @cached_property
    def _shown_indexes(self) -> str:
        """Returns the indexes as text where they are not those from 0 on."""
        if self.total is None or (self.rows is None and self._indexes.plain):
            return ""
        return IntervalSet(self._indexes).text(intervals_max=INTERVALS_MAX)

    def _failures(self, history: History) -> str:
        return f"{len(history.failed)} of {self.total} tasks failed"


def _template_of(spec: BatchJobSpec, pins: Pins) -> Template:
    if spec.params_from is None:
        return spec.template
    return with_sweeps_command(spec.template, spec.params_from, pins)


def _row_indexes(
    spec: BatchJobSpec,
    pins: Pins,
    rows: ResultParameters | None,
    total: int | None,
) -> RowIndexes:
    if rows is not None:
        return RowIndexes.of(rows.params)
    if pins.indexes and spec.tasks is not None and spec.tasks.completions is None:
        known = RowIndexes.parse(pins.indexes)
        if known.total == total:
            return known
    return RowIndexes([(0, total or 0)])


def _has_begun(history: History, span: RowSpan) -> bool:
    return next(history.fresh(span.index, span.index + span.length), None) is None


def _read_pinned_rows(spec: BatchJobSpec, pins: Pins) -> ResultParameters | None:
    """Returns the rows of its tasks, where another job's results define them; None while those are
    unknown.
    """
    given = spec.tasks.from_results if spec.tasks is not None else None
    if given is not None:
        return rows_in(pins.results)
    return None
