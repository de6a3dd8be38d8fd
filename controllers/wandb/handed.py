"""The trials of a sweep that is W&B's: each is a run that it has handed out, under an index of ours
from then on. Pure; called by sweep.py.

What W&B said last comes as data (`SweepReport`); who asks it is engine/kinds/wandb. A run is
known by the id that W&B gave it: our own rows keep it, so that after a restart none begins twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import Run
from fleetctl.specs.search.config import Search, SearchMetric

if TYPE_CHECKING:
    from fleetctl.specs.kinds.sweep import SweepSpec

Params = Mapping[str, object]

PENDING, RUNNING, PAUSED = "PENDING", "RUNNING", "PAUSED"
FINISHED, CANCELED = "FINISHED", "CANCELED"
GONE = "GONE"  # our word for a sweep that is not there any more
OPEN_STATES = frozenset({PENDING, RUNNING, PAUSED})
# Of trials that somebody stopped at W&B; of a sweep that was cancelled or deleted there.
STOPPED_BY_WANDB, CANCELED_BY_WANDB = "StoppedByWandb", "CanceledByWandb"
PAUSED_BY_WANDB, SWEEP_GONE = "PausedByWandb", "WandbSweepGone"
EXITS_BELIEVED = 2  # one `exit` alone decides nothing


@dataclass(frozen=True, slots=True)
class Home:
    """Where a sweep is at W&B. made: by us; else it was there. config: its own, of one that was
    there. key: the id that changes of its state name.
    """

    id: str
    key: str
    entity: str
    project: str
    url: str
    made: bool
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"{self.entity}/{self.project}/{self.id}"


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What W&B said of a sweep last. state: "" while nobody has asked.

    handed: run id -> parameters, of runs that may have no row yet. stopped: runs that somebody
    stopped there. gone: why there is no such sweep, or "". exits: how often in a row it has sent
    an agent without a run away. trouble: why it cannot be asked now, (reason, sentence with a
    hint). sure: no answer of its is open by which it may have handed out a run.
    """

    home: Home | None = None
    state: str = ""
    run_count: int | None = None
    expected: int | None = None
    best: float | None = None
    handed: Mapping[str, Params] = field(default_factory=dict)
    stopped: frozenset[str] = frozenset()
    exits: int = 0
    gone: str = ""
    trouble: tuple[str, str] | None = None
    sure: bool = False


class Handed:
    """points: by index, of every run that W&B has handed to us. trials: how many we take at most;
    None = all.
    """

    def __init__(self, trials: int | None) -> None:
        self._trials = trials
        self.points: dict[int, Params] = {}
        self.run_ids: dict[int, str] = {}
        self.report = SweepReport()
        self._indexes: dict[str, int] = {}
        self._next = 0

    def recall(self, run: Run) -> None:
        """An attempt that is stored: its run keeps its index."""
        if run.wandb:
            self._take(run.index, run.wandb, json.loads(run.params))

    def hear(self, report: SweepReport) -> None:
        """What W&B said since; a run that is new gets the next index."""
        self.report = report
        for run_id, params in report.handed.items():
            if run_id not in self._indexes:
                self._take(self._next, run_id, params)

    def knows(self, run_id: str) -> bool:
        return run_id in self._indexes

    def _take(self, index: int, run_id: str, params: Params) -> None:
        known = self._indexes.setdefault(run_id, index)
        assert known == index, f"run {run_id} of W&B is trial {known} and {index}"
        self.points[index], self.run_ids[index] = params, run_id
        self._next = max(self._next, index + 1)

    def is_open(self, run_id: str, history: History) -> bool:
        """Its trial is under way, or is to begin or to begin again."""
        index = self._indexes.get(run_id)
        if index is None or index in history.live_by_index:
            return index is not None
        return not self.is_stopped(index) and (
            index in history.unfinished or index not in history.taken
        )

    def awaits_begin(self, run_id: str, history: History) -> bool:
        """Nothing of it is stored yet but that it was handed out, and it is still to begin."""
        index = self._indexes.get(run_id)
        return index is not None and index not in history.taken and not self.is_stopped(index)

    def next(self, history: History) -> Iterator[int]:
        """Those to begin: none while W&B has paused the sweep. What it had handed out before it was
        finished is a run like any other.
        """
        if self.report.state not in (PENDING, RUNNING, FINISHED) or self.report.gone:
            return
        for at, index in enumerate(self._unbegun(history)):
            if self._trials is not None and len(history.taken) + at >= self._trials:
                return
            if not self.is_stopped(index):
                yield index

    def asks(self, history: History) -> bool:
        """Whether W&B is to be asked for another run. Once it has sent an agent away, it is asked
        again when nothing runs any more: by then it knows whether that was all.
        """
        report = self.report
        if self._trials is not None and len(history.taken) >= self._trials:
            return False
        if report.home is None or report.trouble is not None or report.gone:
            return False
        idle = not history.unfinished and next(self.next(history), None) is None
        return report.state in (PENDING, RUNNING) and (
            report.exits == 0 or (idle and report.exits < EXITS_BELIEVED)
        )

    def room(self, history: History, *, most: int) -> int:
        """How many runs more could begin at once, of `most` trials at a time."""
        unbegun = sum(1 for _ in self._unbegun(history))
        ends = most - len(history.live) - unbegun
        if self._trials is not None:
            ends = min(ends, self._trials - len(history.taken) - unbegun)
        return max(0, ends)

    def _unbegun(self, history: History) -> Iterator[int]:
        """Ascending. What has begun stays among `report.handed` for a while."""
        indexes = (self._indexes[run_id] for run_id in self.report.handed)
        return iter(sorted(index for index in indexes if index not in history.taken))

    def is_stopped(self, index: int) -> bool:
        return self.run_ids.get(index, "") in self.report.stopped

    @property
    def over(self) -> bool:
        """W&B hands out no more, for good."""
        report = self.report
        ended = report.exits >= EXITS_BELIEVED or (report.state and report.state not in OPEN_STATES)
        return bool(report.sure and ended)

    def status(self) -> dict[str, object]:
        """`status.wandb`."""
        report = self.report
        out: dict[str, object] = {"state": GONE if report.gone else report.state}
        if report.home is not None:
            out = {"id": report.home.id, "url": report.home.url, **out}
        known = {
            "runCount": report.run_count,
            "runCountExpected": report.expected,
            "bestLoss": report.best,
        }
        return out | {name: value for name, value in known.items() if value is not None}


def search_of(spec: SweepSpec, config: Mapping[str, Any]) -> Search:
    """What of a search is ours to know: its own, else that of the sweep's `config` at W&B, which
    may hold what this version does not know.
    """
    if "search" in spec.model_fields_set:
        return spec.search
    metric = config.get("metric")
    metric = metric if isinstance(metric, dict) and isinstance(metric.get("name"), str) else None
    command, program = config.get("command"), config.get("program")
    parameters = config.get("parameters")
    return Search.model_construct(
        method=config.get("method", spec.search.method),
        parameters=parameters if isinstance(parameters, dict) else {},
        metric=None
        if metric is None
        else SearchMetric.model_construct(
            name=metric["name"],
            goal="maximize" if metric.get("goal") == "maximize" else "minimize",
        ),
        command=tuple(map(str, command)) if isinstance(command, list) and command else None,
        program=program if isinstance(program, str) else None,
    )


def names_of(spec: SweepSpec) -> tuple[str, str, str]:
    """(entity, project, base URL) that a spec says; "" where it leaves them to W&B."""
    own = spec.wandb
    env = spec.template.env if spec.template is not None else {}
    entity = (own and own.entity) or spec.search.entity or env.get("WANDB_ENTITY", "")
    project = (own and own.project) or spec.search.project or env.get("WANDB_PROJECT", "")
    base_url = (own and own.base_url) or env.get("WANDB_BASE_URL", "")
    return entity, project, base_url.rstrip("/")
