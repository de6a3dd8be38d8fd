"""Turns observations of runs and sandboxes into records, where they change one, and prices a run
once its sandbox has reported its GPU.

Observations come from messages as they are taken in. history/outcome.py decides the effect of an
observation on a run; this file knows how far the look can be trusted. Until a sandbox has reported
its GPU, and where it never does, the price is that of the dearest: never less than is billed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.history.outcome import conclude_run
from fleetctl.controllers.model import LIVE_STATES, Alive, Ended, Gone, Observation, Run, RunState
from fleetctl.controllers.planning.placement import format_per_hour
from fleetctl.engine.capacity.price_book import PriceBook, price_attempt
from fleetctl.engine.execute import start_specs
from fleetctl.engine.execute.orphan_sweep import make_leftover
from fleetctl.engine.shared.messages import Observed
from fleetctl.providers.prices.price_table import highest_price, possible_gpus
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.resources import Gpu
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.hints import NO_TEXT, HintedText
from fleetctl.tracking.track import ResourceWork, Track

if TYPE_CHECKING:
    from fleetctl.engine.execute.orphan_sweep import Leftovers
    from fleetctl.engine.observe.records import Records
    from fleetctl.engine.shared.engine_state import EngineState


REASON_UNTOLD = "GpuNotTold"


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
            settled = settled and self._is_missed_twice(work, run, observed, bound_s)

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
        self._records.sampled(run, seen.samples)
        self._records.record_remarks(work, run, seen.remarks)
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
                self._records.record_stragglers(work, run, seen.stragglers)
            if seen.usage is not None:
                work.history.usage[run.name] = seen.usage
        self._records.record_enter(work, after)
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

    def _is_missed_twice(
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
                if isinstance(seen, Gone) and not self._is_settled_by_end(box.last, observed):
                    return False
                self._records.closed(work, box.name)
                return True
        return False

    def _is_settled_by_end(self, last: Run, observed: Observed) -> bool:
        """Returns true if the look-up was made at least the visibility bound after the run's end: a
        younger end may be missed, even if an earlier look-up saw it.
        """
        bound_s = self._state.providers[observed.provider].contract.visibility_bound_s
        return last.ended_at_s is not None and observed.asked_at_s >= last.ended_at_s + bound_s


def priced_as_got(
    state: EngineState,
    market: PriceBook,
    work: ResourceWork,
    before: Run,
    after: Run,
    seen: Alive | Ended,
) -> Run:
    """Returns `after` at the price of the GPU it got, once its journal begins, which has the name.
    Reports a missing name.
    """
    begins = before.journal_offset == 0 and (seen.journal_offset > 0 or isinstance(seen, Ended))
    if begins:
        after = _of_fewer_nodes(work, after, seen)
    whole = _find_listed(state, work, after) if begins and after.usd_per_s else None
    gpu = whole.resources.gpu if whole is not None else None
    if whole is None or gpu is None:
        return after
    prices = {
        str(it): _price_template(state, market, after.provider, whole.with_gpu(it))
        for it in gpu.each
    }
    if not seen.gpus and len(set(prices.values())) > 1:
        _say_untold(state, work, gpu, after)
    left = highest_price(prices[str(it)] for it in possible_gpus(gpu, seen.gpus).each)
    return _lower_price(after, highest_price(prices.values()), left)


def _of_fewer_nodes(
    work: ResourceWork,
    run: Run,
    seen: Alive | Ended,
) -> Run:
    """Returns the run at the price of the nodes that the attempt got, of the most that it could
    have had.
    """
    controller = work.controller
    unit = controller.unit(run.index) if controller is not None else None
    if not seen.nodes or unit is None or unit.template_hash != run.template_hash:
        return run
    most = nodes_of(controller.template(run.index)).max
    share = len(seen.nodes) / most
    usd_per_s = None if run.usd_per_s is None else run.usd_per_s * share
    return replace(run, usd_per_s=usd_per_s, usd=None if run.usd is None else run.usd * share)


def _find_listed(
    state: EngineState,
    work: ResourceWork,
    run: Run,
) -> Template | None:
    """Returns the template that the run began with, merged with its Function; None where it lists
    no more than one GPU, or has changed by now.
    """
    controller = work.controller
    unit = controller.unit(run.index) if controller is not None else None
    if controller is None or unit is None or unit.template_hash != run.template_hash:
        return None
    template = controller.template(run.index)
    if not template.is_function:
        return None  # a sandbox has one sort
    try:
        whole, _ = start_specs.resolve_template(state, template, work.resource.namespace)
    except Unavailable:
        return None
    gpu = whole.resources.gpu
    if gpu is not None and gpu.otherwise:
        return whole
    return None


def _price_template(
    state: EngineState,
    market: PriceBook,
    provider: str,
    template: Template,
) -> float | None:
    return price_attempt(state.providers[provider], market.declared.get(provider), template)


def _say_untold(
    state: EngineState,
    work: ResourceWork,
    gpu: Gpu,
    run: Run,
) -> None:
    listed = ", ".join(map(str, gpu.each))
    unit = KINDS[work.resource.kind].unit
    as_what = f"the dearest, {format_per_hour(run.usd_per_s)}"
    what = f"a {unit} does not report which GPU of {listed} it got; it is charged as {as_what}"
    state.say(work.resource.uid, REASON_UNTOLD, what)


def _lower_price(
    run: Run,
    listed_usd_per_s: float | None,
    got_usd_per_s: float | None,
) -> Run:
    """Returns the run with its price lowered by the difference between the list's price and that of
    its GPU, and with less set aside.

    Prices are those of now. Where a rate or a Function's size was another when the run began, the
    greater of the two results counts.
    """
    if not run.usd_per_s or listed_usd_per_s is None or got_usd_per_s is None:
        return run
    less_usd_per_s = run.usd_per_s - (listed_usd_per_s - got_usd_per_s)
    usd_per_s = min(run.usd_per_s, max(less_usd_per_s, got_usd_per_s))
    usd = None if run.usd is None else run.usd * usd_per_s / run.usd_per_s
    return replace(run, usd_per_s=usd_per_s, usd=usd)
