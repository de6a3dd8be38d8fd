"""What has happened to the units of one resource, kept incrementally: each ended run costs O(log),
a pass O(live + changed).

Built by replaying the run rows (replaying.py), then fed by the engine as runs begin and end; what
an end makes of its unit is settled for both in settling.py, so a restart is no second code path.
What stands open and what waits have files of their own. Pure: holds no clock and no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from controllers import settling
from controllers.intervals import IntervalSet
from controllers.model import LIVE_STATES, Run, RunState
from controllers.retry import Limits
from controllers.sandboxes import Sandboxes
from controllers.settling import Outdated, Unfinished
from controllers.waiting import Waiting
from controllers.working import Working


class History:
    """Facts about one resource under its present spec. Read by controllers; written by the engine
    alone.
    """

    __slots__ = (
        "cached",
        "charged_usd",
        "failed",
        "failed_job",
        "failures",
        "first_result_at_s",
        "highest",
        "infra_failures",
        "kept_outdated",
        "last_failure",
        "limits",
        "live",
        "live_by_index",
        "lowest",
        "note",
        "outdated",
        "placed",
        "providers",
        "refused",
        "sandboxes",
        "scores",
        "spent_usd",
        "started",
        "succeeded",
        "taken",
        "unfinished",
        "unpriced",
        "unpriced_s",
        "unwanted",
        "waiting",
        "working",
    )

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.succeeded = IntervalSet()
        self.failed = IntervalSet()
        self.taken = IntervalSet()  # every index that is not fresh
        self.unwanted = IntervalSet()  # of attempts that the present spec has no unit for
        self.live: dict[str, Run] = {}
        self.live_by_index: dict[int, str] = {}
        self.unfinished: dict[int, Unfinished] = {}
        # Units to run again, and what their outdated successes had taken; and of the succeeded
        # those whose success is outdated and counts all the same.
        self.outdated: dict[int, Outdated] = {}
        self.kept_outdated = IntervalSet()
        self.waiting = Waiting()  # units for their next attempt
        self.sandboxes = Sandboxes(self.live)
        self.scores: dict[int, float] = {}  # kinds with a metric: index -> value
        self.lowest: tuple[float, int] | None = None  # (score, index), the earliest of equals
        self.highest: tuple[float, int] | None = None  # (-score, index)
        self.providers: set[str] = set()  # those that were ever asked to run something
        self.placed: Counter[str] = Counter()  # provider -> attempts that it took
        self.failures = 0  # application failures, over all units
        self.infra_failures = 0
        self.started = 0
        self.cached = 0  # of the succeeded: with a result that an equal unit had before
        self.spent_usd = 0.0  # by all ended runs, wanted or not
        self.unpriced = 0  # ended runs that cost something unknown
        self.unpriced_s = 0.0  # how long these lasted
        self.working = Working()  # when any attempt ran, wanted or not
        self.charged_usd = 0.0  # what all ended runs count for in budgets
        self.first_result_at_s: float | None = None
        self.failed_job: Run | None = None  # a failure whose rule says FailJob
        self.refused: Run | None = None
        self.last_failure: Run | None = None
        self.note = ""

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

    def reused(self, run: Run, *, score: float | None = None) -> None:
        """A unit has the result of an equal one, and no attempt was made."""
        assert run.index not in self.live_by_index, f"index {run.index} is live"
        unit = self.unfinished.setdefault(run.index, Unfinished())
        self.waiting.discard(run.index, unit.due_at_s)
        self.started += 1
        self.taken.add(run.index)
        settling.succeed(self, run, score)

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
        score: float | None = None,
        superseded: bool = False,
        outdated: bool = False,
        wanted: bool = True,
    ) -> None:
        """A live run reached its end: the unit is finished, given up, or due again.

        superseded, outdated and wanted as in replaying.Replayed: what is left is what reading all
        rows back would give.
        """
        before = self.live.pop(run.name)
        del self.live_by_index[run.index]
        settling.spend(self, run)
        self.placed[run.provider] -= not settling.begun(run)
        self.sandboxes.leave(run, closing=before.state is RunState.STOPPING)
        unit = self.unfinished[run.index]
        if not wanted:
            self._forget_unit(run)
            return
        if superseded:
            unit.app_failures, unit.infra_failures, unit.last = 0, 0, None
            if outdated:
                settling.outdate(self, run)
            settling.requeue(self, run.index, unit, 0.0)
            return
        if settling.take(self, unit, run, score):
            settling.settle(self, unit, run)
        elif outdated:
            self.kept_outdated.add(run.index)

    def charged(self, usd: float) -> None:
        """An idle sandbox cost this much more, after the end of its last run."""
        self.charged_usd += usd

    # -- questions ---------------------------------------------------------------------------------

    @property
    def retries(self) -> int:
        """Failures that another attempt follows. What we stopped ourselves is not one."""
        return self.failures + self.infra_failures - len(self.failed)

    def fresh(self, start: int, end: int) -> Iterator[int]:
        """Indexes in [start, end) that never had an attempt, ascending, lazily."""
        return self.taken.gaps(start, end)

    def again(self) -> list[int]:
        """Units whose attempts were all made for another wish, ascending. Not those that somebody
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
