"""Holds the known state of the units of a resource, as data. Changed by history.py and attempts.py
alone. Pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fleetctl.controllers.history.checkpoints import CheckpointSteps, NewestCheckpoints
from fleetctl.controllers.history.intervals import IntervalSet
from fleetctl.controllers.history.metrics.curves import MetricCurves
from fleetctl.controllers.history.metrics.front import ParetoFront, Values
from fleetctl.controllers.history.open_sandboxes import OpenSandboxes
from fleetctl.controllers.history.retries.backoff_queue import BackoffQueue
from fleetctl.controllers.history.retries.retry_limits import RetryLimits
from fleetctl.controllers.history.working_time import WorkingTime
from fleetctl.controllers.model import GpuUsage, Node, Run

# The value of a unit, by which it is compared; or several, of which lower ones are better.
Score = float | Values


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
        "saves",
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
        self.saves = NewestCheckpoints()  # checkpoints of all its runs
        self.saved_by: set[int] = set()  # units of which an ended attempt completed one
        self.scores: dict[int, float] = {}  # kinds with a metric: index -> value
        self.front = ParetoFront()  # kinds with several metrics; `scores` has the first of each
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
