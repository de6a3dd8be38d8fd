"""The indexes of an object's rows, matched with those that it has in the store. Called when a spec
is applied, and when results become tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.depends.results import Rows
from fleetctl.controllers.kinds.batchjob import BatchJob
from fleetctl.controllers.model import Resource
from fleetctl.controllers.reuse.rows import RowHolder, RowIndexes, assigned, holder
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.registry import dump_spec, parse_spec
from fleetctl.specs.values.hashing import params_hash
from fleetctl.stores.base import RunStore
from fleetctl.tracking.annotations import INDEXES, pins_of

if TYPE_CHECKING:
    from fleetctl.specs.values.scalars import Spec


def indexes_kept(runs: RunStore, spec: Spec, known: Resource | None) -> str:
    """The indexes of its rows, as a note keeps them; empty where each has its position, and of what
    has no rows. known: the object as it is stored.
    """
    if known is None or not isinstance(spec, BatchJobSpec) or not _has_rows(spec):
        return ""
    if json.loads(known.spec).get("tasks") == json.loads(dump_spec(spec)).get("tasks"):
        return known.annotations.get(INDEXES, "")
    assert spec.tasks is not None
    rows = [(at, params_hash(spec.params(at))) for at in range(spec.count() or 0)]
    return RowIndexes.of(assigned(rows, _holders(runs, known))).text()


def matched_rows(runs: RunStore, rows: Rows, known: Resource | None) -> Rows:
    """Results of another job under the indexes that equal ones have here; a new one has that of its
    giver where it is free.
    """
    if known is None:
        return rows
    digests = [(index, params_hash(params)) for index, params in rows.params.items()]
    indexes = assigned(digests, _holders(runs, known))
    return replace(rows, params=dict(zip(indexes, rows.params.values(), strict=True)))


def _has_rows(spec: BatchJobSpec) -> bool:
    tasks = spec.tasks
    return tasks is not None and (tasks.items is not None or tasks.matrix is not None)


def _holders(runs: RunStore, known: Resource) -> Iterator[RowHolder]:
    try:
        spec = parse_spec(known.kind, known.spec)
    except ValueError:
        return  # nobody can read it any more
    assert isinstance(spec, BatchJobSpec)
    job = BatchJob(spec, {}, pins_of(known.annotations))
    last = {run.index: run for run, _ in runs.of(known.uid)}
    desired = _desired(job)
    for index in sorted({*desired, *last}):
        yield holder(index, desired.get(index, ""), last.get(index), job.contents[0])


def _desired(job: BatchJob) -> Mapping[int, str]:
    """Params hash of each wanted task, by its index."""
    units = (job.unit(index) for index in job.indexes())
    return {unit.index: unit.params_hash for unit in units if unit is not None}
