"""Keeps the history of the units of a resource, incrementally: each ended run costs O(log); it is
rebuilt from rows after a restart, and a `retry` selects units from it.

Built by replaying the run rows, then fed by the engine as runs begin and end; the effect of an end
on its unit is settled for both in attempts.py, so a restart is not a second code path. Open
sandboxes and waiting units have files of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from fleetctl.controllers.history import attempts
from fleetctl.controllers.history.checkpoints import CheckpointSteps
from fleetctl.controllers.history.facts import HistoryFacts, Score, UnfinishedUnit
from fleetctl.controllers.model import LIVE_STATES, Run, RunState, SavedCheckpoint


class History(HistoryFacts):
    """Facts about one resource under its present spec. Read by controllers; written by the engine
    alone.
    """

    __slots__ = ()

    # -- facts -------------------------------------------------------------------------------------

    def began(self, run: Run) -> None:
        """Adds a live run: its intent is durable, or its row was read back."""
        assert run.state in LIVE_STATES, run
        assert run.index not in self.live_by_index, f"two live runs of index {run.index}"
        unit = self.unfinished.setdefault(run.index, UnfinishedUnit())
        self.waiting.discard(run.index, unit.due_at_s)
        self.started += 1
        unit.attempts = max(unit.attempts, run.attempt)
        self.live[run.name] = run
        self.live_by_index[run.index] = run.name
        self.taken.add(run.index)
        self.providers.add(run.provider)
        self.placed[run.provider] += 1
        self.sandboxes.enter(run)

    def reused(self, run: Run, *, score: Score | None = None) -> None:
        """Records that a unit took the result of an equal one, without an attempt."""
        assert run.index not in self.live_by_index, f"index {run.index} is live"
        unit = self.unfinished.setdefault(run.index, UnfinishedUnit())
        self.waiting.discard(run.index, unit.due_at_s)
        self.started += 1
        self.taken.add(run.index)
        attempts.record_success(self, run, score)

    def changed(self, run: Run) -> None:
        """Replaces the record of a run that is still live."""
        assert run.name in self.live and run.state in LIVE_STATES, run
        before = self.live[run.name]
        self.live[run.name] = run
        if before.state is not run.state:
            self.sandboxes.count(run.sandbox)

    def ended(
        self,
        run: Run,
        *,
        score: Score | None = None,
        step: int | None = None,
        superseded: bool = False,
        outdated: bool = False,
        wanted: bool = True,
    ) -> None:
        """Records the end of a live run: the unit is finished, given up, or due again.

        step, superseded, outdated and wanted as in replaying.Replayed: the resulting state equals
        that of reading all rows back.
        """
        before = self.live.pop(run.name)
        if run.resumed_step is not None:
            self.saves.began(run.resumed_step)
        del self.live_by_index[run.index]
        self.usage.pop(run.name, None)
        attempts.record_spending(self, run)
        self.placed[run.provider] -= not attempts.has_begun(run)
        self.sandboxes.leave(run, closing=before.state is RunState.STOPPING)
        unit = self.unfinished[run.index]
        if not wanted:
            self._forget_unit(run)
            return
        if superseded:
            unit.app_failures = 0
            unit.infra_failures = 0
            unit.last = None
            unit.steps = CheckpointSteps()
            unit.short_lives = 0
            unit.idle_lives = 0
            unit.reached = None
            unit.shrunk = 0
            if outdated:
                attempts.mark_outdated(self, run)
            attempts.requeue_unit(self, run.index, unit, 0.0)
            return
        if attempts.record_attempt(
            self,
            unit,
            run,
            score,
            step,
        ):
            attempts.settle_unit(self, unit, run)
        elif outdated:
            self.kept_outdated.add(run.index)

    def saved(self, saved: SavedCheckpoint) -> None:
        """Adds a completed checkpoint of a run, also one that is read back, in the order of their
        coming.
        """
        self.saves.take(saved)

    def add_charge(self, usd: float) -> None:
        """Adds the cost of an idle sandbox after the end of its last run."""
        self.charged_usd += usd

    def called(self, usd: float) -> None:
        """Its runs' calls of model endpoints cost this much more."""
        self.charged_usd += usd
        self.spent_usd += usd
        self.calls_usd += usd

    # -- questions ---------------------------------------------------------------------------------

    @property
    def retries(self) -> int:
        """Counts failures that another attempt follows. A run that we stopped ourselves is not a
        failure.
        """
        return self.failures + self.infra_failures - len(self.failed)

    @property
    def done(self) -> int:
        """Counts units that need no more runs: they succeeded, or their kind ended them."""
        return len(self.succeeded) + len(self.pruned)

    def is_done(self, index: int) -> bool:
        return index in self.succeeded or index in self.pruned

    def fresh(self, start: int, end: int) -> Iterator[int]:
        """Indexes in [start, end) that never had an attempt, ascending, lazily."""
        return self.taken.gaps(start, end)

    def again(self) -> list[int]:
        """Returns units whose attempts were all made for another spec, ascending. Units that a user
        asked to run again are left out.
        """
        return sorted(
            index
            for index, unit in self.unfinished.items()
            if unit.last is None and not unit.forced and index not in self.live_by_index
        )

    def next_attempt(self, index: int) -> int:
        unit = self.unfinished.get(index)
        if unit:
            return unit.attempts + 1
        return 1

    def _forget_unit(self, run: Run) -> None:
        self.unwanted.add(run.index)
        self.taken.discard(run.index)
        self.outdated.pop(run.index, None)
        self.started -= 1
        del self.unfinished[run.index]


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """A row read back.

    superseded: its params or template are no longer the spec, so its outcome does not count.
    outdated: it succeeded with another content than the desired one. wanted: the present spec has
    its unit; else the row only shows that a machine may live. step: the greatest that it reported,
    where it rolls over; None without a report.
    """

    run: Run
    score: Score | None = None
    superseded: bool = False
    outdated: bool = False
    wanted: bool = True
    step: int | None = None


def replay_runs(history: History, rows: Iterable[ReplayedRun]) -> None:
    """Takes in all rows, in (index, attempt) order. Only for an empty history."""
    extra_uses: Counter[str] = Counter()
    made_at_s: dict[str, float] = {}
    open_runs: list[Run] = []
    for _, group in groupby(rows, key=lambda row: row.run.index):
        unit_rows = list(group)
        _replay_unit(history, unit_rows)
        for row in unit_rows:
            if row.run.provider:
                history.providers.add(row.run.provider)
                history.placed[row.run.provider] += attempts.has_begun(row.run)
            if row.run.state not in LIVE_STATES:
                attempts.record_spending(history, row.run)
            if row.run.sandbox != row.run.name:
                extra_uses[row.run.sandbox] += 1
            else:
                made_at_s[row.run.name] = row.run.created_at_s
            if row.run.sandbox_open or row.run.state in LIVE_STATES:
                open_runs.append(row.run)
    for run in open_runs:
        since_s = made_at_s.get(run.sandbox, run.created_at_s)
        history.sandboxes.replay(run, used=1 + extra_uses[run.sandbox], since_s=since_s)


def _replay_unit(history: History, rows: list[ReplayedRun]) -> None:
    last = rows[-1].run
    index = last.index
    live = last.state in LIVE_STATES
    if not rows[-1].wanted:
        history.unwanted.add(index)
        if not live:
            return
        rows = rows[-1:]
    history.taken.add(index)
    history.started += len(rows)
    unit = history.unfinished[index] = UnfinishedUnit(attempts=last.attempt)
    # An attempt under an older spec cuts off all that came before it: the latest attempt counts.
    cut = max((at for at, row in enumerate(rows) if row.superseded), default=-1)
    unit.forced = cut >= 0 and rows[cut].run.put_aside
    if unit.forced:
        unit.steps = CheckpointSteps.after([row.run for row in rows[: cut + 1]])
    if cut >= 0 and (old := _find_outdated(rows[: cut + 1])) is not None:
        attempts.mark_outdated(history, old)
    for row in rows[cut + 1 : len(rows) - live]:
        if not attempts.record_attempt(
            history,
            unit,
            row.run,
            row.score,
            row.step,
        ):
            if row.outdated:
                history.kept_outdated.add(index)
            return
    if live:
        history.live[last.name] = last
        history.live_by_index[index] = last.name
    elif unit.last is None:
        attempts.requeue_unit(history, index, unit, 0.0)
    else:
        attempts.settle_unit(history, unit, unit.last)


def _find_outdated(rows: list[ReplayedRun]) -> Run | None:
    """Returns the newest of these successes that has another content than the desired one."""
    return next((row.run for row in reversed(rows) if row.outdated), None)


# A live unit is left alone: it is running already. A unit without an attempt starts without a
# retry.


def find_failed_units(history: History) -> list[int]:
    """Units that were given up, and those that a provider refused; ascending."""
    refused = (
        index
        for index, unit in history.unfinished.items()
        if unit.last is not None and unit.last.state is RunState.REFUSED
    )
    return sorted({*history.failed, *refused} - history.live_by_index.keys())


def find_tried_units(history: History, wanted: Sequence[range] | None) -> list[int]:
    """Returns units of `wanted`, or all, that had attempts and are not live, with any outcome."""
    found = {*history.succeeded, *history.failed, *history.pruned, *_find_waiting_units(history)}
    chosen = found if wanted is None else {it for it in found if any(it in some for some in wanted)}
    return sorted(chosen - history.live_by_index.keys())


def _find_waiting_units(history: History) -> Iterator[int]:
    """Yields units that wait for their next attempt; one that was asked to run again waits
    already.
    """
    return (index for index, unit in history.unfinished.items() if unit.last is not None)
