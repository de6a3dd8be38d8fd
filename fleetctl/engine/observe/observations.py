"""What was seen of runs and sandboxes: an observation becomes a record, or nothing.

Called as messages are taken in. What an observation means for a run is decided in
history/outcome.py; here it is known how far the look can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetctl.controllers.history.outcome import outcome
from fleetctl.controllers.model import LIVE_STATES, Alive, Ended, Gone, Observation, Run, RunState
from fleetctl.engine.execute.leftovers import leftover
from fleetctl.engine.observe.gpu_price import priced_as_got
from fleetctl.engine.shared.messages import Observed
from fleetctl.tracking.track import Track, Work

if TYPE_CHECKING:
    from fleetctl.engine.capacity.prices import Market
    from fleetctl.engine.execute.leftovers import Leftovers
    from fleetctl.engine.observe.records import Records
    from fleetctl.engine.shared.state import State


class Observations:
    """look_later: observes a run again, at a time in epoch seconds."""

    def __init__(
        self,
        state: State,
        *,
        records: Records,
        market: Market,
        leftovers: Leftovers,
        look_later: Callable[[str, float], None],
    ) -> None:
        self._state = state
        self._records, self._market, self._leftovers = records, market, leftovers
        self._look_later = look_later

    def take(self, track: Track, observed: Observed) -> bool:
        """True when the resource must be looked at because of it."""
        work = track.work
        if work is None:
            return False
        run = work.history.live.get(observed.run)
        if run is None:
            return self._sandbox_seen(work, observed.seen, observed)
        return self._run_seen(work, run, observed.seen, observed)

    def _run_seen(self, work: Work, run: Run, seen: Observation, observed: Observed) -> bool:
        track = work.track
        state = self._state
        measured = (
            not isinstance(seen, Gone)
            and bool(seen.metrics)
            and self._records.measured(work, run, seen.metrics)
        )
        if not isinstance(seen, Gone):
            self._records.remarked(work, run, seen.remarks)
            self._records.saved(work, run, seen.checkpoints)
        if isinstance(seen, Alive) and seen.more:
            self._look_later(run.name, state.clock.now_s())
        call = track.calls.get(run.name)
        bound_s = state.providers[observed.provider].contract.visibility_bound_s
        appeared_at_s = call.appeared_at_s if call else state.started_at_s
        settled = (
            not (call and call.busy == "start") and observed.asked_at_s >= appeared_at_s + bound_s
        )
        held_anew = self._take_held(work, run, seen.held if isinstance(seen, Alive) else "")
        if not isinstance(seen, Gone):
            track.missing.pop(run.name, None)
        elif run.state is not RunState.STARTING:
            settled = settled and self._missed_twice(work, run, observed, bound_s)
        after = outcome(run, seen, settled=settled)
        if after is None:
            if isinstance(seen, Gone) and run.state is not RunState.STARTING:
                since_s = max(appeared_at_s, track.missing.get(run.name, 0.0))
                self._look_later(run.name, since_s + bound_s)
            return held_anew or measured
        if isinstance(seen, Alive | Ended) and seen.note:
            work.history.note = seen.note
        if isinstance(seen, Alive | Ended):
            after = priced_as_got(state, self._market, work, run, after, seen)
            if seen.nodes:
                work.history.nodes = seen.nodes
            if isinstance(seen, Alive) and seen.stragglers:
                self._records.fell_behind(work, run, seen.stragglers)
            if isinstance(seen, Alive) and seen.usage is not None:
                work.history.usage[run.name] = seen.usage
            self._records.entered(work, after)
        if after.state in LIVE_STATES:
            began = run.state is RunState.STARTING
            cheaper = after.usd_per_s != run.usd_per_s  # so a budget may pay for others now
            track.waits.pop(run.name, None)
            self._records.keep(work, after)
            saved = after.saved_step != run.saved_step
            told = isinstance(seen, Alive) and (bool(seen.nodes) or seen.usage is not None)
            return began or held_anew or cheaper or measured or saved or told
        self._records.end(work, after, seen.result if isinstance(seen, Ended) else None)
        if isinstance(seen, Gone) and after.handle:
            # Should it live all the same, it must not go on: its unit gets another sandbox.
            self._leftovers.end(leftover(run))
        return True

    def _missed_twice(self, work: Work, run: Run, observed: Observed, bound_s: float) -> bool:
        """Whether the provider said it before, a visibility bound ago: one answer may be odd."""
        first_s = work.track.missing.get(run.name)
        if first_s is None:
            work.track.missing[run.name] = observed.asked_at_s
            return False
        return observed.asked_at_s >= first_s + bound_s

    def _take_held(self, work: Work, run: Run, held: str) -> bool:
        """Whether people are to be told something else than before."""
        before = work.track.held.pop(run.name, "")
        if held:
            work.track.held[run.name] = held
            if held != before:
                text = f"{run.name}: {held}"
                self._state.say(work.resource.uid, "EndHeld", text, kind="Warning")
        return held != before

    def _sandbox_seen(self, work: Work, seen: Observation, observed: Observed) -> bool:
        """Of the last run in an idle sandbox: is the sandbox still open?"""
        if isinstance(seen, Alive) or (isinstance(seen, Ended) and seen.sandbox_open):
            return False
        for box in work.history.sandboxes.values():
            if not box.busy and box.last.name == seen.run:
                if isinstance(seen, Gone) and not self._settled_by_end(box.last, observed):
                    return False
                self._records.closed(work, box.name)
                return True
        return False

    def _settled_by_end(self, last: Run, observed: Observed) -> bool:
        """A look-up may miss what is younger than the bound, even if an earlier one did not."""
        bound_s = self._state.providers[observed.provider].contract.visibility_bound_s
        return last.ended_at_s is not None and observed.asked_at_s >= last.ended_at_s + bound_s
