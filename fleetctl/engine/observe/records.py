"""The records of a tick: the only place where a run's record changes, be it for what the world said
or for what a pass decided.

Called while messages are taken in and decisions are taken; writes each changed run once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.history.retries.retry import RESULT_INVALID, rolls_over
from fleetctl.controllers.model import Checkpoints, Metric, Run, RunState, Saved
from fleetctl.controllers.planning.kind import outdated, superseded
from fleetctl.engine.hurry import freed
from fleetctl.engine.observe.remembered import remembered
from fleetctl.specs.kinds.registry import KINDS, unit_called
from fleetctl.stores.base import Remembered
from fleetctl.tracking.load import last_values, score_of
from fleetctl.tracking.track import Work

if TYPE_CHECKING:
    from fleetctl.engine.money.ledger import Charges
    from fleetctl.engine.shared.state import State


REMARKS_MAX = 20  # events of an object; what more runs have to say stands in their logs


class Records:
    def __init__(self, state: State, charges: Charges) -> None:
        self._state, self._charges = state, charges
        self._changed: dict[str, Run] = {}
        self._metrics: dict[str, list[Metric]] = {}
        self._saved: dict[str, list[Saved]] = {}
        self._results: dict[str, str | None] = {}
        self._remembered: list[Remembered] = []
        self._closed: dict[str, Run] = {}  # last runs of sandboxes that are confirmed closed
        self.begins: set[str] = set()  # uids of runs whose sandbox is made, and work is to begin

    def write(self) -> None:
        """Every run that changed in this tick, once, with its metrics and result."""
        runs = self._state.store.runs
        for run in self._changed.values():
            fresh = runs.advance(
                run,
                result=self._results.get(run.name),
                metrics=self._metrics.get(run.name, ()),
                saved=self._saved.get(run.name, ()),
            )
            assert fresh, f"run {run.name} was not live in the store"
        self._state.store.cache.remember(self._remembered)
        for run in self._closed.values():
            runs.advance(run, from_states=frozenset({run.state}))
        self._charges.write()
        self.forget()

    def forget(self) -> None:
        self._changed.clear()
        self._metrics.clear()
        self._saved.clear()
        self._results.clear()
        self._remembered.clear()
        self._closed.clear()

    def changed(self, run: Run) -> None:
        """A pass changed a live run's record (a stop became the spec)."""
        self._changed[run.name] = run

    def keep(self, work: Work, run: Run) -> None:
        """A live run is still live, with a newer record."""
        work.history.changed(run)
        self._changed[run.name] = run

    def stopped(
        self, work: Work, run: Run, reason: str, message: str | None = None, *, now_s: float
    ) -> None:
        """Nothing of a live run is left at its provider, and it does not count as a failure."""
        message = run.message if message is None else message
        ended = replace(
            run, state=RunState.STOPPED, reason=reason, message=message, ended_at_s=now_s
        )
        self.end(work, ended, None)

    def end(self, work: Work, run: Run, result: str | None) -> None:
        """A live run is over."""
        track = work.track
        run = self._charges.ended(track, run, track.calls.get(run.name))
        latest = track.latest.pop(run.name, {})
        whole = result if run.state is RunState.SUCCEEDED else None
        score = score_of(work.controller, run, whole, lambda: latest)
        work.history.ended(
            run,
            score=score,
            step=self._last_step(run) if rolls_over(run) else None,
            superseded=superseded(work.controller, run),
            outdated=outdated(work.controller, run),
            wanted=work.controller.unit(run.index) is not None,
        )
        track.waits.pop(run.name, None)
        track.held.pop(run.name, None)
        track.missing.pop(run.name, None)
        track.calls.pop(run.name, None)
        if not run.sandbox_open:
            self._state.owner_of.pop(run.name, None)
            freed(self._state, run.provider)
        self._changed[run.name] = run
        # Of a result that cannot be kept whole, the fields that can are no result, but are shown.
        self._results[run.name] = result if run.reason == RESULT_INVALID else whole
        self._remember(work, run, whole, latest)
        unit, ended = KINDS[track.resource.kind].unit, run.state.value
        called = unit_called(track.resource.kind, run.index, run.params)
        if run.state in (RunState.FAILED, RunState.LOST):
            what = f"{called} attempt {run.attempt} {ended.lower()}: {run.reason}"
            self._state.say(track.resource.uid, f"{unit.title()}{ended}", what, kind="Warning")
        elif run.state is RunState.SUCCEEDED and run.message and len(work.history.succeeded) == 1:
            what = f"{called}: {run.message}"  # once: the others will say the same
            self._state.say(track.resource.uid, "Remark", what, kind="Warning")

    def _last_step(self, run: Run) -> int | None:
        """The greatest step that it reported, with what this tick has yet to write."""
        stored = self._state.store.runs.last_step(run.name)
        steps = [it.step for it in self._metrics.get(run.name, ())]
        return max(steps if stored is None else [*steps, stored], default=None)

    def entered(self, work: Work, run: Run) -> None:
        """The run has begun: from now on it speaks for its sandbox, and the one before no more."""
        last = work.history.sandboxes[run.sandbox].last
        work.history.sandboxes.entered(run)
        if last.name != run.name:
            until_s = run.started_at_s if run.started_at_s is not None else run.created_at_s
            self._let_go(work, last, until_s)

    def closed(self, work: Work, sandbox: str) -> None:
        """An idle sandbox is confirmed gone."""
        last = work.history.sandboxes[sandbox].last
        work.history.sandboxes.closed(sandbox)
        work.track.calls.pop(last.name, None)
        self._let_go(work, last, self._state.clock.now_s())
        freed(self._state, last.provider)

    def measured(self, work: Work, run: Run, fresh: Sequence[Metric]) -> bool:
        """What a live run measured since it was seen last. True when its kind may decide by it."""
        self._metrics.setdefault(run.name, []).extend(fresh)
        work.track.latest.setdefault(run.name, {}).update(last_values(fresh))
        self._changed.setdefault(run.name, run)
        curves = work.history.curves
        if curves is None or superseded(work.controller, run):
            return False  # what is reported under an older spec says nothing of this one
        return curves.take(run.index, run.name, fresh)

    def remarked(self, work: Work, run: Run, remarks: Sequence[str]) -> None:
        """What the guest of a live run could not read as metrics. Many runs may say the same."""
        called = unit_called(work.resource.kind, run.index, run.params)
        for text in remarks[: REMARKS_MAX - work.remarks]:
            what = f"{called} attempt {run.attempt}: {text}"
            self._state.say(work.resource.uid, "MetricsUnread", what, kind="Warning")
        work.remarks = min(work.remarks + len(remarks), REMARKS_MAX)

    def fell_behind(self, work: Work, run: Run, stragglers: Sequence[str]) -> None:
        """Nodes of a live run; each is told of once an attempt."""
        called = unit_called(work.resource.kind, run.index, run.params)
        for text in stragglers:
            what = f"{called} attempt {run.attempt}: {text}"
            self._state.say(work.resource.uid, "Straggler", what, kind="Warning")

    def saved(self, work: Work, run: Run, checkpoints: Checkpoints) -> None:
        """What the guest of a live run says of checkpoints: rows, and events for what is odd."""
        uid, unit = work.resource.uid, KINDS[work.resource.kind].unit
        what = f"{unit} {run.index} attempt {run.attempt}"
        for text in checkpoints.aside:
            self._state.say(uid, "CheckpointSetAside", f"{what}: {text}", kind="Warning")
        fresh = [text for text in checkpoints.left if text not in work.left]
        work.left.update(fresh[: REMARKS_MAX - len(work.left)])
        for text in fresh:
            self._state.say(uid, "CheckpointUnknown", f"{what}: {text}", kind="Warning")
        for text in checkpoints.unmirrored:
            self._state.say(uid, "MirrorFailed", f"{what}: {text}", kind="Warning")
        order = work.controller.checkpoint(work.history, run.index)
        if checkpoints.resumed is not None:
            self._state.say(uid, "Resumed", f"{what} goes on from step {checkpoints.resumed}")
            below = order.below if order is not None and not order.anew else None
            if below is not None and checkpoints.resumed < below:
                why = f"attempts from step {below} failed before they saved anything"
                text = f"{what} goes back to step {checkpoints.resumed}: {why}"
                self._state.say(uid, "SteppedBack", text, kind="Warning")
        if checkpoints.saved:
            self._saved.setdefault(run.name, []).extend(checkpoints.saved)
            self._changed.setdefault(run.name, run)
            for one in checkpoints.saved:
                work.history.saved(one)

    def _let_go(self, work: Work, last: Run, until_s: float) -> None:
        """last: what a sandbox executed last, which held it until then."""
        self._state.owner_of.pop(last.name, None)
        paid = self._charges.idled(work, last, until_s)
        self._closed[last.name] = replace(paid, sandbox_open=False)

    def _remember(
        self, work: Work, run: Run, result: str | None, latest: Mapping[str, float]
    ) -> None:
        """Keep a success for equal work. It becomes known with the run's record, or not at all."""
        kept = remembered(self._state, work, run, result, latest)
        if kept is not None:
            self._remembered.append(kept)
