"""The durable half of a plan: what each action writes. execute/executor.py does the other half."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

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
from fleetctl.engine.capacity.prices import KIND as PROVIDER
from fleetctl.engine.decide.assets import ASSET_KINDS
from fleetctl.engine.execute.leftovers import leftover
from fleetctl.engine.kinds.endpoints.endpoints import KIND as ENDPOINT
from fleetctl.engine.money.warm_functions import KIND as FUNCTION
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.tracking.annotations import SCHEDULED_BY
from fleetctl.tracking.load import last_values, score_of
from fleetctl.tracking.result_cache import contents_of, fixed, take_over
from fleetctl.tracking.run_names import run_name
from fleetctl.tracking.track import Call, Track, Work

_DURABLE = Start | Reuse | Stop | Drop  # done with the tick's transaction; the others are calls

if TYPE_CHECKING:
    from fleetctl.engine.capacity.admission import Admission
    from fleetctl.engine.capacity.prices import Market
    from fleetctl.engine.execute.leftovers import Leftovers
    from fleetctl.engine.money.budgets import Budgets
    from fleetctl.engine.observe.records import Records
    from fleetctl.engine.shared.state import State


class Intents:
    """Writes in the tick's transaction what is to be done after it.

    drop_call: leaves the call of a run where it is, and hears no more of it. gone: hears of each
    object of which nothing is left.
    """

    def __init__(
        self,
        state: State,
        *,
        records: Records,
        admission: Admission,
        market: Market,
        budgets: Budgets,
        leftovers: Leftovers,
        drop_call: Callable[[str], None],
        gone: Callable[[Resource], None],
    ) -> None:
        self._state, self._records, self._admission = state, records, admission
        self._market, self._budgets, self._leftovers = market, budgets, leftovers
        self._drop_call, self._gone = drop_call, gone

    def record_asset(self, track: Track, plan: Plan) -> None:
        """What is to be called for a volume or a function; nothing of it but its end is a row."""
        if any(isinstance(action, Drop) for action in plan.actions):
            self.drop(track)
        track.asset_actions = [a for a in plan.actions if not isinstance(a, _DURABLE)]

    def record(self, work: Work, plan: Plan, now_s: float) -> None:
        """The durable half of each action; execute/executor.py does the other half."""
        track = work.track
        starts: list[Run] = []
        for action in plan.actions:
            match action:
                case Start():
                    starts.append(self._intent(work, action, now_s))
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
                # Of an attempt that is new in the store, no earlier call was made.
                track.calls[run.name] = Call(nothing_made=True)
            self._begin_with(work, starts)
            self._admission.started(track, starts, now_s)
        track.asset_actions = [a for a in plan.actions if not isinstance(a, _DURABLE)]

    def _intent(self, work: Work, start: Start, now_s: float) -> Run:
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

    def _begin_with(self, work: Work, starts: list[Run]) -> None:
        """What the work is now, where a volume or a Function may be another by its end. Known here
        alone: of a run that outlives this controller, nobody takes the result over.
        """
        controller = work.controller
        contents = contents_of(self._state.store, work)
        if contents is None or controller is None:
            return
        for run in starts:
            unit = controller.unit(run.index)
            if unit is not None and not fixed(controller.content(run.index)):
                work.track.begun_with[run.name] = contents.of(unit).key

    def _reuse(self, work: Work, action: Reuse, now_s: float) -> None:
        """Record the unit as done. One whose result is dropped by now starts in the next pass."""
        store, uid = self._state.store, work.resource.uid
        del work.cached[action.index]
        name = run_name(store.store_id, uid, action.index, action.attempt)
        unit = work.controller.unit(action.index)
        assert unit is not None, f"unit {action.index} is done and not wanted"
        contents = contents_of(store, work)
        assert contents is not None, f"{work.resource.key} runs nothing"
        taken = take_over(contents, name, uid, action, unit.content, now_s)
        if taken is None:
            return
        values = last_values(taken.metrics)
        store.runs.begin([replace(taken.run, state=RunState.STARTING, ended_at_s=None)])
        store.runs.advance(taken.run, result=taken.result, metrics=taken.metrics)
        score = score_of(work.controller, taken.run, taken.result, lambda: values)
        work.history.reused(taken.run, score=score)

    def _stop(self, work: Work, stop: Stop, now_s: float) -> None:
        track = work.track
        run = work.history.live[stop.run]
        call = track.calls.get(run.name)
        if call is not None and _is_nowhere(run, call):
            self._records.stopped(work, run, stop.reason, stop.message, now_s=now_s)
            self._state.queue.add(track.resource.uid)
            return
        self._admission.stopped(run.provider, now_s)
        stopping = replace(run, state=RunState.STOPPING, reason=stop.reason, message=stop.message)
        work.history.changed(stopping)
        track.waits.pop(run.name, None)
        if run.name in track.calls:
            # What its start waited for does not hold up the stop.
            track.calls[run.name].tries, track.calls[run.name].retry_at_s = 0, 0.0
        self._records.changed(stopping)

    def abandon(self, work: Work, now_s: float) -> None:
        """Somebody wants the object gone, confirmed or not: nothing of it has a record any more,
        and what may be there is ended in the background, by the sweep at the latest.
        """
        history = work.history
        for box in [box for box in history.sandboxes.values() if not box.busy]:
            self._leftovers.end(leftover(box.last))
            self._records.closed(work, box.name)
        for run in list(history.live.values()):
            call = work.track.calls.get(run.name)
            self._drop_call(run.name)
            if call is None or not _is_nowhere(run, replace(call, busy="")):
                self._leftovers.end(leftover(run))
            self._records.stopped(work, run, "Abandoned", now_s=now_s)

    def drop(self, track: Track) -> None:
        uid = track.resource.uid
        if track.resource.kind == FUNCTION:
            self._budgets.warming.gone(track, self._budgets.shared(track.resource))
        self._state.store.cache.forget(uid)
        self._state.store.calls.forget(uid)
        self._state.store.resources.delete(uid)
        self._state.tracks.let_go(uid)
        self._state.dependents.let_go(uid)
        self._state.queue.discard(uid)
        self._state.changed(uid)
        if owner := track.resource.annotations.get(SCHEDULED_BY):
            self._state.queue.add(owner)  # it waits for this end, perhaps
        self._gone(track.resource)
        self.wake_assets()

    def wake_assets(self) -> None:
        """One may wait for its last user, or for a deleted one of its name."""
        for track in self._state.tracks.assets.values():
            deleted = track.resource.deleted_at_s is not None
            waits = deleted or (track.resource.kind in ASSET_KINDS and not track.asset.ready)
            if track.resource.kind in (*ASSET_KINDS, PROVIDER, ENDPOINT) and waits:
                self._state.queue.add(track.resource.uid)


def _is_nowhere(run: Run, call: Call) -> bool:
    """Every start of it was answered, and by no answer is a sandbox of it anywhere."""
    return call.nothing_made and not call.busy and not run.handle and run.sandbox == run.name
