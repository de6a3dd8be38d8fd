"""Turns observations of runs and sandboxes into records, where they change one.

Called as messages are taken in. history/outcome.py decides the effect of an observation on a run;
this module knows how far the look can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetctl.controllers.history.outcome import conclude_run
from fleetctl.controllers.model import LIVE_STATES, Alive, Ended, Gone, Observation, Run, RunState
from fleetctl.engine.execute.leftovers import make_leftover
from fleetctl.engine.observe.gpu_price import priced_as_got
from fleetctl.engine.shared.messages import Observed
from fleetctl.specs.values.hints import NO_TEXT, HintedText
from fleetctl.tracking.track import ResourceWork, Track

if TYPE_CHECKING:
    from fleetctl.engine.capacity.price_book import PriceBook
    from fleetctl.engine.execute.leftovers import Leftovers
    from fleetctl.engine.observe.records import Records
    from fleetctl.engine.shared.engine_state import EngineState


class Observations:
    """look_later: observes a run again, at a time in epoch seconds."""

    def __init__(
        self,
        state: EngineState,
        *,
        records: Records,
        market: PriceBook,
        leftovers: Leftovers,
        look_later: Callable[[str, float], None],
    ) -> None:
        self._state = state
        self._records = records
        self._market = market
        self._leftovers = leftovers
        self._look_later = look_later

    def take(self, track: Track, observed: Observed) -> bool:
        """Returns True when the resource must be looked at next."""
        work = track.work
        if work is None:
            return False
        run = work.history.live.get(observed.run)
        if run is None:
            return self._sandbox_seen(work, observed.seen, observed)
        return self._run_seen(work, run, observed.seen, observed)

    def _run_seen(
        self,
        work: ResourceWork,
        run: Run,
        seen: Observation,
        observed: Observed,
    ) -> bool:
        track = work.track
        measured = self._record_reports(work, run, seen)
        if isinstance(seen, Alive) and seen.more:
            self._look_later(run.name, self._state.clock.now_s())

        call = track.calls.get(run.name)
        begins = call is not None and call.busy == "start"
        appeared_at_s = call.appeared_at_s if call else self._state.started_at_s
        bound_s = self._state.providers[observed.provider].contract.visibility_bound_s
        settled = not begins and observed.asked_at_s >= appeared_at_s + bound_s

        held = seen.held if isinstance(seen, Alive) else NO_TEXT
        held_anew = self._take_held(work, run, held)
        if not isinstance(seen, Gone):
            track.missing.pop(run.name, None)
        elif run.state is not RunState.STARTING:
            settled = settled and self._missed_twice(work, run, observed, bound_s)

        after = conclude_run(run, seen, settled=settled)
        if after is None:
            if isinstance(seen, Gone) and run.state is not RunState.STARTING:
                since_s = max(appeared_at_s, track.missing.get(run.name, 0.0))
                self._look_later(run.name, since_s + bound_s)
            return held_anew or measured

        if isinstance(seen, Alive | Ended):
            after = self._take_report(work, run, after, seen)
        if after.state in LIVE_STATES:
            changed = self._keep_live(work, run, after, seen)
            return changed or held_anew or measured
        self._end_run(work, run, after, seen)
        return True

    def _record_reports(
        self,
        work: ResourceWork,
        run: Run,
        seen: Observation,
    ) -> bool:
        """Records what the run reported of itself; returns True for metrics that count."""
        if isinstance(seen, Gone):
            return False
        measured = False
        if seen.metrics:
            measured = self._records.measured(work, run, seen.metrics)
        self._records.remarked(work, run, seen.remarks)
        self._records.saved(work, run, seen.checkpoints)
        return measured

    def _take_report(
        self,
        work: ResourceWork,
        run: Run,
        after: Run,
        seen: Alive | Ended,
    ) -> Run:
        """Takes in the reports beside the run's state; returns the run with its price."""
        if seen.note:
            work.history.note = seen.note
        after = priced_as_got(
            self._state,
            self._market,
            work,
            run,
            after,
            seen,
        )
        if seen.nodes:
            work.history.nodes = seen.nodes

        if isinstance(seen, Alive):
            if seen.stragglers:
                self._records.fell_behind(work, run, seen.stragglers)
            if seen.usage is not None:
                work.history.usage[run.name] = seen.usage
        self._records.entered(work, after)
        return after

    def _keep_live(
        self,
        work: ResourceWork,
        run: Run,
        after: Run,
        seen: Observation,
    ) -> bool:
        """Stores a live run; returns True when its resource must be looked at next."""
        work.track.waits.pop(run.name, None)
        self._records.keep(work, after)

        began = run.state is RunState.STARTING
        cheaper = after.usd_per_s != run.usd_per_s  # so a budget may pay for others now
        saved = after.saved_step != run.saved_step
        reported = isinstance(seen, Alive) and (bool(seen.nodes) or seen.usage is not None)
        return began or cheaper or saved or reported

    def _end_run(
        self,
        work: ResourceWork,
        run: Run,
        after: Run,
        seen: Observation,
    ) -> None:
        result = seen.result if isinstance(seen, Ended) else None
        self._records.end(work, after, result)
        if isinstance(seen, Gone) and after.handle:
            # Should it live all the same, it must not go on: its unit gets another sandbox.
            self._leftovers.end(make_leftover(run))

    def _missed_twice(
        self,
        work: ResourceWork,
        run: Run,
        observed: Observed,
        bound_s: float,
    ) -> bool:
        """Returns true if the provider reported it before, a visibility bound ago: a single reply
        may be wrong.
        """
        first_s = work.track.missing.get(run.name)
        if first_s is None:
            work.track.missing[run.name] = observed.asked_at_s
            return False
        return observed.asked_at_s >= first_s + bound_s

    def _take_held(
        self,
        work: ResourceWork,
        run: Run,
        held: HintedText,
    ) -> bool:
        """Returns true if users should see another message than before."""
        before = work.track.held.pop(run.name, NO_TEXT)
        if held:
            work.track.held[run.name] = held
            if held != before:
                text = f"{run.name}: {held.text}"
                self._state.say(work.resource.uid, "EndHeld", text, hint=held.hint, kind="Warning")
        return held != before

    def _sandbox_seen(
        self,
        work: ResourceWork,
        seen: Observation,
        observed: Observed,
    ) -> bool:
        """Checks, after the last run in an idle sandbox, if the sandbox is still open."""
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
        """Returns true if the look-up was made at least the visibility bound after the run's end: a
        younger end may be missed, even if an earlier look-up saw it.
        """
        bound_s = self._state.providers[observed.provider].contract.visibility_bound_s
        return last.ended_at_s is not None and observed.asked_at_s >= last.ended_at_s + bound_s
