"""What has happened to the units of one resource, kept incrementally: each ended run costs O(log),
a pass O(live + changed).

Built by replaying the run rows in (index, attempt) order, then fed by the engine as runs begin and
end; both go through the same three verbs, so a restart is no second code path. What stands open and
what waits have files of their own. Pure: holds no clock and no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from controllers.intervals import IntervalSet
from controllers.model import CACHED, LIVE_STATES, Run, RunState
from controllers.retry import FailureAction, Limits, due_at_s, failure_action, rolls_over, spent
from controllers.sandboxes import Sandboxes
from controllers.waiting import Waiting


@dataclass(slots=True)
class Unfinished:
    """A unit that has had attempts and is neither finished nor given up."""

    attempts: int = 0
    app_failures: int = 0
    infra_failures: int = 0
    due_at_s: float = 0.0
    last: Run | None = None  # the last ended attempt, for reasons
    forced: bool = False  # somebody asked for another attempt, whatever is known of its outcome


@dataclass(frozen=True, slots=True)
class Replayed:
    """A row read back.

    superseded: its params or template are no longer the wish, so its outcome says nothing.
    wanted: the present spec has its unit; else the row tells of a machine that may live, no more.
    """

    run: Run
    score: float | None = None
    superseded: bool = False
    wanted: bool = True


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
        "last_failure",
        "limits",
        "live",
        "live_by_index",
        "lowest",
        "note",
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
        "waiting",
    )

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.succeeded = IntervalSet()
        self.failed = IntervalSet()
        self.taken = IntervalSet()  # every index that is not fresh
        self.live: dict[str, Run] = {}
        self.live_by_index: dict[int, str] = {}
        self.unfinished: dict[int, Unfinished] = {}
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
        self._succeed(run, score)

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
        wanted: bool = True,
    ) -> None:
        """A live run reached its end: the unit is finished, given up, or due again.

        superseded and wanted as in Replayed: what is left is what reading all rows back would give.
        """
        before = self.live.pop(run.name)
        del self.live_by_index[run.index]
        self._spend(run)
        self.placed[run.provider] -= not _taken(run)
        self.sandboxes.leave(run, closing=before.state is RunState.STOPPING)
        unit = self.unfinished[run.index]
        if not wanted:
            self._forget_unit(run)
            return
        if superseded:
            unit.app_failures, unit.infra_failures, unit.last = 0, 0, None
            self._requeue(run.index, unit, 0.0)
            return
        unit.last = run
        if run.state is RunState.SUCCEEDED:
            self._succeed(run, score)
            return
        if run.state in (RunState.FAILED, RunState.LOST):
            self._count_failure(run, unit)
        self._settle(run, unit)

    def replay(self, rows: Iterable[Replayed]) -> None:
        """Take in all rows, in (index, attempt) order. Only for an empty history."""
        extra_uses: Counter[str] = Counter()
        open_runs: list[Run] = []
        for _, group in groupby(rows, key=lambda row: row.run.index):
            unit_rows = list(group)
            self._replay_unit(unit_rows)
            for row in unit_rows:
                if row.run.provider:
                    self.providers.add(row.run.provider)
                    self.placed[row.run.provider] += _taken(row.run)
                if row.run.state not in LIVE_STATES:
                    self._spend(row.run)
                if row.run.sandbox != row.run.name:
                    extra_uses[row.run.sandbox] += 1
                if row.run.sandbox_open or row.run.state in LIVE_STATES:
                    open_runs.append(row.run)
        for run in open_runs:
            self.sandboxes.replay(run, used=1 + extra_uses[run.sandbox])

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

    # -- helpers -----------------------------------------------------------------------------------

    def _spend(self, run: Run) -> None:
        cost_usd = run.cost_usd
        if cost_usd is None:
            self.unpriced += 1
            if run.started_at_s is not None and run.ended_at_s is not None:
                self.unpriced_s += max(0.0, run.ended_at_s - run.started_at_s)
        else:
            self.spent_usd += cost_usd
        self.charged_usd += (run.usd if run.usd is not None else cost_usd) or 0.0

    def _replay_unit(self, rows: list[Replayed]) -> None:
        last = rows[-1].run
        index, live = last.index, last.state in LIVE_STATES
        if not rows[-1].wanted:
            if not live:
                return
            rows = rows[-1:]
        self.taken.add(index)
        self.started += len(rows)
        unit = self.unfinished[index] = Unfinished(attempts=last.attempt)
        # An attempt under an older wish cuts off all that came before it: the latest attempt
        # counts.
        cut = max((at for at, row in enumerate(rows) if row.superseded), default=-1)
        unit.forced = cut >= 0 and rows[cut].run.put_aside
        for row in rows[cut + 1 : len(rows) - live]:
            unit.last = row.run
            if row.run.state is RunState.SUCCEEDED:
                self._succeed(row.run, row.score)
                return
            if row.run.state in (RunState.FAILED, RunState.LOST):
                self._count_failure(row.run, unit)
        if live:
            self.live[last.name] = last
            self.live_by_index[index] = last.name
        elif unit.last is None:
            self._requeue(index, unit, 0.0)
        else:
            self._settle(unit.last, unit)

    def _forget_unit(self, run: Run) -> None:
        self.taken.discard(run.index)
        self.started -= 1
        del self.unfinished[run.index]

    def _succeed(self, run: Run, score: float | None) -> None:
        added = self.succeeded.add(run.index)
        assert added, f"index {run.index} succeeded twice"
        self.cached += run.reason == CACHED
        if score is not None:
            self.scores[run.index] = score
            self.lowest = min(self.lowest or (score, run.index), (score, run.index))
            self.highest = min(self.highest or (-score, run.index), (-score, run.index))
        at_s = run.ended_at_s or run.created_at_s
        if self.first_result_at_s is None or at_s < self.first_result_at_s:
            self.first_result_at_s = at_s
        del self.unfinished[run.index]

    def _count_failure(self, run: Run, unit: Unfinished) -> None:
        if rolls_over(run):
            return
        self.last_failure = _later(self.last_failure, run)
        ignored = failure_action(self.limits, run) is FailureAction.IGNORE
        if run.state is RunState.LOST or ignored:
            # An ignored failure is capped like a lost run, so that it cannot repeat for ever.
            unit.infra_failures += 1
            self.infra_failures += 1
        else:
            unit.app_failures += 1
            self.failures += 1

    def _settle(self, run: Run, unit: Unfinished) -> None:
        """After its last ended attempt, a unit without success is given up or due again."""
        if run.state is RunState.REFUSED:
            self.refused = _later(self.refused, run)
        if run.state in (RunState.STOPPED, RunState.REFUSED):
            self._requeue(run.index, unit, 0.0)
            return
        action = failure_action(self.limits, run)
        app_failure = run.state is RunState.FAILED
        if app_failure and action is FailureAction.FAIL_JOB:
            self.failed_job = _later(self.failed_job, run)
        over = app_failure and action in (FailureAction.FAIL_INDEX, FailureAction.FAIL_JOB)
        if over or spent(
            self.limits, app_failures=unit.app_failures, infra_failures=unit.infra_failures
        ):
            self.failed.add(run.index)
            del self.unfinished[run.index]
            return
        self._requeue(run.index, unit, due_at_s(self.limits, run, app_failures=unit.app_failures))

    def _requeue(self, index: int, unit: Unfinished, at_s: float) -> None:
        self.waiting.discard(index, unit.due_at_s)
        unit.due_at_s = at_s
        self.waiting.add(index, at_s)


def _taken(run: Run) -> bool:
    """False for an attempt that was taken back or refused before it began."""
    begun = run.started_at_s is not None
    return begun or run.state not in (RunState.STOPPED, RunState.REFUSED)


def _later(known: Run | None, run: Run) -> Run:
    """Whichever ended last, so that the order of reading rows back makes no difference."""
    if known is None:
        return run
    return max(known, run, key=lambda it: (it.ended_at_s or it.created_at_s, it.index, it.attempt))
