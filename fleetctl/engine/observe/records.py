"""Writes the records of a tick: the only module where a run's record changes because of an
observation; a success is stored for reuse by equal work.

Called while messages are taken in and decisions are taken; writes each changed run once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.history.retry_limits import RESULT_INVALID, rolls_over
from fleetctl.controllers.model import (
    CheckpointReport,
    Metric,
    Resource,
    Run,
    RunState,
    SavedCheckpoint,
)
from fleetctl.controllers.planning.kind_controller import KindController, is_outdated, is_superseded
from fleetctl.engine.money.ledger import RunCharges
from fleetctl.engine.sleeping import nudge_freed
from fleetctl.specs.kinds.registry import KINDS, unit_called
from fleetctl.specs.values.hints import HintedText
from fleetctl.stores.base import CachedSuccess
from fleetctl.tracking.annotations import REVISION
from fleetctl.tracking.load import last_values, score_of
from fleetctl.tracking.result_cache import contents_of, is_fixed, remember_success
from fleetctl.tracking.track import ResourceWork

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.engine.shared.part import EngineParts


REMARKS_MAX = 20  # events of an object; further remarks of runs are in their logs


class Records:
    def __init__(self, state: EngineState, parts: EngineParts) -> None:
        self._state = state
        self._charges = parts.get(RunCharges)
        self._parts = parts
        self._changed: dict[str, Run] = {}
        self._metrics: dict[str, list[Metric]] = {}
        self._samples: dict[str, list[Metric]] = {}
        self._saved: dict[str, list[SavedCheckpoint]] = {}
        self._results: dict[str, str | None] = {}
        self._remembered: list[CachedSuccess] = []
        self._closed: dict[str, Run] = {}  # last runs of sandboxes that are confirmed closed
        self.begins: set[str] = set()  # uids of runs whose sandbox is made, and work is to begin

    def write(self) -> None:
        """Writes every run that changed in this tick, once, with its metrics and result."""
        runs = self._state.store.runs
        for run in self._changed.values():
            fresh = runs.advance(
                run,
                result=self._results.get(run.name),
                metrics=[*self._metrics.get(run.name, ()), *self._samples.get(run.name, ())],
                saved=self._saved.get(run.name, ()),
            )
            assert fresh, f"run {run.name} was not live in the store"
        self._state.store.cache.remember(self._remembered)
        for run in self._closed.values():
            runs.advance(run, from_states=frozenset({run.state}))
        if self._charges.fresh:
            self._charges.write()
        self.forget()

    def forget(self) -> None:
        self._changed.clear()
        self._metrics.clear()
        self._samples.clear()
        self._saved.clear()
        self._results.clear()
        self._remembered.clear()
        self._closed.clear()

    def changed(self, run: Run) -> None:
        """Takes the record of a live run that a pass changed (a stop became the spec)."""
        self._changed[run.name] = run

    def keep(self, work: ResourceWork, run: Run) -> None:
        """Replaces the record of a run that is still live."""
        work.history.changed(run)
        self._changed[run.name] = run

    def stopped(
        self,
        work: ResourceWork,
        run: Run,
        reason: str,
        message: HintedText | None = None,
        *,
        now_s: float,
    ) -> None:
        """Records that a live run is gone from its provider, and does not count as a failure."""
        message = HintedText(run.message, run.hint) if message is None else message
        ended = replace(
            run,
            state=RunState.STOPPED,
            reason=reason,
            message=message.text,
            hint=message.hint,
            ended_at_s=now_s,
        )
        self.end(work, ended, None)

    def end(
        self,
        work: ResourceWork,
        run: Run,
        result: str | None,
    ) -> None:
        """Records the end of a live run."""
        track = work.track
        run = self._charges.ended(track, run, track.calls.get(run.name))
        latest = track.latest.pop(run.name, {})
        whole = result if run.state is RunState.SUCCEEDED else None
        work.history.ended(
            run,
            score=score_of(work.controller, run, whole, lambda: latest),
            step=self._last_step(run) if rolls_over(run) else None,
            superseded=is_superseded(work.controller, run),
            outdated=is_outdated(work.controller, run),
            wanted=work.controller.unit(run.index) is not None,
        )

        for by_run in (track.waits, track.held, track.missing, track.calls):
            by_run.pop(run.name, None)
        if not run.sandbox_open:
            self._state.owner_of.pop(run.name, None)
            nudge_freed(self._state, run.provider)

        self._changed[run.name] = run
        # If a result cannot be kept whole, the fields that fit are no result, but are shown.
        self._results[run.name] = result if run.reason == RESULT_INVALID else whole
        self._remember(work, run, whole, latest)
        for part in self._parts.awake_for("run_ended", track):
            part.run_ended(work, run, self._results[run.name])
        self._report_end(work, run)

    def _report_end(self, work: ResourceWork, run: Run) -> None:
        """Adds an event for a run that failed, or that succeeded with a remark."""
        resource = work.resource
        called = _name_unit(resource, run)
        if run.state in (RunState.FAILED, RunState.LOST):
            unit = KINDS[resource.kind].unit_of(resource.spec)
            ended = run.state.value
            message = f"{called} attempt {run.attempt} {ended.lower()}: {run.reason}"
            self._state.say(resource.uid, f"{unit.title()}{ended}", message, kind="Warning")
        elif run.state is RunState.SUCCEEDED and run.message and len(work.history.succeeded) == 1:
            message = f"{called}: {run.message}"  # once: the others would repeat it
            self._state.say(resource.uid, "Remark", message, kind="Warning")

    def _last_step(self, run: Run) -> int | None:
        """Returns the greatest step that it reported, with what this tick has yet to write."""
        stored = self._state.store.runs.last_step(run.name)
        steps = [it.step for it in self._metrics.get(run.name, ())]
        return max(steps if stored is None else [*steps, stored], default=None)

    def record_enter(self, work: ResourceWork, run: Run) -> None:
        """Records that the run has begun: from now on it represents its sandbox, and the one before
        no more.
        """
        last = work.history.sandboxes[run.sandbox].last
        work.history.sandboxes.set_last_run(run)
        if last.name != run.name:
            until_s = run.started_at_s if run.started_at_s is not None else run.created_at_s
            self._let_go(work, last, until_s)

    def closed(self, work: ResourceWork, sandbox: str) -> None:
        """Records that an idle sandbox is confirmed gone."""
        last = work.history.sandboxes[sandbox].last
        work.history.sandboxes.closed(sandbox)
        work.track.calls.pop(last.name, None)
        self._let_go(work, last, self._state.clock.now_s())
        nudge_freed(self._state, last.provider)

    def measured(
        self,
        work: ResourceWork,
        run: Run,
        fresh: Sequence[Metric],
    ) -> bool:
        """Records new metrics of a live run. Returns True when its kind may decide by them."""
        self._metrics.setdefault(run.name, []).extend(fresh)
        work.track.latest.setdefault(run.name, {}).update(last_values(fresh))
        self._changed.setdefault(run.name, run)
        curves = work.history.curves
        if curves is None or is_superseded(work.controller, run):
            return False  # a report under an older spec does not apply to this one
        return curves.take(run.index, run.name, fresh)

    def sampled(self, run: Run, samples: Sequence[Metric]) -> None:
        """Records samples of a run's machine, by which nothing is decided."""
        if samples:
            self._samples.setdefault(run.name, []).extend(samples)
            self._changed.setdefault(run.name, run)

    def record_remarks(
        self,
        work: ResourceWork,
        run: Run,
        remarks: Sequence[str],
    ) -> None:
        """Records lines that the guest of a live run could not read as metrics. Many runs may send
        the same.
        """
        called = _name_unit(work.resource, run)
        for text in remarks[: REMARKS_MAX - work.remarks]:
            what = f"{called} attempt {run.attempt}: {text}"
            self._state.say(work.resource.uid, "MetricsUnread", what, kind="Warning")
        work.remarks = min(work.remarks + len(remarks), REMARKS_MAX)

    def record_stragglers(
        self,
        work: ResourceWork,
        run: Run,
        stragglers: Sequence[str],
    ) -> None:
        """Reports slow nodes of a live run; each once an attempt."""
        called = _name_unit(work.resource, run)
        for text in stragglers:
            what = f"{called} attempt {run.attempt}: {text}"
            self._state.say(work.resource.uid, "Straggler", what, kind="Warning")

    def saved(
        self,
        work: ResourceWork,
        run: Run,
        checkpoints: CheckpointReport,
    ) -> None:
        """Records checkpoint reports of a live run's guest: rows, and events for problems."""
        uid = work.resource.uid
        what = f"{_name_unit(work.resource, run)} attempt {run.attempt}"
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

    def _let_go(
        self,
        work: ResourceWork,
        last: Run,
        until_s: float,
    ) -> None:
        """Forgets a closed sandbox and charges its idle time. last: the run that a sandbox
        executed last, which held it until then.
        """
        self._state.owner_of.pop(last.name, None)
        paid = self._charges.charge_idle(work, last, until_s)
        self._closed[last.name] = replace(paid, sandbox_open=False)

    def _remember(
        self,
        work: ResourceWork,
        run: Run,
        result: str | None,
        latest: Mapping[str, float],
    ) -> None:
        """Stores a success for equal work. It becomes known with the run's record, or not at
        all.
        """
        kept = build_cached_success(
            self._state,
            work,
            run,
            result,
            latest,
        )
        if kept is not None:
            self._remembered.append(kept)


def build_cached_success(
    state: EngineState,
    work: ResourceWork,
    run: Run,
    result: str | None,
    latest: Mapping[str, float],
) -> CachedSuccess | None:
    """Returns the success of an ended run, where equal work may reuse it; else None."""
    begun_with = work.track.begun_with.pop(run.name, None)
    controller = work.controller
    if run.state is not RunState.SUCCEEDED or controller is None:
        return None
    unit = controller.unit(run.index)
    if unit is None:
        return None
    if (unit.params_hash, unit.template_hash) != (run.params_hash, run.template_hash):
        return None
    contents = contents_of(state.store, work, revision=_find_revision(state, work, run, controller))
    if contents is None:
        return None
    if is_fixed(controller.content(run.index)):
        contents.memo = work.contents
    elif contents.of(unit).key != begun_with:
        return None  # a volume or a Function became another while it ran
    return remember_success(
        contents,
        unit,
        run,
        owner=work.resource.key,
        result=result,
        latest=latest,
    )


def _find_revision(
    state: EngineState,
    work: ResourceWork,
    run: Run,
    controller: KindController,
) -> str:
    """Returns the revision of the run's copy of its source: that of the apply where one was kept;
    else the provider's, which may differ from the directory then and from the branch now.
    """
    template = controller.content(run.index)
    if template.source is None:
        return ""
    pinned = work.resource.annotations.get(REVISION, "")
    if state.sources is not None and pinned:
        return pinned
    return state.providers[run.provider].revision(run.uid, template, run.template_hash)


def _name_unit(resource: Resource, run: Run) -> str:
    return unit_called(resource.kind, run.index, run.params, resource.spec)
