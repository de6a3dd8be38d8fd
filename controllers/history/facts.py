"""Holds the known state of the units of a resource, as data: task indexes as intervals, and the
time during which at least one attempt ran.

Only history.py and attempts.py change the facts; status.py reads the working time, to which
attempts.py adds each attempt that ends. Waiting, refusal, suspension and the idle night between two
applies are not work, so an end minus a beginning would not show it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fleetctl.controllers.history.checkpoints import CheckpointSteps, NewestCheckpoints
from fleetctl.controllers.history.curves import MetricCurves
from fleetctl.controllers.history.open_sandboxes import OpenSandboxes
from fleetctl.controllers.history.retry_limits import BackoffQueue, RetryLimits
from fleetctl.controllers.history.scores import ParetoFront, Values
from fleetctl.controllers.model import GpuUsage, Node, Run

# The value of a unit, by which it is compared; or several, of which lower ones are better.
Score = float | Values

# Between one task and the next a sandbox is made; that much belongs to the work. It also bounds
# how many spans there can be: one every two seconds, and that only where work is as short as that.
GAP_S = 1.0


@dataclass(frozen=True, slots=True)
class OutdatedSuccess:
    """A success that no longer counts: its unit's content has changed. usd: unset = not known."""

    work_s: float
    usd: float | None


@dataclass(slots=True)
class UnfinishedUnit:
    """A unit that has had attempts and is neither finished nor given up."""

    attempts: int = 0
    app_failures: int = 0
    infra_failures: int = 0
    short_lives: int = 0  # attempts in a row that hardly began when their sandbox was too old
    idle_lives: int = 0  # attempts in a row that came no further until their sandbox was too old
    reached: int | None = None  # the greatest step of the attempts that ended so
    due_at_s: float = 0.0
    last: Run | None = None  # the last ended attempt, for reasons
    steps: CheckpointSteps = field(default_factory=CheckpointSteps)  # of its checkpoints
    shrunk: int = 0  # attempts in a row that gave way to one of fewer nodes
    forced: bool = False  # a user asked for another attempt, with any outcome known so far


class HistoryFacts:
    """Facts about one resource under its present spec."""

    __slots__ = (
        "_saves",
        "cached",
        "calls_usd",
        "charged_usd",
        "curves",
        "failed",
        "failed_job",
        "failures",
        "first_failures",
        "first_result_at_s",
        "front",
        "highest",
        "infra_failures",
        "kept_outdated",
        "last_failure",
        "limits",
        "live",
        "live_by_index",
        "lowest",
        "nodes",
        "note",
        "outdated",
        "placed",
        "providers",
        "pruned",
        "refused",
        "sandboxes",
        "saved_by",
        "scores",
        "spent_usd",
        "started",
        "succeeded",
        "taken",
        "unfinished",
        "unpriced",
        "unpriced_s",
        "unwanted",
        "usage",
        "waiting",
        "working",
    )

    def __init__(self, limits: RetryLimits, curves: MetricCurves | None = None) -> None:
        self.limits = limits
        self.curves = curves  # kinds that decide by what live units report
        self.succeeded = IntervalSet()
        self.failed = IntervalSet()
        # units that their kind ended permanently, neither succeeded nor failed
        self.pruned = IntervalSet()
        self.taken = IntervalSet()  # every index that is not fresh
        self.unwanted = IntervalSet()  # of attempts that the present spec has no unit for
        self.live: dict[str, Run] = {}
        self.live_by_index: dict[int, str] = {}
        self.unfinished: dict[int, UnfinishedUnit] = {}
        # Units to run again, and what their outdated successes had taken; and of the succeeded
        # those whose success is outdated and counts all the same.
        self.outdated: dict[int, OutdatedSuccess] = {}
        self.kept_outdated = IntervalSet()
        self.waiting = BackoffQueue()  # units for their next attempt
        self.sandboxes = OpenSandboxes(self.live)
        self._saves: NewestCheckpoints | None = None
        self.saved_by: set[int] = set()  # units of which an ended attempt completed one
        self.scores: dict[int, float] = {}  # kinds with a metric: index -> value
        # kinds with several metrics, from the first on; `scores` has the first of each
        self.front: ParetoFront | None = None
        self.lowest: tuple[float, int] | None = None  # (score, index), the earliest of equals
        self.highest: tuple[float, int] | None = None  # (-score, index)
        self.providers: set[str] = set()  # providers that were ever asked to run a unit
        self.placed: Counter[str] = Counter()  # provider -> attempts that it took
        self.failures = 0  # application failures, over all units
        self.infra_failures = 0
        self.started = 0
        self.cached = 0  # of the succeeded: with a result that an equal unit had before
        self.spent_usd = 0.0  # by all ended runs, wanted or not
        self.unpriced = 0  # ended runs that cost something unknown
        self.unpriced_s = 0.0  # how long these lasted
        self.working = WorkingTime()  # when any attempt ran, wanted or not
        self.calls_usd = 0.0  # the cost of calls to model endpoints, a part of both others
        self.charged_usd = 0.0  # the charges of all ended runs in budgets
        self.first_result_at_s: float | None = None
        self.failed_job: Run | None = None  # a failure whose rule is FailJob
        self.refused: Run | None = None
        self.last_failure: Run | None = None
        self.first_failures: tuple[Run, ...] = ()  # at most FIRST_MAX, by when they ended
        self.note = ""
        self.usage: dict[str, GpuUsage] = {}  # run -> usage of its GPUs, for live runs
        self.nodes: tuple[Node, ...] = ()  # nodes of the newest attempt that reported several

    @property
    def saves(self) -> NewestCheckpoints:
        """The checkpoints of all its runs."""
        if self._saves is None:
            self._saves = NewestCheckpoints()
        return self._saves


class IntervalSet:
    """Non-negative integers. add, discard and `in` cost O(log intervals) plus one list shift."""

    __slots__ = ("_count", "_ends", "_starts")

    def __init__(self, items: Iterable[int] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # inclusive
        self._count = 0
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, item: int) -> bool:
        at = bisect_right(self._starts, item) - 1
        return at >= 0 and item <= self._ends[at]

    def __iter__(self) -> Iterator[int]:
        for start, end in zip(self._starts, self._ends, strict=True):
            yield from range(start, end + 1)

    def __str__(self) -> str:
        return self.text()

    def text(self, *, intervals_max: int | None = None) -> str:
        """Formats the set as `0-411,430`; cut after intervals_max intervals with `,...`."""
        shown = len(self._starts) if intervals_max is None else intervals_max
        pairs = zip(self._starts[:shown], self._ends[:shown], strict=True)
        text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)
        if shown >= len(self._starts):
            return text
        return text + ",..."

    def add(self, item: int) -> bool:
        """Adds a number. Returns True when it was new."""
        at = bisect_right(self._starts, item) - 1
        if at >= 0 and item <= self._ends[at]:
            return False
        self._count += 1
        joins_left = at >= 0 and self._ends[at] == item - 1
        joins_right = at + 1 < len(self._starts) and self._starts[at + 1] == item + 1
        if joins_left and joins_right:
            self._ends[at] = self._ends.pop(at + 1)
            del self._starts[at + 1]
        elif joins_left:
            self._ends[at] = item
        elif joins_right:
            self._starts[at + 1] = item
        else:
            self._starts.insert(at + 1, item)
            self._ends.insert(at + 1, item)
        return True

    def discard(self, item: int) -> bool:
        """Removes a number. Returns True when it was in the set."""
        at = bisect_right(self._starts, item) - 1
        if at < 0 or item > self._ends[at]:
            return False
        self._count -= 1
        start = self._starts[at]
        end = self._ends[at]
        if start == end:
            del self._starts[at], self._ends[at]
        elif item == start:
            self._starts[at] = item + 1
        elif item == end:
            self._ends[at] = item - 1
        else:
            self._ends[at] = item - 1
            self._starts.insert(at + 1, item + 1)
            self._ends.insert(at + 1, end)
        return True

    def count(self, start: int, end: int) -> int:
        """Counts the members in [start, end); costs O(log intervals + intervals in it)."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        found = 0
        for at in range(first, len(self._starts)):
            if self._starts[at] >= end:
                break
            found += max(0, min(self._ends[at] + 1, end) - max(self._starts[at], start))
        return found

    def gaps(self, start: int, end: int) -> Iterator[int]:
        """Yields the numbers that are not in the set, in [start, end), ascending, lazily: the next
        is found in O(log intervals).

        The set must not change while the iterator is used.
        """
        item = start
        while item < end:
            at = bisect_right(self._starts, item) - 1
            if at >= 0 and item <= self._ends[at]:
                item = self._ends[at] + 1
                continue
            stop = self._starts[at + 1] if at + 1 < len(self._starts) else end
            yield from range(item, min(stop, end))
            item = stop


class WorkingTime:
    """Disjoint spans of seconds since the epoch. `add` costs O(log spans) plus one list shift."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []

    def add(self, run: Run) -> None:
        """Adds an ended attempt; one that never began, or took an equal result, is not work."""
        if run.started_at_s is not None and run.ended_at_s is not None:
            self._join(run.started_at_s, max(run.started_at_s, run.ended_at_s))

    def figures(self, live: Iterable[Run]) -> tuple[float, float | None]:
        """Returns (seconds before the present stretch of work, when that began or None while no
        attempt runs).

        Both stay the same while the same attempts run: a status is not written for a clock.
        """
        begun = min((it.started_at_s for it in live if it.started_at_s is not None), default=None)
        if begun is None:
            return sum(self._ends) - sum(self._starts), None
        at = bisect_left(self._ends, begun - GAP_S)
        since_s = min(begun, self._starts[at]) if at < len(self._starts) else begun
        return sum(self._ends[:at]) - sum(self._starts[:at]), since_s

    def _join(self, start_s: float, end_s: float) -> None:
        first = bisect_left(self._ends, start_s - GAP_S)
        last = bisect_right(self._starts, end_s + GAP_S)
        if first < last:
            start_s = min(start_s, self._starts[first])
            end_s = max(end_s, self._ends[last - 1])
        self._starts[first:last] = [start_s]
        self._ends[first:last] = [end_s]
