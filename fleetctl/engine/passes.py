"""One pass over one resource inside a turn's transaction: load if needed, decide, check, write.

A resource whose pass raises stops only itself: it is logged, looked at ever more rarely, and its
status says so.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from controllers.cache import comparable
from controllers.estimate import estimate_of
from controllers.lint import lint
from controllers.model import Resource, Run, RunState
from controllers.plan import (
    SPILLED_OVER,
    TERMINAL_PHASES,
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
from controllers.reconcile import reconcile
from controllers.status import status_of
from controllers.wish import Wish
from fleetctl.engine.assetpasses import ASSET_KINDS, asset_plan, asset_status
from fleetctl.engine.budgets import BUDGET
from fleetctl.engine.caching import contents_of, fixed, lookup, take_over
from fleetctl.engine.market import KIND as PROVIDER
from fleetctl.engine.names import run_name
from fleetctl.engine.notes import ESTIMATE
from fleetctl.engine.providing import say_spills
from fleetctl.engine.track import Call, Track, last_values, load, score_of, track_of
from fleetctl.engine.warming import KIND as FUNCTION
from specs.hashing import canonical_json

if TYPE_CHECKING:
    from fleetctl.engine.loop import Engine


class Passes:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.wished: dict[str, Resource] = {}  # rows that a wish wrote since they were read

    def make(self, uid: str, now_s: float) -> None:
        """Decide for `uid` and write the decision. When this raises, the loop calls `failed`."""
        track = self.fresh_track(uid)
        if track is None:
            return
        kind = track.resource.kind
        if kind == PROVIDER:
            self._engine.provided()
        if self._sleeps(track, now_s):
            return
        if track.spec is None and track.history is None:
            self.read(track)
        if kind == BUDGET:
            self._budget(track, now_s)
        elif track.controller is None:
            plan = asset_plan(self._engine, track)
            self._carry_out(track, plan, now_s)
            status = asset_status(self._engine, track, plan, now_s)
            self._write_status(track, status)
        else:
            self._runs(track, now_s)

    def _sleeps(self, track: Track, now_s: float) -> bool:
        """It is over and not in memory, and nothing of it is to be freed yet."""
        if not track.dormant or track.controller is not None:
            return False
        free_at_s = track.free_at_s
        if free_at_s is None:
            return True
        if now_s < free_at_s:
            self._engine.queue.add(track.resource.uid, free_at_s)
            return True
        return False

    def _budget(self, track: Track, now_s: float) -> None:
        if track.resource.deleted_at_s is not None:
            self._drop(track)
        else:
            self._write_status(track, self._engine.budgets.status(track, now_s))

    def _runs(self, track: Track, now_s: float) -> None:
        """The pass of what has units."""
        assert track.history is not None
        wish = self._wish(track, now_s)
        plan = reconcile(wish, track.history, now_s)
        problems = lint(plan, track.history, parallelism=self._parallelism(track))
        assert not problems, "; ".join(problems)
        self._carry_out(track, plan, now_s)
        self._take_note(track, plan, now_s)
        self._tell(track, plan, wish, now_s)
        track.passes_failed = 0
        if track.dormant and not plan.actions:
            track.release()

    def _take_note(self, track: Track, plan: Plan, now_s: float) -> None:
        """What the plan tells others: who waits for room or money, what was learned, when next."""
        track.shortages.update(plan.shortages)
        say_spills(self._engine, track, plan)
        if plan.crowded:
            self._engine.admission.crowded(track, plan.crowded)
        if plan.denied is not None:
            self._engine.budgets.denied(track)
        if plan.wake_at_s is not None:
            self._engine.queue.add(track.resource.uid, max(plan.wake_at_s, now_s))

    def _tell(self, track: Track, plan: Plan, wish: Wish, now_s: float) -> None:
        """The status, and events about it; of one that the plan dropped there is nothing to say."""
        if track.resource.uid not in self._engine.tracks:
            return
        if not plan.final:
            assert track.history is not None
            before = track.status
            after = status_of(plan, wish, track.history, before, now_s)
            self._say_changes(track, before, plan)
            self._engine.budgets.say(track, wish.purse, after)
            self._write_status(track, after)
        elif track.asset.freed and not track.prior.scratch_freed:
            # Of a finished object nothing else changes; unwritten, each restart would free again.
            self._write_status(track, {**track.status, "scratchFreed": True})

    # -- reading -----------------------------------------------------------------------------------

    def read(self, track: Track) -> None:
        """Parse its spec and rebuild its history from the rows. Raises when it cannot be read."""
        load(track, self._engine.store.runs)
        self._own(track)
        self._look_up(track)

    def _look_up(self, track: Track) -> None:
        """Which of its units have succeeded before, elsewhere or here; asked once a reading."""
        track.cached, track.uncached = {}, ""
        track.contents.clear()
        contents = contents_of(self._engine.store, track, revision=self._pinned(track))
        if contents is not None and track.history is not None and not track.over:
            track.cached, track.uncached = lookup(contents, track.history)

    def _pinned(self, track: Track) -> str | None:
        """The commit that its runs have got of `source.git`; None where they have none, or work at
        different ones.
        """
        asked = comparable(track.controller) if track.controller is not None else None
        first = track.controller.unit(0) if track.controller is not None else None
        if asked is None or track.controller is None or first is None:
            return None
        template = asked.content(first.index)
        if template.source is None or template.source.git is None:
            return None
        uid, providers = track.resource.uid, self._engine.providers
        places = [it.provider for it in track.controller.policy.placement.candidates]
        told = {
            providers[name].revision(uid, template, first.template_hash)
            for name in places
            if name in providers
        }
        known = told - {""}
        return known.pop() if len(known) == 1 else None

    def fresh_track(self, uid: str) -> Track | None:
        """The track with the newest row; rebuilt when the spec changed, dropped when the row is
        gone.
        """
        engine = self._engine
        track = engine.tracks.get(uid)
        row = self.wished.pop(uid, None)
        if row is None:
            return track
        if track is None:
            track = engine.tracks[uid] = track_of(row)
        elif row.generation != track.resource.generation:
            track.resource = row
            track.spec, track.controller, track.history = None, None, None
            # The new generation's runs leave something again; a volume may have to be elsewhere.
            track.asset.freed, track.asset.ready = False, False
            track.forget_places()
        else:
            track.resource = row
            if row.deleted_at_s is not None and track.history is None:
                track.spec = None
        return track

    def _own(self, track: Track) -> None:
        if track.history is None:
            return
        for run in track.history.live.values():
            self._engine.owner_of[run.name] = track.resource.uid
            if run.state is not RunState.STARTING:
                self._engine.watcher.look(run.name)
        for box in track.history.sandboxes.values():
            self._engine.owner_of[box.last.name] = track.resource.uid

    def _wish(self, track: Track, now_s: float) -> Wish:
        assert track.controller is not None
        resource, engine = track.resource, self._engine
        return Wish(
            uid=resource.uid,
            generation=resource.generation,
            deleted=resource.deleted_at_s is not None,
            controller=track.controller,
            providers={
                name: provider.contract.default_parallelism
                for name, provider in engine.providers.items()
                if name not in engine.market.closing
            },
            prior=replace(track.prior, scratch_freed=True) if track.asset.freed else track.prior,
            waits={
                name: replace(wait, asking=name in track.calls and bool(track.calls[name].busy))
                for name, wait in track.waits.items()
            },
            offers=engine.market.offers(track),
            shortages=track.shortages,
            room=engine.admission.room(now_s),
            purse=engine.budgets.purse(track, now_s),
            cached=track.cached,
            uncached=track.uncached,
            swept=track.asset.swept,
            estimate=estimate_of(resource.annotations.get(ESTIMATE, "")),
        )

    def _parallelism(self, track: Track) -> int | None:
        assert track.controller is not None
        return track.controller.policy.parallelism

    # -- writing -----------------------------------------------------------------------------------

    def _carry_out(self, track: Track, plan: Plan, now_s: float) -> None:
        """The durable half of each action; effects.drive does the other half."""
        starts: list[Run] = []
        for action in plan.actions:
            match action:
                case Start():
                    starts.append(self._intent(track, action, now_s))
                case Reuse():
                    self._reuse(track, action, now_s)
                case Stop():
                    self._stop(track, action, now_s)
                case CloseSandbox():
                    assert track.history is not None
                    track.history.sandboxes.closing(action.sandbox)
                case EnsureVolume() | RemoveVolume() | EnsureFunction() | RemoveFunction():
                    pass
                case FreeScratch():
                    pass
                case Drop():
                    self._drop(track)
                case _:
                    assert_never(action)
        if starts:
            self._engine.store.runs.begin(starts)
            assert track.history is not None
            for run in starts:
                track.history.began(run)
                self._engine.owner_of[run.name] = track.resource.uid
                # Of an attempt that is new in the store, no earlier call was made.
                track.calls[run.name] = Call(nothing_made=True)
            self._begin_with(track, starts)
            self._engine.admission.started(track, starts, now_s)
        durable = Start | Reuse | Stop | Drop
        track.asset_actions = [a for a in plan.actions if not isinstance(a, durable)]

    def _intent(self, track: Track, start: Start, now_s: float) -> Run:
        assert track.controller is not None
        uid = track.resource.uid
        template = track.controller.template(start.index)
        name = run_name(self._engine.store.store_id, uid, start.index, start.attempt)
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
            usd_per_s=self._engine.market.price(start.provider, template, track.resource.namespace),
            placed=start.placed,
            usd=start.usd,
        )

    def _begin_with(self, track: Track, starts: list[Run]) -> None:
        """What the work is now, where a volume or a Function may be another by its end. Known here
        alone: of a run that outlives this controller, nobody takes the result over.
        """
        controller = track.controller
        asked = comparable(controller) if controller is not None else None
        contents = contents_of(self._engine.store, track)
        if contents is None or controller is None or asked is None:
            return
        for run in starts:
            unit = controller.unit(run.index)
            if unit is not None and not fixed(asked.content(run.index)):
                track.begun_with[run.name] = contents.of(unit).key

    def _reuse(self, track: Track, action: Reuse, now_s: float) -> None:
        """Record the unit as done. One whose result is dropped by now starts in the next pass."""
        assert track.history is not None and track.controller is not None
        store, uid = self._engine.store, track.resource.uid
        del track.cached[action.index]
        name = run_name(store.store_id, uid, action.index, action.attempt)
        taken = take_over(store, name, uid, action, now_s)
        if taken is None:
            return
        values = last_values(taken.metrics)
        store.runs.begin([replace(taken.run, state=RunState.STARTING, ended_at_s=None)])
        store.runs.advance(taken.run, result=taken.result, metrics=taken.metrics)
        score = score_of(track.controller, taken.run, taken.result, lambda: values)
        track.history.reused(taken.run, score=score)

    def _stop(self, track: Track, stop: Stop, now_s: float) -> None:
        assert track.history is not None
        run = track.history.live[stop.run]
        call = track.calls.get(run.name)
        if stop.reason == SPILLED_OVER and call is not None and _is_nowhere(run, call):
            ended = replace(run, state=RunState.STOPPED, reason=stop.reason, ended_at_s=now_s)
            self._engine.absorber.ended(track, ended)
            self._engine.queue.add(track.resource.uid)
            return
        self._engine.admission.stopped(run.provider, now_s)
        stopping = replace(run, state=RunState.STOPPING, reason=stop.reason)
        track.history.changed(stopping)
        track.waits.pop(run.name, None)
        if run.name in track.calls:
            # What its start waited for does not hold up the stop.
            track.calls[run.name].tries, track.calls[run.name].retry_at_s = 0, 0.0
        self._engine.absorber.changed(stopping)

    def _drop(self, track: Track) -> None:
        uid = track.resource.uid
        if track.resource.kind == FUNCTION:
            self._engine.budgets.warming.gone(track)
        self._engine.store.resources.delete(uid)
        self._engine.tracks.pop(uid, None)
        self._engine.queue.discard(uid)
        self._wake_assets()

    def _wake_assets(self) -> None:
        """One may wait for its last user, or for a deleted one of its name."""
        for track in self._engine.tracks.values():
            deleted = track.resource.deleted_at_s is not None
            waits = deleted or (track.resource.kind in ASSET_KINDS and not track.asset.ready)
            if track.resource.kind in (*ASSET_KINDS, PROVIDER) and waits:
                self._engine.queue.add(track.resource.uid)

    def _write_status(self, track: Track, status: dict[str, object]) -> None:
        resource = track.resource
        if resource.uid not in self._engine.tracks or status == track.status:
            return
        text = json.dumps(status, separators=(",", ":"))
        version = self._engine.store.resources.put_status(
            resource.uid, text, expected_version=resource.version
        )
        if version is None:
            # A wish was written in between; the next turn takes it in and writes its status.
            self._engine.queue.add(resource.uid)
            return
        track.resource = replace(resource, version=version, status=text)
        track.status = status
        if track.dormant:
            self._wake_assets()

    def _say_changes(self, track: Track, before: dict[str, object], plan: Plan) -> None:
        if before.get("phase") == plan.phase.value:
            return
        kind = "Warning" if plan.phase.value == "Failed" else "Normal"
        text = plan.message or f"{track.resource.key} is {plan.phase.value}"
        reason = plan.reason if plan.phase in TERMINAL_PHASES else plan.phase.value
        self._engine.say(track.resource.uid, reason, text, kind=kind)

    def failed(self, uid: str, error: Exception, now_s: float) -> None:
        """The pass of `uid` raised: leave it alone for a while, and say so."""
        engine = self._engine
        track = engine.tracks.get(uid)
        if track is None:
            return
        track.passes_failed += 1
        wait_s = min(
            engine.settings.retry_initial_s * 2.0 ** min(track.passes_failed, 20),
            engine.settings.pass_retry_max_s,
        )
        engine.queue.add(uid, now_s + wait_s)
        # What it holds in memory may be half changed; the next pass reads the rows back.
        track.spec, track.controller, track.history = None, None, None
        track.asset_actions = []
        text = f"this object cannot be handled by this version: {type(error).__name__}"
        engine.say(uid, "Quarantined", text, kind="Warning")
        status = {**track.status, "reason": "Quarantined", "message": text}
        status.setdefault("phase", "Pending")
        self._write_status(track, status)


def _is_nowhere(run: Run, call: Call) -> bool:
    """Every start of it was answered, and by no answer is a sandbox of it anywhere."""
    return call.nothing_made and not call.busy and not run.handle and run.sandbox == run.name
