"""Trials and W&B: those that W&B has assigned, each a run under an index of ours, and the settings
for a program that calls `wandb.init` for its parameters.

The last state from W&B comes as data (`SweepReport`), requested by engine/kinds/wandb. A run is
known by the id that W&B gave it: our own rows keep it, so that after a restart no run begins
twice. Settings that only the sandbox knows are in fleetctl/guest/wandb/trial.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.retry_limits import (
    FailureAction,
    FailureRule,
    RetryLimits,
)
from fleetctl.controllers.model import Run, WandbTrial
from fleetctl.specs.search.config import Search, SearchMetric
from fleetctl.specs.values.hints import NO_TEXT, HintedText

if TYPE_CHECKING:
    from fleetctl.specs.blocks.common import ParamsFrom
    from fleetctl.specs.blocks.template import Template
    from fleetctl.specs.kinds.sweep import SweepSpec


Params = Mapping[str, object]

PENDING = "PENDING"
RUNNING = "RUNNING"
PAUSED = "PAUSED"
FINISHED = "FINISHED"
CANCELED = "CANCELED"
GONE = "GONE"  # our word for a sweep that no longer exists
OPEN_STATES = frozenset({PENDING, RUNNING, PAUSED})
# For trials that a user stopped at W&B; for a sweep that was cancelled or deleted there.
STOPPED_BY_WANDB = "StoppedByWandb"
CANCELED_BY_WANDB = "CanceledByWandb"
PAUSED_BY_WANDB = "PausedByWandb"
SWEEP_GONE = "WandbSweepGone"
EXITS_BELIEVED = 2  # one `exit` alone is not believed yet

PARAMETERS_UNREAD = "ParametersUnread"
READ_THEM = (
    "read the parameters from `wandb.config`, or hand them over with `${args}` in `search.command`;"
    " a program that reads $TASK_NAME or $FLEETCTL_PARAMS by itself goes into `template.command`"
)
# Matches a command that passes parameters on: all parameters, or the variables and the file of a
# trial.
HANDS_OVER = re.compile(r"\$\{args(_\w+)?\}|TASK_|FLEETCTL_PARAMS")
# Matches a program in Python: its interpreter, or a .py file.
_PYTHON = re.compile(r"""(^|[\s/;&|("'])python[\d.]*($|[\s"'])|\.py($|[\s"';&|)])""")


@dataclass(frozen=True, slots=True)
class SweepLocation:
    """The location of a sweep at W&B. made: by us; else it existed before. config: its own, if it
    existed before. key: the id that changes of its state name.
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
    """The last known state of a sweep at W&B. state: "" before the first reply.

    handed: run id -> parameters, of runs that may have no row yet. stopped: runs that a user
    stopped there. gone: why the sweep does not exist, or "". exits: how often in a row it has sent
    an agent no further run. trouble: why it cannot be queried now, (reason, sentence with a
    hint). sure: no request is open by which it may have assigned a run.
    """

    home: SweepLocation | None = None
    state: str = ""
    run_count: int | None = None
    expected: int | None = None
    best: float | None = None
    handed: Mapping[str, Params] = field(default_factory=dict)
    stopped: frozenset[str] = frozenset()
    exits: int = 0
    gone: HintedText = NO_TEXT
    trouble: tuple[str, HintedText] | None = None
    sure: bool = False


class AssignedRuns:
    """points: by index, of every run that W&B has assigned to us. trials: the limit of trials we
    take; None = all.
    """

    def __init__(self, trials: int | None) -> None:
        self._trials = trials
        self.points: dict[int, Params] = {}
        self.run_ids: dict[int, str] = {}
        self.report = SweepReport()
        self._indexes: dict[str, int] = {}
        self._next = 0

    def recall(self, run: Run) -> None:
        """Records a stored attempt: its run keeps its index."""
        if run.wandb:
            self._take(run.index, run.wandb, json.loads(run.params))

    def hear(self, report: SweepReport) -> None:
        """Takes in W&B's latest report; each new run gets the next index."""
        self.report = report
        for run_id, params in report.handed.items():
            if run_id not in self._indexes:
                self._take(self._next, run_id, params)

    def knows(self, run_id: str) -> bool:
        return run_id in self._indexes

    def _take(
        self,
        index: int,
        run_id: str,
        params: Params,
    ) -> None:
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
        """Returns true if the run is stored as assigned only, and still has to begin."""
        index = self._indexes.get(run_id)
        return index is not None and index not in history.taken and not self.is_stopped(index)

    def next(self, history: History) -> Iterator[int]:
        """Yields the trials to begin: none while W&B has paused the sweep. A run assigned before
        the sweep was finished is begun as well.
        """
        if self.report.state not in (PENDING, RUNNING, FINISHED) or self.report.gone:
            return
        for at, index in enumerate(self._list_unbegun(history)):
            if self._trials is not None and len(history.taken) + at >= self._trials:
                return
            if not self.is_stopped(index):
                yield index

    def asks(self, history: History) -> bool:
        """Returns true if another run should be requested from W&B. After W&B sent an agent away,
        it is queried again once no trial runs any more: by then it knows if that was the last.
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
        """Returns how many runs more could begin at once, of `most` trials at a time."""
        unbegun = sum(1 for _ in self._list_unbegun(history))
        ends = most - len(history.live) - unbegun
        if self._trials is not None:
            ends = min(ends, self._trials - len(history.taken) - unbegun)
        return max(0, ends)

    def _list_unbegun(self, history: History) -> Iterator[int]:
        """Yields indexes in ascending order. A begun run stays among `report.handed` for a
        while.
        """
        indexes = (self._indexes[run_id] for run_id in self.report.handed)
        return iter(sorted(index for index in indexes if index not in history.taken))

    def is_stopped(self, index: int) -> bool:
        return self.run_ids.get(index, "") in self.report.stopped

    @property
    def over(self) -> bool:
        """Returns true if W&B assigns no more runs, permanently."""
        report = self.report
        ended = report.exits >= EXITS_BELIEVED or (report.state and report.state not in OPEN_STATES)
        return bool(report.sure and ended)

    def status(self) -> dict[str, object]:
        """Returns `status.wandb`."""
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
    """Returns the fields of a search that we use: its own, else those of the sweep's `config` at
    W&B, which may hold fields that this version does not know.
    """
    if "search" in spec.model_fields_set:
        return spec.search
    metric = config.get("metric")
    metric = metric if isinstance(metric, dict) and isinstance(metric.get("name"), str) else None
    command = config.get("command")
    program = config.get("program")
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
    """Returns (entity, project, base URL) of a spec; "" where it leaves them to W&B."""
    own = spec.wandb
    env = spec.template.env if spec.template is not None else {}
    entity = (own and own.entity) or spec.search.entity or env.get("WANDB_ENTITY", "")
    project = (own and own.project) or spec.search.project or env.get("WANDB_PROJECT", "")
    base_url = (own and own.base_url) or env.get("WANDB_BASE_URL", "")
    return entity, project, base_url.rstrip("/")


def wandb_trial(
    name: str,
    search: Search,
    command: Sequence[str],
) -> WandbTrial:
    """Returns the settings of wandb for trials of a sweep. name: of the sweep's object."""
    handed_over = any(map(HANDS_OVER.search, command)) or not search.parameters
    return WandbTrial(
        name,
        search.project or "",
        search.entity or "",
        only=not handed_over,
        metric=search.metric.name if search.metric is not None else "",
    )


def winner_wandb(params_from: ParamsFrom | None, template: Template) -> WandbTrial | None:
    """Returns the link for work that takes the parameters of a sweep's best trial: its program may
    be the sweep's. A command that passes no parameters on may run with values of its own, so those
    are compared.
    """
    if params_from is None:
        return None
    words = [*(template.command or ()), template.script or ""]
    return WandbTrial(
        "",
        "",
        "",
        only=False,
        compares=not any(map(HANDS_OVER.search, words)),
    )


def observe_template(template: Template, wandb: WandbTrial | None) -> Template:
    """Returns the template of a run, with a flag if its image must have Python to read what its
    program logs to wandb: where wandb alone can pass the parameters on, and where the program is in
    Python anyway. Without it a trial would silently run with defaults of its own.
    """
    if wandb is None:
        return template
    words = " ".join([*(template.command or ()), template.script or ""])
    needed = wandb.only or _PYTHON.search(words) is not None
    if needed:
        return template.observed()
    return template


def stop_by_unread(limits: RetryLimits) -> RetryLimits:
    """Returns the same limits, but the first trial whose program never read its parameters ends the
    whole sweep: each of the others would run with the program's own defaults too.
    """
    rule = FailureRule("", FailureAction.FAIL_JOB, reasons=frozenset({PARAMETERS_UNREAD}))
    return replace(limits, rules=(rule, *limits.rules))


def describe_unread(run: Run) -> str:
    """Returns the message of a sweep that ends because no program read a trial's parameters."""
    return f"trial {run.index}: {run.message}"
