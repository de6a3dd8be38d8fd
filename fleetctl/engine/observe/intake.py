"""Turns messages into records: each is taken by the function that knows its sort, among them the
providers' replies to our calls.

Called as messages are taken in. A reply concerns the call alone; the state of a run is observed
(observations.py), unless the reply leaves no doubt. The records of both are in records.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.planning.placement import judge_candidates, spill_reason
from fleetctl.controllers.schedule.capacity import grow_shortage
from fleetctl.controllers.schedule.desired import ProviderTrouble, StartWait
from fleetctl.engine.observe.observations import Observations
from fleetctl.engine.shared.messages import (
    AssetReplied,
    Message,
    Observed,
    StartRefused,
    StartReplied,
    StartUnknown,
    StartWaits,
    StopReplied,
)
from fleetctl.providers.contract.base import BEGUN_AS_ANOTHER, SANDBOX_CLOSED
from fleetctl.specs.values.hints import HintedText
from fleetctl.tracking.track import ResourceWork, RunCalls, Track

if TYPE_CHECKING:
    from fleetctl.engine.capacity.price_book import PriceBook
    from fleetctl.engine.observe.provider_health import ProviderHealth
    from fleetctl.engine.observe.records import Records
    from fleetctl.engine.shared.engine_state import EngineState


CallReplied = StartReplied | StartRefused | StartWaits | StartUnknown | StopReplied

# Answers to a create that come before anything was made.
_NOTHING_MADE = frozenset(
    {
        "NoCapacity",
        "NoSuchMachine",
        "Quota",
        "SpendLimit",
        "Suspended",
        "RateLimited",
        "Unreachable",
    }
)
REFUSED_ONCE = "RefusedOnce"


class Intake:
    def __init__(self, answers: ReplyHandler, observations: Observations) -> None:
        self._answers = answers
        self._observations = observations

    def observe(
        self,
        track: Track,
        message: Message,
        now_s: float,
    ) -> bool:
        """Returns True when the message's resource must be looked at next."""
        match message:
            case AssetReplied():
                return self._answers.handle_asset_reply(track, message, now_s)
            case Observed():
                return self._observations.take(track, message)
            case _:
                return self._answers.handle_reply(track, message, now_s)


class ReplyHandler:
    """look: observes a run soon."""

    def __init__(
        self,
        state: EngineState,
        *,
        records: Records,
        market: PriceBook,
        troubles: ProviderHealth,
        look: Callable[[str], None],
    ) -> None:
        self._state = state
        self._records = records
        self._market = market
        self._troubles = troubles
        self._look = look

    def handle_reply(
        self,
        track: Track,
        reply: CallReplied,
        now_s: float,
    ) -> bool:
        """Returns True when the resource must be looked at next."""
        call = track.calls.setdefault(reply.run, RunCalls(appeared_at_s=self._state.started_at_s))
        call.busy = ""
        call.nothing_made = call.nothing_made and _shows_nothing_made(reply)
        waited = track.waits.pop(reply.run, None) is not None
        if not isinstance(reply, StopReplied):
            call.appeared_at_s = now_s
        work = track.work
        if work is None:
            return False  # its rows are read back later, and every call that they need is made

        run = work.history.live.get(reply.run)
        match reply:
            case StartReplied():
                call.tries = 0
                call.retry_at_s = 0.0
                call.short_since_s = None
                if run is not None:
                    self._start_replied(work, run, reply, now_s)
                    # Before the run begins no decision is needed.
                    return reply.begun or waited
            case StartRefused():
                if run is not None:
                    self._refused(work, run, call, HintedText(reply.message, reply.hint), now_s)
            case StartWaits() | StartUnknown():
                self._start_delayed(work, run, reply, call, now_s)
            case StopReplied():
                self._stop_replied(work, reply, call, now_s)
            case _:
                assert_never(reply)
        return True

    def _start_delayed(
        self,
        work: ResourceWork,
        run: Run | None,
        reply: StartWaits | StartUnknown,
        call: RunCalls,
        now_s: float,
    ) -> None:
        """Schedules another try of the start, or ends the run whose start can never succeed."""
        if run is None or run.state is RunState.STOPPING:
            # This start is no longer awaited: the run has ended, or its stop follows at once.
            call.tries = 0
            call.retry_at_s = 0.0
            return
        if isinstance(reply, StartUnknown):
            again_at_s = self._schedule_retry(call, now_s)
            wait = StartWait("StartUnknown", reply.message, again_at_s)
            self._wait(work.track, run.name, _mark_short(wait, call, now_s))
            return

        why = HintedText(reply.message, reply.hint)
        if reply.reason == SANDBOX_CLOSED:
            # No run began there and none can: the unit goes to another sandbox.
            self._records.stopped(work, run, reply.reason, now_s=now_s)
            self._records.closed(work, run.sandbox)
            return
        if reply.reason == BEGUN_AS_ANOTHER:
            # Under its name no run can begin any more: the unit has another attempt.
            self._records.stopped(work, run, reply.reason, why, now_s=now_s)
            return

        again_at_s = self._schedule_retry(call, now_s, reply.retry_after_s)
        wait = StartWait(
            reply.reason,
            why.text,
            again_at_s,
            account=reply.account,
            hint=why.hint,
        )
        self._wait(work.track, run.name, _mark_short(wait, call, now_s))
        if reply.account:
            trouble = ProviderTrouble(reply.reason, why.text, why.hint)
            self._troubles.start_waits(run.provider, trouble, again_at_s)

    def _start_replied(
        self,
        work: ResourceWork,
        run: Run,
        reply: StartReplied,
        now_s: float,
    ) -> None:
        work.track.doubts.pop((run.template_hash, run.provider), None)
        self._troubles.start_served(run.provider)
        if reply.begun:
            self._started(work, run, reply.handle, now_s)
            self._note_room(work, run.provider, now_s)
        else:
            self._records.keep(work, replace(run, handle=reply.handle))
            self._records.begins.add(work.resource.uid)  # once it is durable the work begins

    def _schedule_retry(
        self,
        call: RunCalls,
        now_s: float,
        after_s: float = 0.0,
    ) -> float:
        """Returns when the start is tried again: later with each try, and not before `after_s`."""
        call.tries += 1
        call.retry_at_s = now_s + max(after_s, self._state.backoff_s(call.tries))
        return call.retry_at_s

    def handle_asset_reply(
        self,
        track: Track,
        fact: AssetReplied,
        now_s: float,
    ) -> bool:
        """Handles the same for a volume, a function, or leftovers of deleted work."""
        asset = track.asset
        asset.busy = False
        asset.problem = fact.message
        if fact.message:
            asset.tries += 1
            asset.retry_at_s = now_s + self._state.backoff_s(asset.tries)
            self._state.queue.add(fact.uid, asset.retry_at_s)
            text, hint = fact.message.text, fact.message.hint
            self._state.say(fact.uid, "AssetFailed", text, hint=hint, kind="Warning")
            return True
        asset.tries = 0
        asset.retry_at_s = 0.0
        match fact.what:
            case "ensured":
                # Made for an older spec: the present one is yet to be made.
                asset.ready = fact.generation in (None, track.resource.generation)
                asset.address = fact.address
            case "removed":
                asset.removed = True
            case "freed":
                asset.freed = True
            case "swept":
                asset.swept = True
        return True

    def _wait(
        self,
        track: Track,
        run: str,
        wait: StartWait,
    ) -> None:
        """Schedules another try of the start of `run`; until then its status shows why."""
        uid = track.resource.uid
        track.waits[run] = wait
        self._state.queue.add(uid, wait.retry_at_s)
        self._state.say(uid, wait.reason, wait.message, hint=wait.hint, kind="Warning")

    def _started(
        self,
        work: ResourceWork,
        run: Run,
        handle: str,
        now_s: float,
    ) -> None:
        state = RunState.RUNNING if run.state is RunState.STARTING else run.state
        started_at_s = run.started_at_s if run.started_at_s is not None else now_s
        started = replace(
            run,
            state=state,
            handle=handle,
            started_at_s=started_at_s,
        )
        self._records.record_enter(work, started)
        self._records.keep(work, started)

    def _note_room(
        self,
        work: ResourceWork,
        provider: str,
        now_s: float,
    ) -> None:
        short = work.track.shortages.get(provider)
        if short is not None and work.history is not None:
            work.track.shortages[provider] = grow_shortage(short, provider, work.history, now_s)

    def _refused(
        self,
        work: ResourceWork,
        run: Run,
        call: RunCalls,
        why: HintedText,
        now_s: float,
    ) -> None:
        uid = work.resource.uid
        if run.state is RunState.STOPPING:
            ended = replace(run, state=RunState.STOPPED, ended_at_s=now_s)
        elif (again_at_s := self._ask_again(work.track, run, call, now_s)) is not None:
            call.retry_at_s = again_at_s
            wait = StartWait(REFUSED_ONCE, why.text, again_at_s, hint=why.hint)
            self._wait(work.track, run.name, wait)
            return
        elif self._has_another_place(work, run, why.text):
            self._records.stopped(
                work,
                run,
                "RefusedHere",
                why,
                now_s=now_s,
            )
            text = f"provider `{run.provider}` does not take it: {why.text}"
            self._state.say(uid, "RefusedHere", text, hint=why.hint, kind="Warning")
            return
        else:
            ended = replace(
                run,
                state=RunState.REFUSED,
                reason="Refused",
                message=why.text,
                hint=why.hint,
                ended_at_s=now_s,
            )
            self._state.say(uid, "Refused", why.text, hint=why.hint, kind="Warning")
        self._records.end(work, ended, None)

    def _ask_again(
        self,
        track: Track,
        run: Run,
        call: RunCalls,
        now_s: float,
    ) -> float | None:
        """Returns when to ask again before the refusal is believed; None when this one is the
        second.
        """
        key = run.template_hash, run.provider
        believed_from_s = track.doubts.setdefault(key, now_s + self._state.settings.second_look_s)
        # Starts that were under way together may each have met the same passing fault.
        if call.asked_at_s >= believed_from_s:
            return None
        return believed_from_s

    def _has_another_place(
        self,
        work: ResourceWork,
        run: Run,
        message: str,
    ) -> bool:
        """Excludes this provider for the run, and returns true if any candidate is left."""
        placement = work.controller.placement(run.template_hash)
        if len(placement.candidates) < 2:
            return False
        work.track.refusals[run.template_hash, run.provider] = message
        offers = self._market.offers(work).get(run.template_hash, {})
        return any(it.fits for it in judge_candidates(placement, offers))

    def _stop_replied(
        self,
        work: ResourceWork,
        fact: StopReplied,
        call: RunCalls,
        now_s: float,
    ) -> None:
        call.tries += 1
        work.track.held.pop(fact.run, None)
        if fact.message:
            call.retry_at_s = now_s + self._state.backoff_s(call.tries)
            work.track.held[fact.run] = fact.message.prefixed("its stop failed: ")
            text = f"stop of {fact.run} failed: {fact.message.text}"
            hint = fact.message.hint
            self._state.say(work.resource.uid, "StopFailed", text, hint=hint, kind="Warning")
        else:
            wait_s = work.controller.policy.grace_s + self._state.settings.stop_again_s
            call.retry_at_s = now_s + wait_s * min(call.tries, 8)
            self._look(fact.run)
        if call.tries == self._state.settings.attention_after:
            text = f"{call.tries} stops of {fact.run} are not confirmed; trying on"
            self._state.say(work.resource.uid, "NeedsAttention", text, kind="Warning")
        self._state.queue.add(work.resource.uid, call.retry_at_s)


def _shows_nothing_made(reply: CallReplied) -> bool:
    """Returns true for a provider without capacity, or that does not know us: it has made no
    sandbox; `Queued` and its like may have begun to.
    """
    if not isinstance(reply, StartWaits) or reply.perhaps_made:
        return False
    return reply.account or reply.reason in _NOTHING_MADE


def _mark_short(
    wait: StartWait,
    call: RunCalls,
    now_s: float,
) -> StartWait:
    """Returns the wait with the time since when the start lacks capacity, through other replies
    meanwhile.
    """
    if call.short_since_s is None and spill_reason(wait.reason, account=wait.account) is not None:
        call.short_since_s = now_s
    return replace(wait, short_since_s=call.short_since_s)
