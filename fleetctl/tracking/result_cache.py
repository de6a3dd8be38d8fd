"""Results of equal work: looked up when an object is read, taken over by a pass, kept when a run
has succeeded.

Called by passes, take in and specs, inside their transactions. What is equal,
controllers/reuse/cache.py decides; this file brings it the facts that the store has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import isfinite, nan

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import CACHED, Metric, Run, RunState
from fleetctl.controllers.planning.kind import KindController, Unit
from fleetctl.controllers.planning.plan import Reuse
from fleetctl.controllers.reuse.cache import Content, Facts, Key, content, found, key_of, shares
from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.stores.base import Remembered, Reusable, Stored
from fleetctl.tracking.annotations import MODELS, REVISION, rerun_at_s
from fleetctl.tracking.track import Work


@dataclass(slots=True)
class Contents:
    """The contents of one object's units, worked out once a template.

    memo may be kept for templates that are `fixed`; of others it is right for one transaction.
    """

    store: Stored
    spec: Execution
    controller: KindController
    revision: str
    namespace: str
    among: Reusable
    models: str = ""  # as pinned: what its endpoints call them
    memo: dict[tuple[str, str], Content] = field(default_factory=dict)

    def of(self, unit: Unit) -> Content:
        at = (unit.template_hash, self.revision)
        if at not in self.memo:
            facts = _facts(self, self.controller.content(unit.index))
            self.memo[at] = content(self.spec, self.controller, unit.index, facts)
        return self.memo[at]


def contents_of(
    store: Stored, work: Work, *, revision: str | None = None, replaced: Sequence[str] = ()
) -> Contents | None:
    """None for objects that run nothing. revision: of `source.path`, where another than that of the
    apply is known. replaced: uids of objects whose place it takes.
    """
    spec, resource = work.track.spec, work.resource
    if not isinstance(spec, Execution):
        return None
    if revision is None:
        revision = resource.annotations.get(REVISION, "")
    notes = resource.annotations
    return Contents(
        store,
        spec,
        work.controller,
        revision,
        resource.namespace,
        models=notes.get(MODELS, ""),
        among=Reusable((resource.uid, *replaced), shares(spec), rerun_at_s(notes)),
    )


def fixed(template: Template) -> bool:
    """No other object has a say in what it is."""
    return template.function is None and not template.volumes


def lookup(contents: Contents, history: History) -> tuple[dict[int, Key], str]:
    """(the units whose results are known, a sentence why none can be or nothing)."""
    first = contents.controller.unit(contents.controller.first)
    why = contents.of(first).why if first is not None else ""
    recall = lru_cache(maxsize=None)(partial(contents.store.cache.recall, among=contents.among))
    return found(contents.controller, history, contents.of, recall), why


@dataclass(frozen=True, slots=True)
class Taken:
    """A run that was not made: its record, and what the equal one left."""

    run: Run
    result: str | None
    metrics: tuple[Metric, ...]


def take_over(
    contents: Contents, name: str, uid: str, action: Reuse, content: str, now_s: float
) -> Taken | None:
    """The run to record for `action`, with the content of its unit; None when its result was
    dropped in the meantime.
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
        Metric(seq, 0, metric, nan if value is None else value, now_s)
        for seq, (metric, value) in enumerate(values.items())
    )
    return Taken(run, known.result, metrics)


def success(
    contents: Contents,
    unit: Unit,
    run: Run,
    *,
    owner: str,
    result: str | None,
    latest: Mapping[str, float],
) -> Remembered | None:
    """What to keep of a run of `unit` that has succeeded; None where nobody may use it again."""
    key = key_of(contents.controller, contents.of(unit), unit)
    if key is None:
        return None
    values = {name: value if isfinite(value) else None for name, value in latest.items()}
    ended_at_s = run.ended_at_s if run.ended_at_s is not None else run.created_at_s
    return Remembered(
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


def _facts(of: Contents, own: Template) -> Facts:
    store, namespace = of.store, of.namespace
    whole, revision = _whole(store, own, namespace)
    mounts = whole.volumes if whole is not None else ()
    rows = {it.name: store.resources.get("Volume", it.name, namespace) for it in mounts}
    volumes = {name: f"{row.uid}.{row.generation}" for name, row in rows.items() if row is not None}
    if own.function is None:
        revision = of.revision if own.source is not None else ""
    return Facts(whole, volumes, revision, namespace, of.models)


def _whole(store: Stored, own: Template, namespace: str) -> tuple[Template | None, str]:
    """(the template with all that its Function says, the revision of that one's source); None when
    it is not declared.
    """
    if own.function is None:
        return own, ""
    row = store.resources.get("Function", own.function, namespace)
    if row is None:
        return None, ""
    spec = parse_spec("Function", row.spec)
    assert isinstance(spec, FunctionSpec)
    return spec.applied_to(own), row.annotations.get(REVISION, "")
