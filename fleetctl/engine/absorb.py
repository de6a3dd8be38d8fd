"""Facts become records: the only place where a run's record changes because of what the world said.

Called by the loop inside its transaction; writes each changed run once at the end of the turn.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from controllers.budget import WITH_A_HINT
from controllers.cache import Comparable, comparable
from controllers.kind import superseded
from controllers.model import LIVE_STATES, Alive, Ended, Gone, Metric, Observation, Run, RunState
from controllers.outcome import outcome
from controllers.placing import judge, spill_reason
from controllers.seats import grown
from controllers.wish import Wait
from fleetctl.engine.caching import contents_of, fixed, success
from fleetctl.engine.facts import (
    AssetReplied,
    Fact,
    Observed,
    StartRefused,
    StartReplied,
    StartUnknown,
    StartWaits,
    StopReplied,
)
from fleetctl.engine.track import Call, Track, last_values, score_of
from fleetctl.providers.base import SANDBOX_CLOSED
from fleetctl.stores.base import Remembered
from specs.kinds import KINDS

if TYPE_CHECKING:
    from fleetctl.engine.loop import Engine

log = logging.getLogger("fleetctl.engine")

# Answers to a create that come before anything was made.
_NOTHING_MADE = frozenset({"NoCapacity", "Quota", "SpendLimit", "RateLimited"})


class Absorber:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed: dict[str, Run] = {}
        self._metrics: dict[str, list[Metric]] = {}
        self._results: dict[str, str | None] = {}
        self._remembered: list[Remembered] = []
        self._closed: dict[str, Run] = {}  # last runs of sandboxes that are confirmed closed
        self.begins: set[str] = set()  # uids of runs whose sandbox is made, and work is to begin

    def absorb(self, fact: Fact, now_s: float) -> bool:
        """True when the fact's resource must be looked at because of it."""
        if isinstance(fact, AssetReplied):
            return self._asset(fact, now_s)
        track = self._engine.turns.track_of(fact)
        if track is None:
            return False
        if isinstance(fact, Observed):
            return self._observed(track, fact)
        return self._call(track, fact, now_s)

    def write(self) -> None:
        """Every run that changed in this turn, once, with its metrics and result."""
        runs = self._engine.store.runs
        for run in self._changed.values():
            fresh = runs.advance(
                run,
                result=self._results.get(run.name),
                metrics=self._metrics.get(run.name, ()),
            )
            assert fresh, f"run {run.name} was not live in the store"
        self._engine.store.cache.remember(self._remembered)
        for run in self._closed.values():
            runs.advance(run, from_states=frozenset({run.state}))
        self._engine.charges.write()
        self.forget()

    def forget(self) -> None:
        self._changed.clear()
        self._metrics.clear()
        self._results.clear()
        self._remembered.clear()
        self._closed.clear()

    def changed(self, run: Run) -> None:
        """A pass changed a live run's record (a stop became the wish)."""
        self._changed[run.name] = run

    def ended(self, track: Track, run: Run) -> None:
        """A pass ended a run that is certain to be nowhere."""
        self._end(track, run, None)

    # -- calls -------------------------------------------------------------------------------------

    def _call(
        self,
        track: Track,
        fact: StartReplied | StartRefused | StartWaits | StartUnknown | StopReplied,
        now_s: float,
    ) -> bool:
        engine = self._engine
        call = track.calls.setdefault(fact.run, Call(appeared_at_s=engine.started_at_s))
        call.busy = ""
        call.nothing_made = call.nothing_made and _tells_that_nothing_is_made(fact)
        waited = track.waits.pop(fact.run, None) is not None
        if not isinstance(fact, StopReplied):
            call.appeared_at_s = now_s
        if track.history is None:
            return False  # its rows are read back later, and every call is made that they ask for
        run = track.history.live.get(fact.run)
        if isinstance(fact, StartWaits | StartUnknown) and (
            run is None or run.state is RunState.STOPPING
        ):
            # Nobody waits for this start any more: it is over, or its stop follows at once.
            call.tries, call.retry_at_s = 0, 0.0
            return True
        match fact:
            case StartReplied():
                call.tries = 0
                call.retry_at_s = 0.0
                call.short_since_s = None
                if run is not None and fact.begun:
                    self._started(track, run, fact.handle, now_s)
                    self._had_room(track, run.provider, now_s)
                elif run is not None:
                    self._keep(track, replace(run, handle=fact.handle))
                    # Once it is durable the work begins; there is nothing to decide.
                    self.begins.add(track.resource.uid)
                    return waited
            case StartRefused():
                if run is not None:
                    self._refused(track, run, fact.message, now_s)
            case StartWaits() if fact.reason == SANDBOX_CLOSED and run is not None:
                # Nothing began there and nothing can: the unit goes to another sandbox.
                ended = replace(run, state=RunState.STOPPED, reason=fact.reason, ended_at_s=now_s)
                self._end(track, ended, None)
                self._closed_for_good(track, run.sandbox)
            case StartWaits():
                call.retry_at_s = fact.retry_at_s
                if call.short_since_s is None and spill_reason(fact.reason) is not None:
                    call.short_since_s = now_s
                wait = Wait(fact.reason, fact.message, fact.retry_at_s, call.short_since_s)
                self._wait(track, fact.run, wait)
            case StartUnknown():
                call.tries += 1
                call.retry_at_s = now_s + engine.effects.backoff_s(call.tries)
                self._wait(track, fact.run, Wait("StartUnknown", fact.message, call.retry_at_s))
            case StopReplied():
                self._stop_replied(track, fact, call, now_s)
            case _:
                assert_never(fact)
        return True

    def _wait(self, track: Track, run: str, wait: Wait) -> None:
        """The start of `run` is tried again in its time; until then it says why."""
        uid = track.resource.uid
        track.waits[run] = wait
        self._engine.queue.add(uid, wait.retry_at_s)
        self._engine.say(uid, wait.reason, wait.message, kind="Warning")

    def _started(self, track: Track, run: Run, handle: str, now_s: float) -> None:
        state = RunState.RUNNING if run.state is RunState.STARTING else run.state
        started_at_s = run.started_at_s if run.started_at_s is not None else now_s
        started = replace(run, state=state, handle=handle, started_at_s=started_at_s)
        self._entered(track, started)
        self._keep(track, started)

    def _had_room(self, track: Track, provider: str, now_s: float) -> None:
        short = track.shortages.get(provider)
        if short is not None and track.history is not None:
            track.shortages[provider] = grown(short, provider, track.history, now_s)

    def _refused(self, track: Track, run: Run, message: str, now_s: float) -> None:
        if run.state is RunState.STOPPING:
            ended = replace(run, state=RunState.STOPPED, ended_at_s=now_s)
        elif self._has_another_place(track, run, message):
            ended = replace(
                run, state=RunState.STOPPED, reason="RefusedHere", message=message, ended_at_s=now_s
            )
            text = f"provider `{run.provider}` does not take it: {message}"
            self._engine.say(track.resource.uid, "RefusedHere", text, kind="Warning")
        else:
            ended = replace(
                run, state=RunState.REFUSED, reason="Refused", message=message, ended_at_s=now_s
            )
            self._engine.say(track.resource.uid, "Refused", message, kind="Warning")
        self._end(track, ended, None)

    def _has_another_place(self, track: Track, run: Run, message: str) -> bool:
        """Remember that this one is none, and tell whether any candidate is left."""
        assert track.controller is not None
        placement = track.controller.policy.placement
        if len(placement.candidates) < 2:
            return False
        track.refusals[run.template_hash, run.provider] = message.partition(WITH_A_HINT)[0]
        offers = self._engine.market.offers(track).get(run.template_hash, {})
        return any(it.fits for it in judge(placement, offers))

    def _stop_replied(self, track: Track, fact: StopReplied, call: Call, now_s: float) -> None:
        engine = self._engine
        call.tries += 1
        if fact.message:
            call.retry_at_s = now_s + engine.effects.backoff_s(call.tries)
            text = f"stop of {fact.run} failed: {fact.message}"
            engine.say(track.resource.uid, "StopFailed", text, kind="Warning")
        else:
            assert track.controller is not None
            wait_s = track.controller.policy.grace_s + engine.settings.stop_again_s
            call.retry_at_s = now_s + wait_s * min(call.tries, 8)
            engine.watcher.look(fact.run)
        if call.tries == engine.settings.attention_after:
            text = f"{call.tries} stops of {fact.run} are not confirmed; trying on"
            engine.say(track.resource.uid, "NeedsAttention", text, kind="Warning")
        engine.queue.add(track.resource.uid, call.retry_at_s)

    def _asset(self, fact: AssetReplied, now_s: float) -> bool:
        track = self._engine.tracks.get(fact.uid)
        if track is None:
            return False
        asset = track.asset
        asset.busy = False
        asset.problem = fact.message
        if fact.message:
            asset.tries += 1
            asset.retry_at_s = now_s + self._engine.effects.backoff_s(asset.tries)
            self._engine.queue.add(fact.uid, asset.retry_at_s)
            self._engine.say(fact.uid, "AssetFailed", fact.message, kind="Warning")
            return True
        asset.tries, asset.retry_at_s = 0, 0.0
        match fact.what:
            case "ensured":
                asset.ready = True
            case "removed":
                asset.removed = True
            case "freed":
                asset.freed = True
            case "swept":
                asset.swept = True
        return True

    # -- observations ------------------------------------------------------------------------------

    def _observed(self, track: Track, fact: Observed) -> bool:
        if track.history is None:
            return False
        run = track.history.live.get(fact.run)
        if run is None:
            return self._sandbox_seen(track, fact.seen, fact)
        return self._run_seen(track, run, fact.seen, fact)

    def _run_seen(self, track: Track, run: Run, seen: Observation, fact: Observed) -> bool:
        engine = self._engine
        if not isinstance(seen, Gone):
            self._take_metrics(track, run, seen)
        call = track.calls.get(run.name)
        bound_s = engine.providers[fact.provider].contract.visibility_bound_s
        appeared_at_s = call.appeared_at_s if call else engine.started_at_s
        settled = not (call and call.busy == "start") and fact.asked_at_s >= appeared_at_s + bound_s
        after = outcome(run, seen, settled=settled)
        if after is None:
            if isinstance(seen, Gone) and run.state is not RunState.STARTING:
                engine.watcher.look_later(run.name, appeared_at_s + bound_s)
            return False
        if isinstance(seen, Alive | Ended) and seen.note:
            assert track.history is not None
            track.history.note = seen.note
        if isinstance(seen, Alive | Ended):
            self._entered(track, after)
        if after.state in LIVE_STATES:
            began = run.state is RunState.STARTING
            track.waits.pop(run.name, None)
            self._keep(track, after)
            return began
        self._end(track, after, seen.result if isinstance(seen, Ended) else None)
        return True

    def _take_metrics(self, track: Track, run: Run, seen: Alive | Ended) -> None:
        fresh = list(seen.metrics)
        if fresh:
            self._metrics.setdefault(run.name, []).extend(fresh)
            track.latest.setdefault(run.name, {}).update(last_values(fresh))
            self._changed.setdefault(run.name, run)

    def _sandbox_seen(self, track: Track, seen: Observation, fact: Observed) -> bool:
        """Of the last run in an idle sandbox: is the sandbox still open?"""
        assert track.history is not None
        if isinstance(seen, Alive) or (isinstance(seen, Ended) and seen.sandbox_open):
            return False
        for box in track.history.sandboxes.values():
            if not box.busy and box.last.name == seen.run:
                if isinstance(seen, Gone) and not self._settled_by_end(box.last, fact):
                    return False
                self._closed_for_good(track, box.name)
                return True
        return False

    def _closed_for_good(self, track: Track, sandbox: str) -> None:
        """An idle sandbox is confirmed gone."""
        assert track.history is not None
        last = track.history.sandboxes[sandbox].last
        track.history.sandboxes.closed(sandbox)
        track.calls.pop(last.name, None)
        self._let_go(track, last, self._engine.clock.now_s())

    def _entered(self, track: Track, run: Run) -> None:
        """The run has begun: from now on it speaks for its sandbox, and the one before no more."""
        assert track.history is not None
        last = track.history.sandboxes[run.sandbox].last
        track.history.sandboxes.entered(run)
        if last.name != run.name:
            until_s = run.started_at_s if run.started_at_s is not None else run.created_at_s
            self._let_go(track, last, until_s)

    def _let_go(self, track: Track, last: Run, until_s: float) -> None:
        """last: what a sandbox executed last, which held it until then."""
        self._engine.owner_of.pop(last.name, None)
        paid = self._engine.charges.idled(track, last, until_s)
        self._closed[last.name] = replace(paid, sandbox_open=False)

    def _settled_by_end(self, last: Run, fact: Observed) -> bool:
        """A look-up may miss what is younger than the bound, even if an earlier one did not."""
        bound_s = self._engine.providers[fact.provider].contract.visibility_bound_s
        return last.ended_at_s is not None and fact.asked_at_s >= last.ended_at_s + bound_s

    # -- records -----------------------------------------------------------------------------------

    def _keep(self, track: Track, run: Run) -> None:
        assert track.history is not None
        track.history.changed(run)
        self._changed[run.name] = run

    def _end(self, track: Track, run: Run, result: str | None) -> None:
        assert track.history is not None and track.controller is not None
        run = self._engine.charges.ended(track, run, track.calls.get(run.name))
        latest = track.latest.pop(run.name, {})
        score = score_of(track.controller, run, result, lambda: latest)
        if run.state is not RunState.SUCCEEDED:
            result = None
        track.history.ended(
            run,
            score=score,
            superseded=superseded(track.controller, run),
            wanted=track.controller.unit(run.index) is not None,
        )
        track.waits.pop(run.name, None)
        track.calls.pop(run.name, None)
        if not run.sandbox_open:
            self._engine.owner_of.pop(run.name, None)
        self._changed[run.name] = run
        self._results[run.name] = result
        self._remember(track, run, result, latest)
        if run.state in (RunState.FAILED, RunState.LOST):
            unit, ended = KINDS[track.resource.kind].unit, run.state.value
            what = f"{unit} {run.index} attempt {run.attempt} {ended.lower()}: {run.reason}"
            self._engine.say(track.resource.uid, f"{unit.title()}{ended}", what, kind="Warning")

    def _revision(self, run: Run, controller: Comparable) -> str:
        """What the run's copy of its source was: not what the directory held at the apply, nor
        where the branch is by now.
        """
        template = controller.content(run.index)
        if template.source is None:
            return ""
        return self._engine.providers[run.provider].revision(run.uid, template, run.template_hash)

    def _remember(
        self, track: Track, run: Run, result: str | None, latest: Mapping[str, float]
    ) -> None:
        """Keep a success for equal work. It becomes known with the run's record, or not at all."""
        begun_with = track.begun_with.pop(run.name, None)
        controller = track.controller
        if run.state is not RunState.SUCCEEDED or controller is None:
            return
        unit, asked = controller.unit(run.index), comparable(controller)
        if unit is None or asked is None:
            return
        if (unit.params_hash, unit.template_hash) != (run.params_hash, run.template_hash):
            return
        contents = contents_of(self._engine.store, track, revision=self._revision(run, asked))
        if contents is None:
            return
        if fixed(asked.content(run.index)):
            contents.memo = track.contents
        elif contents.of(unit).key != begun_with:
            return  # a volume or a Function became another while it ran
        kept = success(contents, unit, run, owner=track.resource.key, result=result, latest=latest)
        if kept is not None:
            self._remembered.append(kept)


def _tells_that_nothing_is_made(fact: Fact) -> bool:
    """A provider without room has made nothing; `Queued` and its like may have begun to."""
    return isinstance(fact, StartWaits) and fact.reason in _NOTHING_MADE
