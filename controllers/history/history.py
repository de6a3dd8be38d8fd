"""Keeps the history of the units of a resource, incrementally: each ended run costs O(log), a pass
O(live + changed).

Built by replaying the run rows (replay.py), then fed by the engine as runs begin and end; the
effect of an end on its unit is settled for both in attempts.py, so a restart is not a second code
path. Open sandboxes and waiting units have files of their own. Pure: holds no clock and no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator

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
        self.saves.began(run)
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

    def charged(self, usd: float) -> None:
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
