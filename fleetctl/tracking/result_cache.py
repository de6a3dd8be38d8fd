"""Results of equal work: looked up when an object is read, taken over by a pass, stored when a run
has succeeded.

Called by passes, take in and specs, inside their transactions. controllers/reuse/content_keys.py
decides on equality; this file brings it the facts from the store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import isfinite, nan

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import CACHED, Metric, Run, RunState
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
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.stores.base import CachedSuccess, ReadableStore, ReuseScope
from fleetctl.tracking.annotations import MODELS, REVISION, rerun_at_s
from fleetctl.tracking.track import ResourceWork


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
