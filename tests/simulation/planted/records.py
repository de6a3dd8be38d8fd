"""Bugs in keeping records: counts, offsets, names, what a restart reads back."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from fleetctl.apply import draft
from fleetctl.controllers.history import attempts
from fleetctl.controllers.history.curves import MetricCurves
from fleetctl.controllers.history.history import History, ReplayedRun
from fleetctl.controllers.kinds.sweep import SweepController
from fleetctl.controllers.model import (
    LIVE_STATES,
    Metric,
    Resource,
    Run,
    RunState,
    SavedCheckpoint,
)
from fleetctl.controllers.trials.prior import WarmTrials
from fleetctl.engine.decide import intents, passes
from fleetctl.engine.decide import work_loader as reading
from fleetctl.engine.money.ledger import RunCharges
from fleetctl.engine.observe import observations
from fleetctl.engine.observe.records import Records
from fleetctl.engine.tick import Ticks
from fleetctl.stores.base import CachedSuccess, LedgerEntry
from fleetctl.stores.sqlite.resources import SqliteResources
from fleetctl.stores.sqlite.runs import SqliteCache, SqliteRuns
from fleetctl.stores.sqlite.store_session import StoreSession
from fleetctl.tracking import load
from tests.simulation.planted.plant import Plant, around, swapped

Context = AbstractContextManager[object]


def success_counted_twice() -> Context:
    """A unit that needed two attempts counts as two successes."""

    def make(status_of: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        def patched(*facts: Any) -> dict[str, Any]:
            status = status_of(*facts)
            return status | {"succeeded": status["succeeded"] + status["retries"]}

        return patched

    return around(passes, "status_of", make)


def offset_not_kept() -> Context:
    """How far the journal was read is forgotten."""

    def make(outcome: Callable[..., Run | None]) -> Callable[..., Run | None]:
        def patched(run: Run, seen: Any, **options: Any) -> Run | None:
            after = outcome(run, seen, **options)
            return after and replace(after, journal_offset=run.journal_offset)

        return patched

    return around(observations, "conclude_run", make)


def metrics_dropped() -> Context:
    """The journal's offset moves on without its metrics."""
    return swapped(Records, "measured", lambda self, work, run, fresh: False)


def half_a_history_after_a_restart() -> Context:
    """What trials that are over had reported is not read back, so others are judged without it."""

    def make(take: Callable[..., bool]) -> Callable[..., bool]:
        def patched(self: MetricCurves, index: int, run: str, metrics: Sequence[Metric]) -> bool:
            return take(self, index, run, metrics if len(metrics) < 2 else metrics[:1])

        return patched

    return around(MetricCurves, "take", make)


def an_early_end_is_no_end() -> Context:
    """A trial that its search ended is due again, as one that was suspended is."""
    return swapped(attempts, "is_final", lambda history, run: False)


def the_best_of_an_older_program_stays_the_best() -> Context:
    """When a changed search is read back, what older programs came to is compared, too."""

    def make(replay: Callable[..., None]) -> Callable[..., None]:
        def patched(history: History, rows: Iterable[ReplayedRun]) -> None:
            known = list(rows)
            replay(history, known)
            for row in known:
                if row.wanted and row.score is not None:
                    attempts._record_score(history, row.run.index, row.score)

        return patched

    return around(load, "replay_runs", make)


def what_an_older_program_reports_counts() -> Context:
    """What a trial reports while it is stopped for a newer program reaches the target."""

    def make(measured: Callable[..., bool]) -> Callable[..., bool]:
        def patched(self: Records, work: Any, run: Run, fresh: Sequence[Metric]) -> bool:
            due = measured(self, work, run, fresh)
            curves = work.history.curves
            return due or (curves is not None and curves.take(run.index, run.name, fresh))

        return patched

    return around(Records, "measured", make)


def a_target_is_looked_at_when_trials_are_over() -> Context:
    """What a trial reports on its way does not end the search."""
    return swapped(MetricCurves, "reached", False)


def points_are_suggested_anew_after_a_restart() -> Context:
    """The points of earlier trials are not read back with their runs."""
    return swapped(SweepController, "recall", lambda self, run: None)


def the_next_point_is_asked_for_again_before_it_is_taken() -> Context:
    """While a point is worked out another is asked for, and the later one has its trial."""

    def make(answer: Callable[..., None]) -> Callable[..., None]:
        def patched(self: SweepController, index: int, params: Any) -> None:
            answer(self, index, params)
            answer(self, index + 1, params)

        return patched

    return around(SweepController, "answer", make)


def a_winner_is_taken_before_its_sweep_is_over() -> Context:
    """The best trial so far is taken for the best."""

    def make(winner_of: Callable[..., Any]) -> Callable[..., Any]:
        def patched(sweep: Resource | None, name: str, **more: Any) -> Any:
            if sweep is not None and '"best"' in sweep.status:
                document = json.loads(sweep.status) | {"phase": "Succeeded"}
                sweep = replace(sweep, status=json.dumps(document))
            return winner_of(sweep, name, **more)

        return patched

    return around(reading, "winner_of", make)


def a_winner_has_the_parameters_of_another_trial() -> Context:
    """The first trial's are told beside the index and the value of the best."""

    def make(summary: Callable[..., Any]) -> Callable[..., Any]:
        def patched(self: SweepController, history: History) -> Any:
            told, first = summary(self, history), self.unit(0)
            if "best" in told and first is not None:
                told["best"] = {**told["best"], "params": dict(first.params)}
            return told

        return patched

    return around(SweepController, "summary", make)


def trials_are_taken_before_their_sweep_is_over() -> Context:
    """A search begins from those that have ended by then."""

    def make(awaited: Callable[..., Any]) -> Callable[..., Any]:
        def patched(sweep: Resource | None, *names: str) -> Any:
            return awaited(sweep, *names) if sweep is None or not sweep.status else None

        return patched

    return around(reading, "explain_awaited", make)


def trials_are_taken_with_the_values_of_others() -> Context:
    """Points and values of another search are each in their order, and not in the same."""

    def make(taken: Callable[..., WarmTrials]) -> Callable[..., WarmTrials]:
        def patched(*told: Any) -> WarmTrials:
            found = taken(*told)
            values = sorted(value for _, value in found.trials)
            pairs = zip((point for point, _ in found.trials), values, strict=True)
            return replace(found, trials=tuple(pairs))

        return patched

    return around(reading, "choose_warm_trials", make)


def result_dropped() -> Context:
    """A success is recorded without its result."""

    def make(end: Callable[..., None]) -> Callable[..., None]:
        return lambda self, owner, run, result, *rest: end(self, owner, run, None, *rest)

    return around(Records, "end", make)


def outcome_overwritten() -> Context:
    """A second attempt that succeeds overwrites its own record with a loss."""

    def make(advance: Callable[..., bool]) -> Callable[..., bool]:
        def patched(self: SqliteRuns, run: Run, **options: Any) -> bool:
            second = run.state is RunState.SUCCEEDED and run.attempt > 1
            message = replace(run, state=RunState.LOST) if second else run
            return advance(self, message, **(options | {"from_states": frozenset(RunState)}))

        return patched

    return around(SqliteRuns, "advance", make)


def stop_not_recorded() -> Context:
    """The spec to stop a run is known in memory alone."""
    return swapped(Records, "changed", lambda self, run: None)


def names_without_owner() -> Context:
    """Two objects that come after each other under one name use the same run names."""

    def make(run_name: Callable[..., str]) -> Callable[..., str]:
        return lambda store, uid, index, attempt: run_name(store, "", index, attempt)

    return around(intents, "run_name", make)


def attempt_number_in_no_name() -> Context:
    """All attempts of a unit have the same name."""

    def make(run_name: Callable[..., str]) -> Callable[..., str]:
        return lambda store, uid, index, attempt: run_name(store, uid, index, 1)

    return around(intents, "run_name", make)


def starting_lost_at_restart() -> Context:
    """A restarted controller takes every start that it finds unanswered for lost."""

    def make(read: Callable[..., None]) -> Callable[..., None]:
        def patched(self: Ticks, owner: Any) -> None:
            read(self, owner)
            for run in list(owner.work.history.live.values()) if owner.work else ():
                if run.state is RunState.STARTING:
                    lost = replace(run, state=RunState.LOST, ended_at_s=self._state.clock.now_s())
                    self._records.end(owner.work, lost, None)

        return patched

    return around(Ticks, "_read", make)


def superseded_counts_at_restart() -> Context:
    """A restart counts attempts under older specs, which the running controller did not."""
    return swapped(load, "is_superseded", lambda controller, run: False)


def generation_not_raised() -> Context:
    """A changed spec keeps its generation, so nobody takes it for a change."""

    def make(put: Callable[..., Any]) -> Callable[..., Any]:
        def patched(self: Any, resource: Any, **options: Any) -> Any:
            known = self.get(resource.kind, resource.name)
            if known is not None and known.uid == resource.uid:
                resource = replace(resource, generation=known.generation)
            return put(self, resource, **options)

        return patched

    return around(SqliteResources, "put", make)


def unchanged_is_a_change() -> Context:
    """Applying the same manifest again raises the generation."""

    def make(dump: Callable[..., str]) -> Callable[..., str]:
        calls = iter(range(1_000_000))
        return lambda spec: dump(spec.model_copy(update={"seed": next(calls)}))

    return around(draft, "dump_spec", make)


def stale_write_over_a_deletion() -> Context:
    """What was read before a deletion is written after it, as if nothing had happened."""

    def make(write: Callable[..., Any]) -> Callable[..., Any]:
        def patched(self: SqliteResources, new: Any, _expected: int) -> Any:
            stored = self.of(new.uid)
            written = write(self, new, stored.version if stored else _expected)
            sql = "UPDATE resources SET deleted_at_s = ? WHERE uid = ?"
            self._session.writing().execute(sql, (new.deleted_at_s, new.uid))
            return written

        return patched

    return around(SqliteResources, "_replace", make)


def epoch_not_fenced() -> Context:
    """A controller that was taken over writes on, as if it were the newest."""

    def make(begin: Callable[..., None]) -> Callable[..., None]:
        def patched(self: StoreSession) -> None:
            newest = self.state.execute(self.sql["fence"]).fetchone()[0]
            self.identity = replace(self.identity, epoch=newest)
            begin(self)

        return patched

    return around(StoreSession, "_begin", make)


def deleted_is_forgotten() -> Context:
    """The runs of a deleted object go with it, and what they cost."""

    def make(delete: Callable[..., None]) -> Callable[..., None]:
        def patched(self: SqliteResources, uid: str) -> None:
            delete(self, uid)
            sql = "DELETE FROM runs WHERE rid = (SELECT rid FROM gone WHERE uid = ?)"
            self._session.writing().execute(sql, (uid,))

        return patched

    return around(SqliteResources, "delete", make)


def an_end_is_told_before_its_last_metrics() -> Context:
    """What a run reported last is written by the next transaction, behind the end of the whole."""
    late: dict[str, list[Metric]] = {}

    def make(write: Callable[..., None]) -> Callable[..., None]:
        def patched(self: Records) -> None:
            held, self._metrics = self._metrics, dict(late)
            late.clear()
            for name, found in held.items():
                ended = name in self._changed and self._changed[name].state not in LIVE_STATES
                (late if ended else self._metrics).setdefault(name, []).extend(found)
            write(self)

        return patched

    return around(Records, "write", make)


def an_end_is_told_before_its_last_checkpoint() -> Context:
    """Checkpoints are written by the next transaction, behind the end of the run that saved
    them.
    """
    late: dict[str, list[SavedCheckpoint]] = {}

    def make(write: Callable[..., None]) -> Callable[..., None]:
        def patched(self: Records) -> None:
            saved, self._saved = self._saved, dict(late)
            late.clear()
            for name, found in saved.items():
                ended = name in self._changed and self._changed[name].state not in LIVE_STATES
                (late if ended else self._saved).setdefault(name, []).extend(found)
            write(self)

        return patched

    return around(Records, "write", make)


def charges_come_to_the_ledger_later() -> Context:
    """The ledger is written by the next transaction, behind the ends that it charges for."""

    def make(write: Callable[..., None]) -> Callable[..., None]:
        late: list[LedgerEntry] = []

        def patched(self: RunCharges) -> None:
            fresh, self._fresh = self._fresh, list(late)
            late[:] = fresh
            write(self)

        return patched

    return around(RunCharges, "write", make)


def a_success_is_remembered_later() -> Context:
    """What equal work may take over is written by the next transaction."""

    def make(remember: Callable[..., None]) -> Callable[..., None]:
        late: deque[Sequence[CachedSuccess]] = deque([(), ()])  # a transaction writes twice

        def patched(self: SqliteCache, entries: Sequence[CachedSuccess]) -> None:
            late.append(tuple(entries))
            remember(self, late.popleft())

        return patched

    return around(SqliteCache, "remember", make)


PLANTS: tuple[Plant, ...] = (
    an_end_is_told_before_its_last_metrics,
    an_end_is_told_before_its_last_checkpoint,
    charges_come_to_the_ledger_later,
    a_success_is_remembered_later,
    deleted_is_forgotten,
    stale_write_over_a_deletion,
    epoch_not_fenced,
    success_counted_twice,
    offset_not_kept,
    metrics_dropped,
    half_a_history_after_a_restart,
    an_early_end_is_no_end,
    the_best_of_an_older_program_stays_the_best,
    what_an_older_program_reports_counts,
    a_target_is_looked_at_when_trials_are_over,
    points_are_suggested_anew_after_a_restart,
    a_winner_is_taken_before_its_sweep_is_over,
    a_winner_has_the_parameters_of_another_trial,
    trials_are_taken_before_their_sweep_is_over,
    trials_are_taken_with_the_values_of_others,
    the_next_point_is_asked_for_again_before_it_is_taken,
    result_dropped,
    outcome_overwritten,
    stop_not_recorded,
    names_without_owner,
    attempt_number_in_no_name,
    starting_lost_at_restart,
    superseded_counts_at_restart,
    generation_not_raised,
    unchanged_is_a_change,
)
