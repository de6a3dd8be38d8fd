"""What has happened to the units of one resource, kept incrementally: each ended run costs O(log),
a pass O(live + changed).

Built by replaying the run rows (replay.py), then fed by the engine as runs begin and end; what
an end makes of its unit is settled for both in attempts.py, so a restart is not a second code path.
What stands open and what waits have files of their own. Pure: holds no clock and no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.controllers.history import attempts
from fleetctl.controllers.history.checkpoints import Steps
from fleetctl.controllers.history.facts import Facts, Score, Unfinished
from fleetctl.controllers.model import LIVE_STATES, Run, RunState, Saved


class History(Facts):
    """Facts about one resource under its present spec. Read by controllers; written by the engine
    alone.
    """

    __slots__ = ()

    # -- facts -------------------------------------------------------------------------------------

    def began(self, run: Run) -> None:
        """An intent is durable, or a live row was read back."""
        assert run.state in LIVE_STATES, run
        assert run.index not in self.live_by_index, f"two live runs of index {run.index}"
        unit = self.unfinished.setdefault(run.index, Unfinished())
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
        """A unit has the result of an equal one, and no attempt was made."""
        assert run.index not in self.live_by_index, f"index {run.index} is live"
        unit = self.unfinished.setdefault(run.index, Unfinished())
        self.waiting.discard(run.index, unit.due_at_s)
        self.started += 1
        self.taken.add(run.index)
        attempts.succeed(self, run, score)

    def changed(self, run: Run) -> None:
        """A live run is still live, with a newer record."""
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
        """A live run reached its end: the unit is finished, given up, or due again.

        step, superseded, outdated and wanted as in replaying.Replayed: what is left is what reading
        all rows back would give.
        """
        before = self.live.pop(run.name)
        del self.live_by_index[run.index]
        self.usage.pop(run.name, None)
        attempts.spend(self, run)
        self.placed[run.provider] -= not attempts.begun(run)
        self.sandboxes.leave(run, closing=before.state is RunState.STOPPING)
        unit = self.unfinished[run.index]
        if not wanted:
            self._forget_unit(run)
            return
        if superseded:
            unit.app_failures, unit.infra_failures, unit.last = 0, 0, None
            unit.steps = Steps()
            unit.short_lives, unit.idle_lives, unit.reached, unit.shrunk = 0, 0, None, 0
            if outdated:
                attempts.outdate(self, run)
            attempts.requeue(self, run.index, unit, 0.0)
            return
        if attempts.take(self, unit, run, score, step):
            attempts.settle(self, unit, run)
        elif outdated:
            self.kept_outdated.add(run.index)

    def saved(self, saved: Saved) -> None:
        """A run completed a checkpoint; or one is read back, in the order of their coming."""
        self.saves.take(saved)

    def charged(self, usd: float) -> None:
        """An idle sandbox cost this much more, after the end of its last run."""
        self.charged_usd += usd

    def called(self, usd: float) -> None:
        """Its runs' calls of model endpoints cost this much more."""
        self.charged_usd += usd
        self.spent_usd += usd
        self.calls_usd += usd

    # -- questions ---------------------------------------------------------------------------------

    @property
    def retries(self) -> int:
        """Failures that another attempt follows. What we stopped ourselves is not one."""
        return self.failures + self.infra_failures - len(self.failed)

    @property
    def done(self) -> int:
        """Units of which nothing more is desired: they succeeded, or their kind ended them."""
        return len(self.succeeded) + len(self.pruned)

    def is_done(self, index: int) -> bool:
        return index in self.succeeded or index in self.pruned

    def fresh(self, start: int, end: int) -> Iterator[int]:
        """Indexes in [start, end) that never had an attempt, ascending, lazily."""
        return self.taken.gaps(start, end)

    def again(self) -> list[int]:
        """Units whose attempts were all made for another spec, ascending. Not those that somebody
        asked to run again.
        """
        return sorted(
            index
            for index, unit in self.unfinished.items()
            if unit.last is None and not unit.forced and index not in self.live_by_index
        )

    def next_attempt(self, index: int) -> int:
        unit = self.unfinished.get(index)
        return unit.attempts + 1 if unit else 1

    def _forget_unit(self, run: Run) -> None:
        self.unwanted.add(run.index)
        self.taken.discard(run.index)
        self.outdated.pop(run.index, None)
        self.started -= 1
        del self.unfinished[run.index]
