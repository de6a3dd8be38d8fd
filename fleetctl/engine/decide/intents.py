"""Writes the durable half of a plan: the rows of each action, also for objects without runs, such
as volumes and functions. execute/executor.py does the other half.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from fleetctl.controllers.kinds.assets import DesiredAsset, reconcile_asset
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.controllers.planning.plan import (
    CloseSandbox,
    Drop,
    EnsureFunction,
    EnsureVolume,
    FreeScratch,
    Plan,
    RemoveFunction,
    RemoveVolume,
    Reuse,
    Start,
    Stop,
)
from fleetctl.controllers.status import plan_status
from fleetctl.controllers.status_keys import Status
from fleetctl.engine.capacity.price_book import KIND as PROVIDER
from fleetctl.engine.capacity.price_book import asset_provider, list_users
from fleetctl.engine.execute.orphan_sweep import make_leftover
from fleetctl.specs.content import list_called_endpoints
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.specs.values.hints import HintedText
from fleetctl.tracking.load import last_values, score_of
from fleetctl.tracking.result_cache import contents_of, is_fixed, take_over
from fleetctl.tracking.track import ResourceWork, RunCalls, Track, run_name

if TYPE_CHECKING:
    from fleetctl.engine.capacity.admission import ProviderAdmission
    from fleetctl.engine.capacity.price_book import PriceBook
    from fleetctl.engine.execute.orphan_sweep import Leftovers
    from fleetctl.engine.observe.records import Records
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.engine.shared.part import EngineParts


_DURABLE = Start | Reuse | Stop | Drop  # done with the tick's transaction; the others are calls

# Kinds whose objects represent an asset of a provider.
ASSET_KINDS = frozenset({"Volume", "Function"})
# Kinds whose deleted objects wait for the objects that use them.
USED_KINDS = ASSET_KINDS | {PROVIDER, "Endpoint"}
_USERS = frozenset({*CONTROLLERS, "Function", "Endpoint"})


class Intents:
    """Writes in the tick's transaction the actions to take after it.

    drop_call: leaves the call of a run running, and ignores its result.
    """

    def __init__(
        self,
        state: EngineState,
        *,
        records: Records,
        admission: ProviderAdmission,
        market: PriceBook,
        leftovers: Leftovers,
        drop_call: Callable[[str], None],
        parts: EngineParts,
    ) -> None:
        self._state = state
        self._records = records
        self._admission = admission
        self._market = market
        self._leftovers = leftovers
        self._drop_call = drop_call
        self._parts = parts

    def record_asset(self, track: Track, plan: Plan) -> None:
        """Sets the calls to make for a volume or a function; stores only that it was removed."""
        if any(isinstance(action, Drop) for action in plan.actions):
            self.drop(track)
        track.asset_actions = [a for a in plan.actions if not isinstance(a, _DURABLE)]

    def record(
        self,
        work: ResourceWork,
        plan: Plan,
        now_s: float,
    ) -> None:
        """Writes the durable half of each action; execute/executor.py does the other half."""
        track = work.track
        starts: list[Run] = []
        for action in plan.actions:
            match action:
                case Start():
                    starts.append(self._make_run(work, action, now_s))
                case Reuse():
                    self._reuse(work, action, now_s)
                case Stop():
                    self._stop(work, action, now_s)
                case CloseSandbox():
                    work.history.sandboxes.closing(action.sandbox)
                case EnsureVolume() | RemoveVolume() | EnsureFunction() | RemoveFunction():
                    pass
                case FreeScratch():
                    pass
                case Drop():
                    self.drop(track)
                case _:
                    assert_never(action)
        if starts:
            self._state.store.runs.begin(starts)
            for run in starts:
                work.history.began(run)
                self._state.owner_of[run.name] = track.resource.uid
                # An attempt that is new in the store has no earlier call.
                track.calls[run.name] = RunCalls(nothing_made=True)
            self._note_contents(work, starts)
            self._admission.started(track, starts, now_s)
        track.asset_actions = [a for a in plan.actions if not isinstance(a, _DURABLE)]

    def _make_run(
        self,
        work: ResourceWork,
        start: Start,
        now_s: float,
    ) -> Run:
        uid = work.resource.uid
        template = work.controller.template(start.index)
        unit = work.controller.unit(start.index)
        assert unit is not None, f"unit {start.index} starts and is not wanted"
        handed = work.controller.handed
        name = run_name(self._state.store.store_id, uid, start.index, start.attempt)
        return Run(
            name=name,
            uid=uid,
            index=start.index,
            attempt=start.attempt,
            state=RunState.STARTING,
            provider=start.provider,
            sandbox=start.sandbox or name,
            template_hash=start.template_hash,
            params=canonical_json(dict(start.params)),
            params_hash=start.params_hash,
            created_at_s=now_s,
            usd_per_s=self._market.price(start.provider, template, work.resource.namespace),
            placed=start.placed,
            usd=start.usd,
            queued=start.queued,
            content=unit.content,
            wandb="" if handed is None else handed.run_ids.get(start.index, ""),
        )

    def _note_contents(self, work: ResourceWork, starts: list[Run]) -> None:
        """Notes the content that each new run starts with, as a volume or a Function may change
        before the run ends. In memory alone: the result of a run that outlives this controller is
        not reused.
        """
        controller = work.controller
        contents = contents_of(self._state.store, work)
        if contents is None or controller is None:
            return
        for run in starts:
            unit = controller.unit(run.index)
            if unit is not None and not is_fixed(controller.content(run.index)):
                work.track.begun_with[run.name] = contents.of(unit).key

    def _reuse(
        self,
        work: ResourceWork,
        action: Reuse,
        now_s: float,
    ) -> None:
        """Records the unit as done. If the cached result has been deleted since the plan, the unit
        starts in the next pass.
        """
        store = self._state.store
        uid = work.resource.uid
        del work.cached[action.index]
        name = run_name(store.store_id, uid, action.index, action.attempt)
        unit = work.controller.unit(action.index)
        assert unit is not None, f"unit {action.index} is done and not wanted"
        contents = contents_of(store, work)
        assert contents is not None, f"{work.resource.key} runs nothing"
        copied = take_over(
            contents,
            name,
            uid,
            action,
            unit.content,
            now_s,
        )
        if copied is None:
            return
        values = last_values(copied.metrics)
        store.runs.begin([replace(copied.run, state=RunState.STARTING, ended_at_s=None)])
        store.runs.advance(copied.run, result=copied.result, metrics=copied.metrics)
        score = score_of(work.controller, copied.run, copied.result, lambda: values)
        work.history.reused(copied.run, score=score)
        for part in self._parts.awake_for("run_ended", work.track):
            part.run_ended(work, copied.run, copied.result)

    def _stop(
        self,
        work: ResourceWork,
        stop: Stop,
        now_s: float,
    ) -> None:
        track = work.track
        run = work.history.live[stop.run]
        call = track.calls.get(run.name)
        if call is not None and _has_no_sandbox(run, call):
            self._records.stopped(
                work,
                run,
                stop.reason,
                HintedText(stop.message),
                now_s=now_s,
            )
            self._state.queue.add(track.resource.uid)
            return
        self._admission.stopped(run.provider, now_s)
        stopping = replace(
            run,
            state=RunState.STOPPING,
            reason=stop.reason,
            message=stop.message,
            hint="",
        )
        work.history.changed(stopping)
        track.waits.pop(run.name, None)
        if run.name in track.calls:
            # The delay of its start must not hold up the stop.
            track.calls[run.name].tries, track.calls[run.name].retry_at_s = 0, 0.0
        self._records.changed(stopping)

    def abandon(self, work: ResourceWork, now_s: float) -> None:
        """Removes the object on a user's request, confirmed or not: all its records are dropped,
        and remaining sandboxes are ended in the background, by the sweep at the latest.
        """
        history = work.history
        for box in [box for box in history.sandboxes.values() if not box.busy]:
            self._leftovers.end(make_leftover(box.last))
            self._records.closed(work, box.name)
        for run in list(history.live.values()):
            call = work.track.calls.get(run.name)
            self._drop_call(run.name)
            if call is None or not _has_no_sandbox(run, replace(call, busy="")):
                self._leftovers.end(make_leftover(run))
            self._records.stopped(work, run, "Abandoned", now_s=now_s)

    def drop(self, track: Track) -> None:
        """Deletes the object and all its records, and forgets it in memory."""
        uid = track.resource.uid
        for part in self._parts.that("dropped"):
            part.dropped(track)
        self._state.store.cache.forget(uid)
        self._state.store.calls.forget(uid)
        self._state.store.resources.delete(uid)
        self._state.tracks.let_go(uid)
        self._state.dependents.let_go(uid)
        self._state.queue.discard(uid)
        self._state.changed(uid)
        self.wake_assets()

    def wake_assets(self) -> None:
        """Wakes the assets: one may wait for its last user, or for a deleted one of its name."""
        for track in self._state.tracks.assets.values():
            deleted = track.resource.deleted_at_s is not None
            waits = deleted or (track.resource.kind in ASSET_KINDS and not track.asset.ready)
            if track.resource.kind in USED_KINDS and waits:
                self._state.queue.add(track.resource.uid)


def _has_no_sandbox(run: Run, call: RunCalls) -> bool:
    """Returns true if every start has a reply, and no reply shows a sandbox anywhere."""
    return call.nothing_made and not call.busy and not run.handle and run.sandbox == run.name


def asset_plan(
    state: EngineState,
    market: PriceBook,
    track: Track,
    lacking: tuple[str, HintedText] | None = None,
) -> Plan:
    """Plans which asset to make or remove. lacking: reason and sentence of a missing requirement,
    such as a server.
    """
    return reconcile_asset(replace(_desired_asset(state, market, track), lacking=lacking))


def asset_status(track: Track, plan: Plan) -> Status:
    """Returns the status once the durable part of the plan is carried out."""
    return {**plan_status(plan), "observedGeneration": track.resource.generation}


def _desired_asset(
    state: EngineState,
    market: PriceBook,
    track: Track,
) -> DesiredAsset:
    resource = track.resource
    asset = track.asset
    abandoned = resource.deleted_at_s is not None and resource.uid in state.abandoned
    twins = _find_twins(state, resource)
    return DesiredAsset(
        uid=resource.uid,
        kind=resource.kind,
        name=resource.name,
        deleted=resource.deleted_at_s is not None,
        provider=getattr(track.spec, "provider", ""),
        delete_data=getattr(track.spec, "deletion_policy", "Retain") == "Delete",
        ready=asset.ready,
        removed=asset.removed or abandoned,
        users=tuple(_list_asset_users(state, market, resource))
        if resource.deleted_at_s and not abandoned
        else (),
        heir=any(twin.resource.deleted_at_s is None for twin in twins),
        removing=any(it.asset.busy for it in ([track] if resource.deleted_at_s else twins)),
        problem=asset.problem,
    )


def _list_asset_users(
    state: EngineState,
    market: PriceBook,
    used: Resource,
) -> list[str]:
    """Returns the keys of unfinished objects that name this volume or function; for a provider, of
    all objects that still use it.
    """
    if used.uid in market.closing_uids:
        return sorted(list_users(state.tracks, used.name))
    return [
        track.resource.key
        for track in state.tracks.values()
        if track.resource.kind in _USERS
        and not track.over
        and track.resource.namespace == used.namespace
        and (used.kind, used.name) in _list_named(track.resource)
    ]


def _find_twins(state: EngineState, resource: Resource) -> list[Track]:
    """Returns the other assets of this name at this provider; at most one is not deleted."""
    return [
        track
        for track in state.tracks.of_kind(resource.kind)
        if resource.kind in ASSET_KINDS
        and track.resource.name == resource.name
        and track.resource.namespace == resource.namespace
        and track.resource.uid != resource.uid
        and asset_provider(track.resource) == asset_provider(resource)
    ]


def _list_named(resource: Resource) -> set[tuple[str, str]]:
    """Returns (kind, name) of the assets that a stored spec names, read without its model."""
    spec = json.loads(resource.spec)
    template = spec.get("template") or spec  # a Function has its program at the top level
    named = {("Volume", mount["name"]) for mount in template.get("volumes", ())}
    named |= {("Endpoint", name) for name in list_called_endpoints(spec)}
    named |= {("Function", it["function"]) for it in spec.get("servers", ()) if "function" in it}
    return named | ({("Function", template["function"])} if "function" in template else set())
