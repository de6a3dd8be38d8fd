"""Matches the indexes of an object's rows with those that it has in the store. Called when a spec
is applied, and when results become tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.depends.results import ResultParameters
from fleetctl.controllers.kinds.batchjob import BatchJobController
from fleetctl.controllers.model import Resource
from fleetctl.controllers.reuse.row_matching import (
    RowHolder,
    RowIndexes,
    assign_indexes,
    make_holder,
)
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.registry import dump_spec, parse_spec
from fleetctl.specs.values.hashing import params_hash
from fleetctl.stores.base import RunStore
from fleetctl.tracking.annotations import INDEXES, pins_of

if TYPE_CHECKING:
    from fleetctl.specs.values.scalars import Spec


def format_row_indexes(
    runs: RunStore,
    spec: Spec,
    known: Resource | None,
) -> str:
    """Returns the indexes of its rows, as an annotation stores them; empty where each has its
    position, and without rows. known: the object as it is stored.
    """
    if known is None or not isinstance(spec, BatchJobSpec) or not _has_rows(spec):
        return ""
    if json.loads(known.spec).get("tasks") == json.loads(dump_spec(spec)).get("tasks"):
        return known.annotations.get(INDEXES, "")
    assert spec.tasks is not None
    rows = [(at, params_hash(spec.params(at))) for at in range(spec.count() or 0)]
    return RowIndexes.of(assign_indexes(rows, _list_holders(runs, known))).text()


def matched_rows(
    runs: RunStore,
    rows: ResultParameters,
    known: Resource | None,
) -> ResultParameters:
    """Returns results of another job under the indexes that equal ones have here; a new one has
    that of its giver where it is free.
    """
    if known is None:
        return rows
    digests = [(index, params_hash(params)) for index, params in rows.params.items()]
    indexes = assign_indexes(digests, _list_holders(runs, known))
    return replace(rows, params=dict(zip(indexes, rows.params.values(), strict=True)))


def _has_rows(spec: BatchJobSpec) -> bool:
    tasks = spec.tasks
    return tasks is not None and any((tasks.items, tasks.matrix, tasks.files))


def _list_holders(runs: RunStore, known: Resource) -> Iterator[RowHolder]:
    try:
        spec = parse_spec(known.kind, known.spec)
    except ValueError:
        return  # the stored spec is unreadable
    assert isinstance(spec, BatchJobSpec)
    job = BatchJobController(spec, {}, pins_of(known.annotations))
    last = {run.index: run for run, _ in runs.of(known.uid)}
    desired = _list_desired(job)
    for index in sorted({*desired, *last}):
        yield make_holder(index, desired.get(index, ""), last.get(index), job.contents[0])


def _list_desired(job: BatchJobController) -> Mapping[int, str]:
    """Returns the params hash of each desired task, by its index."""
    units = (job.unit(index) for index in job.indexes())
    return {unit.index: unit.params_hash for unit in units if unit is not None}
