"""One pass over one resource inside a tick's transaction: load if needed, decide, check, write.

A resource whose pass raises stops only itself: it is logged, looked at ever more rarely, and its
status says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.money.estimate import estimate_of
from fleetctl.controllers.planning.lint import lint
from fleetctl.controllers.planning.plan import TERMINAL_PHASES, Plan
from fleetctl.controllers.reconcile import reconcile
from fleetctl.controllers.schedule.desired import Desired, Wait
from fleetctl.controllers.status import status_of
from fleetctl.controllers.trials.served import lacking_of
from fleetctl.controllers.trials.winner import Lacking
from fleetctl.engine.capacity.prices import KIND as PROVIDER
from fleetctl.engine.capacity.providers import say_spills
from fleetctl.engine.decide.assets import asset_plan, asset_status
from fleetctl.engine.decide.dependencies import Asked
from fleetctl.engine.kinds.endpoints.endpoints import KIND as ENDPOINT
from fleetctl.engine.kinds.gitops.sources import KIND as SOURCE
from fleetctl.engine.kinds.queues.queues import QUEUE
from fleetctl.engine.kinds.schedules.schedules import KIND as SCHEDULE
from fleetctl.engine.money.budget_status import budget_status, say_money
from fleetctl.engine.money.budgets import BUDGET
from fleetctl.engine.money.reservations import terms_of
from fleetctl.engine.observe.troubles import uses
from fleetctl.engine.shared.dependents import key_of
from fleetctl.specs.kinds.budget import BudgetSpec
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.tracking.annotations import ESTIMATE
from fleetctl.tracking.track import Track, Work

if TYPE_CHECKING:
    from fleetctl.engine.capacity.admission import Admission
    from fleetctl.engine.capacity.prices import Market
    from fleetctl.engine.decide.dependencies import Dependencies
    from fleetctl.engine.decide.intents import Intents
    from fleetctl.engine.decide.load import Reading
    from fleetctl.engine.decide.suggestions import Suggestions
    from fleetctl.engine.kinds.endpoints.endpoints import Endpoints
    from fleetctl.engine.kinds.gitops.sources import Sources
    from fleetctl.engine.kinds.notices.notices import Notices
    from fleetctl.engine.kinds.queues.queues import Queues
    from fleetctl.engine.kinds.schedules.schedules import Schedules
    from fleetctl.engine.kinds.wandb.talks import Talks
    from fleetctl.engine.money.budgets import Budgets
    from fleetctl.engine.observe.troubles import Troubles
    from fleetctl.engine.shared.state import State
    from fleetctl.engine.sleeping import Sleepers


# What others may wait for a change of.
_WAITED_FOR = ("phase", "observedGeneration")


class Passes:
    """provided: a Provider object came, changed or went."""

    def __init__(
        self,
        state: State,
        *,
        reading: Reading,
        dependencies: Dependencies,
        intents: Intents,
        admission: Admission,
        market: Market,
        budgets: Budgets,
        troubles: Troubles,
        sleepers: Sleepers,
        suggestions: Suggestions,
        talks: Talks,
        endpoints: Endpoints,
        schedules: Schedules,
        notices: Notices,
        queues: Queues,
        sources: Sources,
        provided: Callable[[], None],
    ) -> None:
        self._state, self._reading, self._intents = state, reading, intents
        self._admission, self._market, self._budgets = admission, market, budgets
        self._troubles, self._sleepers, self._provided = troubles, sleepers, provided
        self._suggestions, self._talks = suggestions, talks
        self._endpoints, self._dependencies = endpoints, dependencies
        self._schedules, self._notices, self._queues = schedules, notices, queues
        self._sources = sources

    def make(self, uid: str, now_s: float) -> None:
        """Decide for `uid` and write the decision. When this raises, the loop calls `failed`."""
        track = self._reading.fresh_track(uid)
        if track is None:
            return
        kind = track.resource.kind
        if kind == PROVIDER:
            self._provided()
        if self._sleeps(track, now_s):
            return
        if track.spec is None and track.work is None:
            self._reading.read(track)
        if kind == BUDGET:
            self._budget(track, now_s)
        elif kind == SCHEDULE:
            self._schedule(track, now_s)
        elif kind == QUEUE:
            self._queue(track)
        elif kind == SOURCE:
            self._source(track, now_s)
        elif track.work is None:
            self._asset(track, now_s)
        else:
            self._runs(track.work, now_s)

    def _sleeps(self, track: Track, now_s: float) -> bool:
        """It is over and nothing is known of its runs, and nothing of it is to be freed yet."""
        if not track.dormant or track.work is not None:
            return False
        if track.resource.uid in self._state.past_retention and not track.prior.scratch_freed:
            return False
        free_at_s = track.free_at_s
        if free_at_s is not None and free_at_s <= now_s:
            return False
        self._sleepers.put(track)
        return True

    def _budget(self, track: Track, now_s: float) -> None:
        if track.resource.deleted_at_s is not None:
            self._intents.drop(track)
        else:
            assert isinstance(track.spec, BudgetSpec)
            account = self._budgets.account(track, track.spec, now_s)
            self._write_status(track, budget_status(self._state, track, account, now_s))

    def _queue(self, track: Track) -> None:
        if track.resource.deleted_at_s is None:
            self._write_status(track, self._queues.status(track))
        else:
            self._queues.removed(track.resource.name)
            self._intents.drop(track)

    def _schedule(self, track: Track, now_s: float) -> None:
        if track.resource.deleted_at_s is None:
            self._write_status(track, self._schedules.run(track, now_s))
        elif (going := self._schedules.remove(track)) is not None:
            self._write_status(track, going)
        else:
            self._intents.drop(track)

    def _source(self, track: Track, now_s: float) -> None:
        if track.resource.deleted_at_s is None:
            status, rows = self._sources.run(track, now_s)
            for row in rows:
                # Passes that follow in this very tick must not decide by the rows before.
                self._reading.changed_rows[row.uid] = row
                self._state.queue.add(row.uid)
            self._write_status(track, status)
        elif (going := self._sources.remove(track)) is not None:
            self._write_status(track, going)
        else:
            self._intents.drop(track)

    def _asset(self, track: Track, now_s: float) -> None:
        """The pass of what stands for something, and runs nothing."""
        is_endpoint = track.resource.kind == ENDPOINT and track.resource.uid in self._state.tracks
        lacking = self._endpoints.lacking(track) if is_endpoint else None
        plan = asset_plan(self._state, self._market, self._budgets, track, lacking)
        self._intents.record_asset(track, plan)
        status = asset_status(self._state, self._admission, self._budgets, track, plan, now_s)
        if is_endpoint:
            # Of one that is to go, what it waits for says more than how it stands.
            stands = self._endpoints.status(track)
            status = {
                **stands,
                **status,
                "message": status.get("message") or stands.get("message", ""),
                "hint": status.get("hint") or stands.get("hint", ""),
            }
        self._write_status(track, status)

    def _runs(self, work: Work, now_s: float) -> None:
        """The pass of what has units."""
        track = work.track
        if self._is_abandoned(track) and (work.history.live or work.history.sandboxes):
            self._intents.abandon(work, now_s)
            self._state.queue.add(track.resource.uid)  # the next pass drops it
            return
        work, lacking = self._reading.settle(work)
        self._talks.hear(work)
        if work.controller.handed is not None:
            lacking = lacking_of(work.controller.handed)
        work, asked = self._dependencies.ask(work)
        desired = self._desired(work, lacking, asked, now_s)
        plan = reconcile(desired, work.history, now_s)
        problems = lint(plan, work.history, parallelism=self._parallelism(work))
        assert not problems, "; ".join(problems)
        if not self._dependencies.note(work, asked, plan):
            return
        self._intents.record(work, plan, now_s)
        self._take_note(work, plan, desired, now_s)
        self._tell(work, plan, desired, now_s)
        self._suggest(work, plan, desired)
        track.passes_failed = 0
        if track.dormant and not plan.actions:
            track.release()
            self._sleeps(track, now_s)

    def _suggest(self, work: Work, plan: Plan, desired: Desired) -> None:
        """Have the next unit worked out where it could start at once, and not before: until then
        others may end, and it is to know of them.
        """
        history, controller, policy = work.history, desired.controller, desired.controller.policy
        held = (
            plan.final
            or plan.at_capacity
            or plan.denied
            or plan.queued
            or policy.suspend
            or desired.deleted
        )
        held = held or desired.blocked
        index = None if held else controller.asks(history)
        most = policy.parallelism
        if most is None:
            names = controller.candidates
            most = sum(it for name, it in desired.providers.items() if name in names)
        if controller.handed is not None:
            free = controller.handed.room(history, most=most)
            self._talks.want(work, slots=0 if index is None else free)
        elif index is not None and len(history.live) < most:
            uid = work.resource.uid
            self._suggestions.ask(uid, controller, index, controller.work(history, index))

    def _take_note(self, work: Work, plan: Plan, desired: Desired, now_s: float) -> None:
        """What the plan tells others: who waits for room or money, what was learned, when next."""
        track = work.track
        track.shortages.update(plan.shortages)
        say_spills(self._state, track, plan)
        if plan.at_capacity:
            self._admission.at_capacity(track, plan.at_capacity)
        if plan.denied is not None:
            self._budgets.denied(track)
        self._queues.decided(track, desired.turn, plan)
        for name in desired.troubles:
            until_s = self._troubles.until_s(name)
            if until_s is not None:
                self._state.queue.add(track.resource.uid, until_s)
        if plan.wake_at_s is not None:
            self._state.queue.add(track.resource.uid, max(plan.wake_at_s, now_s))

    def _tell(self, work: Work, plan: Plan, desired: Desired, now_s: float) -> None:
        """The status, and events about it; of one that the plan dropped there is nothing to say."""
        track = work.track
        if track.resource.uid not in self._state.tracks:
            return
        if not plan.final:
            self._state.past_retention.pop(track.resource.uid, None)
            before = track.status
            after = status_of(plan, desired, work.history, before, now_s)
            self._say_changes(track, before, plan)
            say_money(self._state, track, desired.allowance, after)
            self._write_status(track, after)
        elif track.asset.freed and not track.prior.scratch_freed:
            # Of a finished object nothing else changes; unwritten, each restart would free again.
            self._write_status(track, {**track.status, "scratchFreed": True})
            if why := self._state.past_retention.pop(track.resource.uid, ""):
                self._state.say(track.resource.uid, "PastRetention", why)

    def _desired(self, work: Work, lacking: Lacking | None, asked: Asked, now_s: float) -> Desired:
        track = work.track
        resource, state = track.resource, self._state
        batched = self._endpoints.batched(resource.uid)
        counting, counts_later = self._endpoints.counting(work)
        return Desired(
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
            waits=_waits(track, batched),
            held=track.held,
            batched=batched,
            counting=counting,
            counts_later=counts_later,
            troubles={
                name: trouble
                for name in state.providers
                if (trouble := self._troubles.of(name)) is not None and uses(track, name)
            },
            offers=self._market.offers(work),
            terms={name: terms_of(state, name) for name in state.providers},
            shortages=track.shortages,
            room=self._admission.room(now_s),
            allowance=self._budgets.allowance(work, now_s),
            cached=work.cached,
            uncached=work.uncached,
            lacking=asked.lacking or lacking,
            blocked=asked.lacking is not None,
            dependencies=asked.found,
            swept=track.asset.swept or self._is_abandoned(track),
            past_retention=self._state.past_retention.get(resource.uid, ""),
            before_removal="" if self._is_abandoned(track) else self._talks.before_removal(work),
            turn=self._queues.turn(work, now_s),
            evicted=self._queues.evicted(resource.uid),
            estimate=estimate_of(resource.annotations.get(ESTIMATE, "")),
        )

    def _is_abandoned(self, track: Track) -> bool:
        deleted = track.resource.deleted_at_s is not None
        return deleted and track.resource.uid in self._state.abandoned

    def _parallelism(self, work: Work) -> int | None:
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
        self._notices.note(track, track.status, status)
        moved = any(track.status.get(key) != status.get(key) for key in _WAITED_FOR)
        track.status = dict(status)
        self._state.changed(resource.uid)
        if moved:
            self._schedules.heard(resource)
            self._sources.moved(resource)
        if track.dormant:
            self._intents.wake_assets()
        if moved and KINDS[resource.kind].runs:
            for uid in self._state.dependents.of(key_of(resource)):
                self._state.queue.add(uid)

    def _say_changes(self, track: Track, before: dict[str, object], plan: Plan) -> None:
        warning = str(plan.extra.get("warning") or "")
        if warning and not before.get("warning"):
            word, _, text = warning.partition(": ")
            self._state.say(track.resource.uid, word, text, kind="Warning")
        if before.get("phase") == plan.phase.value:
            return
        kind = "Warning" if plan.phase.value == "Failed" else "Normal"
        text = plan.message or f"{track.resource.key} is {plan.phase.value}"
        reason = plan.reason if plan.phase in TERMINAL_PHASES else plan.phase.value
        self._state.say(track.resource.uid, reason, text, kind=kind)

    def failed(self, uid: str, error: Exception, now_s: float) -> None:
        """The pass of `uid` raised: leave it alone for a while, and say so."""
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
        self._queues.failed(uid)
        # What it holds in memory may be half changed; the next pass reads the rows back.
        track.outdate()
        track.asset_actions = []
        text = f"this object cannot be handled by this version: {type(error).__name__}"
        state.say(uid, "Quarantined", text, kind="Warning")
        status = {**track.status, "reason": "Quarantined", "message": text}
        status.setdefault("phase", "Pending")
        self._write_status(track, status)


def _waits(track: Track, batched: str) -> dict[str, Wait]:
    """A start that waits in a batch is asked for as long as that takes, and what it waited for
    before is over.
    """
    asking = {name for name, call in track.calls.items() if call.busy}
    return {
        name: replace(wait, asking=name in asking)
        for name, wait in track.waits.items()
        if not (batched and name in asking)
    }
