"""One pass over one resource inside a tick's transaction: load if needed, decide, check, write.

A resource whose pass raises stops only itself: it is logged, looked at less and less often, and its
status shows the error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.budget import estimate_of
from fleetctl.controllers.depends.edges import needed_by
from fleetctl.controllers.planning.plan import TERMINAL_PHASES, Plan, lint_plan
from fleetctl.controllers.reconcile import reconcile_object
from fleetctl.controllers.schedule.desired import DesiredObject, StartWait
from fleetctl.controllers.status import status_of
from fleetctl.controllers.trials.winner import MissingInput, explain_unreachable
from fleetctl.engine.capacity.price_book import terms_of
from fleetctl.engine.decide.dependencies import NOTHING, DependencyCheck
from fleetctl.engine.decide.intents import asset_plan, asset_status
from fleetctl.engine.money.budgets import say_money
from fleetctl.engine.shared.due_queue import key_of
from fleetctl.engine.shared.part import EnginePart, EngineParts, WorkDecision
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.tracking.annotations import ESTIMATE
from fleetctl.tracking.track import ResourceWork, Track

if TYPE_CHECKING:
    from fleetctl.engine.capacity.price_book import PriceBook
    from fleetctl.engine.decide.dependencies import Dependencies
    from fleetctl.engine.decide.intents import Intents
    from fleetctl.engine.decide.work_loader import WorkLoader
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.engine.sleeping import Sleepers


# The keys of a status that other objects may wait for.
_WAITED_FOR = ("phase", "observedGeneration")


class Passes:
    def __init__(
        self,
        state: EngineState,
        *,
        reading: WorkLoader,
        dependencies: Dependencies,
        intents: Intents,
        market: PriceBook,
        sleepers: Sleepers,
        parts: EngineParts,
    ) -> None:
        self._state = state
        self._reading = reading
        self._intents = intents
        self._dependencies = dependencies
        self._market = market
        self._sleepers = sleepers
        self._parts = parts

    def make(self, uid: str, now_s: float) -> None:
        """Decides for `uid` and writes the decision. When this raises, the loop calls `failed`."""
        track = self._reading.fresh_track(uid)
        if track is None:
            return
        part = self._parts.of_kind(track.resource.kind)
        if part is not None:
            part.begin_pass(track)
        if self._sleeps(track, now_s):
            return
        if track.spec is None and track.work is None:
            self._reading.read(track)
        if track.work is not None:
            self._runs(track.work, now_s)
        elif part is not None and part.makes_passes:
            self._carry_out(part, track, now_s)
        else:
            self._asset(part, track, now_s)

    def _sleeps(self, track: Track, now_s: float) -> bool:
        """Returns true if it has finished, none of its runs is known, and no asset has to be freed
        yet.
        """
        if not track.dormant or track.work is not None:
            return False
        if track.resource.uid in self._state.past_retention and not track.prior.scratch_freed:
            return False
        free_at_s = track.free_at_s
        if free_at_s is not None and free_at_s <= now_s:
            return False
        self._sleepers.put(track)
        return True

    def _carry_out(
        self,
        part: EnginePart,
        track: Track,
        now_s: float,
    ) -> None:
        """Runs the pass of an object that its part decides for."""
        if track.resource.deleted_at_s is None:
            self._write_status(track, part.run_pass(track, now_s))
        elif (going := part.remove(track)) is not None:
            self._write_status(track, going)
        else:
            self._intents.drop(track)

    def _asset(
        self,
        part: EnginePart | None,
        track: Track,
        now_s: float,
    ) -> None:
        """Runs the pass of an asset, which has no runs."""
        tracked = track.resource.uid in self._state.tracks
        lacking = part.find_lack(track) if part is not None and tracked else None
        plan = asset_plan(self._state, self._market, track, lacking)
        if part is not None:
            plan = part.limit_asset(track, plan)
        self._intents.record_asset(track, plan)
        status = asset_status(track, plan)
        if part is not None and track.resource.uid in self._state.tracks:
            status = part.add_status(track, status, now_s)
        self._write_status(track, status)

    def _runs(self, work: ResourceWork, now_s: float) -> None:
        """Runs the pass of an object with units."""
        track = work.track
        if self._is_abandoned(track) and (work.history.live or work.history.sandboxes):
            self._intents.abandon(work, now_s)
            self._state.queue.add(track.resource.uid)  # the next pass drops it
            return

        work, lacking = self._reading.settle(work)
        for part in self._parts.awake_for("begin_work", track):
            part.begin_work(work)
        if work.controller.handed is not None:
            lacking = explain_unreachable(work.controller.handed)
        asked = NOTHING
        if needed := needed_by(work.track.spec):
            work, asked = self._dependencies.ask(work, needed)
        desired = self._desired(work, lacking, asked, now_s)
        plan = reconcile_object(desired, work.history, now_s)
        problems = lint_plan(plan, work.history, parallelism=self._parallelism(work))
        assert not problems, "; ".join(problems)
        if not asked.begun and not self._dependencies.note(work, asked, plan):
            return

        self._intents.record(work, plan, now_s)
        track.shortages.update(plan.shortages)
        decision = WorkDecision(work, desired, plan, now_s)
        for part in self._parts.awake_for("take_decision", track):
            part.take_decision(decision)
        if plan.wake_at_s is not None:
            self._state.queue.add(track.resource.uid, max(plan.wake_at_s, now_s))
        self._report_decision(decision)

        track.passes_failed = 0
        if track.dormant and not plan.actions:
            track.release()
            self._sleeps(track, now_s)

    def _report_decision(self, decision: WorkDecision) -> None:
        """Writes the status and the events of a decision; a dropped object has neither."""
        work = decision.work
        desired = decision.desired
        plan = decision.plan
        track = work.track
        if track.resource.uid not in self._state.tracks:
            return
        if not plan.final:
            self._state.past_retention.pop(track.resource.uid, None)
            before = track.status
            after = status_of(
                plan,
                desired,
                work.history,
                before,
                decision.now_s,
            )
            self._say_changes(track, before, plan)
            if desired.allowance.accounts:
                say_money(self._state, track, desired.allowance, after)
            self._write_status(track, after)
        elif track.asset.freed and not track.prior.scratch_freed:
            # A finished object's status changes only here; unwritten, each restart would free
            # again.
            self._write_status(track, {**track.status, "scratchFreed": True})
            if why := self._state.past_retention.pop(track.resource.uid, ""):
                self._state.say(track.resource.uid, "PastRetention", why)

    def _desired(
        self,
        work: ResourceWork,
        lacking: MissingInput | None,
        asked: DependencyCheck,
        now_s: float,
    ) -> DesiredObject:
        track = work.track
        resource = track.resource
        state = self._state
        inputs = self._parts.list_inputs(work, now_s)
        if self._is_abandoned(track):
            inputs["before_removal"] = ""
        return DesiredObject(
            uid=resource.uid,
            generation=resource.generation,
            deleted=resource.deleted_at_s is not None,
            controller=work.controller,
            providers={
                name: provider.contract.default_parallelism
                for name, provider in state.providers.items()
                if name not in self._market.closing
            },
            prior=replace(track.prior, scratch_freed=True) if track.asset.freed else track.prior,
            waits=_list_waits(track, inputs.get("batched", "")),
            held=track.held,
            offers=self._market.offers(work),
            terms={name: terms_of(state, name) for name in state.providers},
            shortages=track.shortages,
            cached=work.cached,
            uncached=work.uncached,
            lacking=asked.lacking or lacking,
            blocked=asked.lacking is not None,
            dependencies=asked.found,
            swept=track.asset.swept or self._is_abandoned(track),
            past_retention=self._state.past_retention.get(resource.uid, ""),
            estimate=estimate_of(resource.annotations.get(ESTIMATE, "")),
            **inputs,
        )

    def _is_abandoned(self, track: Track) -> bool:
        deleted = track.resource.deleted_at_s is not None
        return deleted and track.resource.uid in self._state.abandoned

    def _parallelism(self, work: ResourceWork) -> int | None:
        return work.controller.policy.parallelism

    def _write_status(self, track: Track, status: Mapping[str, object]) -> None:
        resource = track.resource
        if resource.uid not in self._state.tracks or status == track.status:
            return
        text = json.dumps(status, separators=(",", ":"))
        version = self._state.store.resources.put_status(
            resource.uid, text, expected_version=resource.version
        )
        if version is None:
            # A spec was written in between; the next tick takes it in and writes its status.
            self._state.queue.add(resource.uid)
            return
        track.resource = replace(resource, version=version, status=text)
        before, track.status = track.status, dict(status)
        moved = any(before.get(key) != status.get(key) for key in _WAITED_FOR)
        self._state.changed(resource.uid)
        for part in self._parts.awake_for("status_written", track):
            part.status_written(track, before, status)
        for part in self._parts.awake("object_moved") if moved else ():
            part.object_moved(track)
        if track.dormant:
            self._intents.wake_assets()
        if moved and KINDS[resource.kind].runs:
            for uid in self._state.dependents.of(key_of(resource)):
                self._state.queue.add(uid)

    def _say_changes(
        self,
        track: Track,
        before: dict[str, object],
        plan: Plan,
    ) -> None:
        warning = str(plan.extra.get("warning") or "")
        if warning and not before.get("warning"):
            word, _, text = warning.partition(": ")
            hint = str(plan.extra.get("hint") or "")
            self._state.say(track.resource.uid, word, text, hint=hint, kind="Warning")
        if before.get("phase") == plan.phase.value:
            return
        kind = "Warning" if plan.phase.value == "Failed" else "Normal"
        text = plan.message or f"{track.resource.key} is {plan.phase.value}"
        reason = plan.reason if plan.phase in TERMINAL_PHASES else plan.phase.value
        hint = plan.hint if plan.message else ""
        self._state.say(track.resource.uid, reason, text, hint=hint, kind=kind)

    def failed(
        self,
        uid: str,
        error: Exception,
        now_s: float,
    ) -> None:
        """Records that the pass of `uid` raised: delays its next pass, and reports the error."""
        state = self._state
        track = state.tracks.get(uid)
        if track is None:
            return
        track.passes_failed += 1
        wait_s = min(
            state.settings.retry_initial_s * 2.0 ** min(track.passes_failed, 20),
            state.settings.pass_retry_max_s,
        )
        state.queue.add(uid, now_s + wait_s)
        for part in self._parts.that("pass_failed"):
            part.pass_failed(uid)
        # Its state in memory may be half changed; the next pass reads the rows back.
        track.outdate()
        track.asset_actions = []
        text = f"this object cannot be handled by this version: {type(error).__name__}"
        state.say(uid, "Quarantined", text, kind="Warning")
        status = {**track.status, "reason": "Quarantined", "message": text}
        status.setdefault("phase", "Pending")
        self._write_status(track, status)


def _list_waits(track: Track, batched: str) -> dict[str, StartWait]:
    """Returns the waits. A start that waits in a batch is retried for as long as that takes, and
    its earlier wait has ended.
    """
    asking = {name for name, call in track.calls.items() if call.busy}
    return {
        name: replace(wait, asking=name in asking)
        for name, wait in track.waits.items()
        if not (batched and name in asking)
    }
