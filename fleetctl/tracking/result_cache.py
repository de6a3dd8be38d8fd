"""Results of finished work that other work takes: equal units instead of running, and objects whose
tasks have them as parameters, with the indexes that such rows keep.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import isfinite, nan
from typing import TYPE_CHECKING

from fleetctl.common.errors import UsageError
from fleetctl.controllers.depends.results import (
    UNFIT,
    Params,
    ResultParameters,
    check_results,
    format_request,
)
from fleetctl.controllers.history.history import History
from fleetctl.controllers.kinds.batchjob import BatchJobController
from fleetctl.controllers.model import CACHED, LIVE_STATES, Metric, Resource, Run, RunState
from fleetctl.controllers.planning.kind_controller import KindController, Unit
from fleetctl.controllers.planning.plan import Reuse
from fleetctl.controllers.reuse.content_keys import (
    ContentFacts,
    ReuseKey,
    WorkContent,
    compute_content,
    find_hits,
    key_of,
    shares_results,
)
from fleetctl.controllers.reuse.row_matching import (
    RowHolder,
    RowIndexes,
    assign_indexes,
    make_holder,
)
from fleetctl.controllers.trials.winner import MissingInput
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.depends import FromResults
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.registry import dump_spec, parse_spec
from fleetctl.specs.values.hashing import canonical_json, params_hash
from fleetctl.stores.base import CachedSuccess, ReadableStore, ReuseScope, RunStore
from fleetctl.stores.read.query import SUCCEEDED, choose_rows
from fleetctl.tracking.annotations import INDEXES, MODELS, REVISION, pins_of, rerun_at_s
from fleetctl.tracking.load import work_of
from fleetctl.tracking.track import ResourceWork

if TYPE_CHECKING:
    from fleetctl.specs.values.scalars import Spec


_SHOWN = {
    RunState.SUCCEEDED: "Succeeded",
    RunState.STOPPED: "Cancelled",
    RunState.REFUSED: "Refused",
}


@dataclass(slots=True)
class UnitContents:
    """The contents of an object's units, worked out once a template.

    memo may be kept for templates that are `fixed`; for others it is right for one transaction.
    """

    store: ReadableStore
    spec: WorkSpec
    controller: KindController
    revision: str
    namespace: str
    among: ReuseScope
    models: str = ""  # as pinned: the names of its endpoints' models
    memo: dict[tuple[str, str], WorkContent] = field(default_factory=dict)

    def of(self, unit: Unit) -> WorkContent:
        at = (unit.template_hash, self.revision)
        if at not in self.memo:
            facts = _collect_facts(self, self.controller.content(unit.index))
            self.memo[at] = compute_content(self.spec, self.controller, unit.index, facts)
        return self.memo[at]


def contents_of(
    store: ReadableStore,
    work: ResourceWork,
    *,
    revision: str | None = None,
    replaced: Sequence[str] = (),
) -> UnitContents | None:
    """Returns the contents; None for objects without work. revision: of `source.path`, where
    another than that of the apply is known. replaced: uids of objects that it replaces.
    """
    spec = work.track.spec
    resource = work.resource
    if not isinstance(spec, WorkSpec):
        return None
    if revision is None:
        revision = resource.annotations.get(REVISION, "")
    notes = resource.annotations
    shared = shares_results(spec)
    if not shared and any(part.template.outputs for part in spec.parts()):
        replaced = ()  # outputs go with their object; those of this one stay with its attempts
    return UnitContents(
        store,
        spec,
        work.controller,
        revision,
        resource.namespace,
        models=notes.get(MODELS, ""),
        among=ReuseScope((resource.uid, *replaced), shared, rerun_at_s(notes)),
    )


def is_fixed(template: Template) -> bool:
    """Returns true where no other object determines its content."""
    return template.function is None and not template.volumes


def find_cached(contents: UnitContents, history: History) -> tuple[dict[int, ReuseKey], str]:
    """Returns (the units whose results are known, the reason why none can be or "")."""
    first = contents.controller.unit(contents.controller.first)
    why = contents.of(first).why if first is not None else ""
    recall = lru_cache(maxsize=None)(partial(contents.store.cache.recall, among=contents.among))
    return find_hits(contents.controller, history, contents.of, recall), why


@dataclass(frozen=True, slots=True)
class CachedRun:
    """A run that was not made: its record, and the data of the equal one."""

    run: Run
    result: str | None
    metrics: tuple[Metric, ...]


def take_over(
    contents: UnitContents,
    name: str,
    uid: str,
    action: Reuse,
    content: str,
    now_s: float,
) -> CachedRun | None:
    """Returns the run to record for `action`, with the content of its unit; None when its result
    was dropped in the meantime.
    """
    known = contents.store.cache.get(*action.key, contents.among)
    if known is None:
        return None
    run = Run(
        name=name,
        uid=uid,
        index=action.index,
        attempt=action.attempt,
        state=RunState.SUCCEEDED,
        provider="",
        sandbox=name,
        template_hash=action.template_hash,
        params=canonical_json(dict(action.params)),
        params_hash=action.params_hash,
        created_at_s=now_s,
        ended_at_s=now_s,
        reason=CACHED,
        content=content,
        message=f"the result of {known.object} {known.index}, run {known.run}",
        usd_per_s=0.0,
        usd=0.0,
        worth_s=known.duration_s,
        worth_usd=known.usd,
    )
    values: Mapping[str, float | None] = json.loads(known.metrics)
    metrics = tuple(
        Metric(
            seq,
            0,
            metric,
            nan if value is None else value,
            now_s,
        )
        for seq, (metric, value) in enumerate(values.items())
    )
    return CachedRun(run, known.result, metrics)


def remember_success(
    contents: UnitContents,
    unit: Unit,
    run: Run,
    *,
    owner: str,
    result: str | None,
    latest: Mapping[str, float],
) -> CachedSuccess | None:
    """Returns the data to store of a run of `unit` that has succeeded; None where it must not be
    reused."""
    key = key_of(contents.controller, contents.of(unit), unit)
    if key is None:
        return None
    values = {name: value if isfinite(value) else None for name, value in latest.items()}
    ended_at_s = run.ended_at_s if run.ended_at_s is not None else run.created_at_s
    return CachedSuccess(
        *key,
        result=result,
        metrics=canonical_json(values),
        run=run.name,
        object=owner,
        index=run.index,
        duration_s=None if run.started_at_s is None else max(0.0, ended_at_s - run.started_at_s),
        usd=run.cost_usd,
        ended_at_s=ended_at_s,
        owner=run.uid,
    )


def _collect_facts(of: UnitContents, own: Template) -> ContentFacts:
    store = of.store
    namespace = of.namespace
    whole, revision = _resolve_template(store, own, namespace)
    mounts = whole.volumes if whole is not None else ()
    rows = {it.name: store.resources.get("Volume", it.name, namespace) for it in mounts}
    volumes = {name: f"{row.uid}.{row.generation}" for name, row in rows.items() if row is not None}
    if own.function is None:
        revision = of.revision if own.source is not None else ""
    return ContentFacts(
        whole,
        volumes,
        revision,
        namespace,
        of.models,
    )


def _resolve_template(
    store: ReadableStore,
    own: Template,
    namespace: str,
) -> tuple[Template | None, str]:
    """Returns (the template with all fields of its Function, the revision of the Function's
    source); None when it is not declared.
    """
    if own.function is None:
        return own, ""
    row = store.resources.get("Function", own.function, namespace)
    if row is None:
        return None, ""
    spec = FunctionSpec.model_validate_json(row.spec)
    return spec.applied_to(own), row.annotations.get(REVISION, "")


def collect_result_rows(
    giver: Resource,
    given: FromResults,
    runs: RunStore,
) -> ResultParameters | MissingInput:
    """Returns its present results, by its newest spec; it must have finished."""
    work = work_of(giver, runs)
    newest = {run.index: (run, result) for run, result in runs.of(giver.uid)}
    newest = {
        index: newest[index]
        for index in sorted(newest)
        if work.controller.unit(index) is not None and not newest[index][0].put_aside
    }
    table = [_build_row(work, run, result) for run, result in newest.values()]
    try:
        indexes = choose_rows(table, given.where or SUCCEEDED)
    except UsageError as error:
        text = f"tasks.fromResults.where: {error}"
        return MissingInput(text, for_good=True, reason=UNFIT, hint=error.hint or "")
    found = check_results(given, giver.key, _list_results(newest, indexes))
    if isinstance(found, MissingInput):
        return found
    return ResultParameters(found, giver.uid, giver.generation, format_request(given))


def describe_results(rows: Mapping[int, Params], key: str) -> str:
    """Returns the rows as a sentence."""
    return f"{len(rows):,} result{'s'[: len(rows) != 1]} of {key}"


def _list_results(
    newest: Mapping[int, tuple[Run, str | None]], indexes: list[int]
) -> Iterator[tuple[int, str | None]]:
    for index in indexes:
        yield index, newest[index][1]


def _build_row(
    work: ResourceWork,
    run: Run,
    result: str | None,
) -> tuple[object, ...]:
    assert run.state not in LIVE_STATES, f"{run.name} runs, and its object has ended"
    took_s = None
    if run.started_at_s is not None and run.ended_at_s is not None:
        took_s = max(0.0, run.ended_at_s - run.started_at_s)
    unit = work.controller.unit(run.index)
    old = unit is not None and run.content not in ("", unit.content)
    return (
        run.index,
        _SHOWN.get(run.state, "Failed"),
        int(run.reason == CACHED),
        run.attempt,
        run.reason,
        run.exit_code,
        run.provider,
        run.params,
        took_s,
        run.cost_usd,
        result,
        run.content,
        int(old),
        run.name,
        run.message,
    )


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
