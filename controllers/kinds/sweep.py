"""Sweep: a search over parameters; each trial is a unit. Called by reconcile.py through
controllers/planning/kind_controller.py; pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from fleetctl.controllers.history.curves import MetricCurves
from fleetctl.controllers.history.facts import Score
from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.scores import score_of, scores_of
from fleetctl.controllers.model import Run, WandbTrial
from fleetctl.controllers.planning.kind_controller import (
    UNITS_KEPT_MAX,
    KeepRunning,
    KindController,
    ObjectVerdict,
    Params,
    StopNow,
    Unit,
    as_desired,
    limits_of,
    policy_of,
)
from fleetctl.controllers.schedule.end import find_early_verdict
from fleetctl.controllers.status_keys import EARLY_TERMINATED, Status
from fleetctl.controllers.trials.bayes_points import BayesPoints
from fleetctl.controllers.trials.command import DEFAULT_COMMAND
from fleetctl.controllers.trials.early_terminate import judge_early_end, list_rungs
from fleetctl.controllers.trials.points import (
    command_line,
    count_points,
    iterate_points,
    random_point,
)
from fleetctl.controllers.trials.prior import prior_counts, prior_trials
from fleetctl.controllers.trials.trial_warnings import (
    METRIC_MISSING,
    describe_missing,
    describe_report,
    front_status,
    warning_of,
)
from fleetctl.controllers.trials.winner import (
    all_ended,
    judge_wandb_end,
    judge_wandb_stop,
    link_trial,
)
from fleetctl.controllers.wandb import (
    PARAMETERS_UNREAD,
    READ_THEM,
    STOPPED_BY_WANDB,
    AssignedRuns,
    describe_unread,
    search_of,
    stop_by_unread,
    wandb_trial,
)
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.content import NO_PINS, Pins, content_of, template_hash
from fleetctl.specs.values.hashing import params_hash

if TYPE_CHECKING:
    from fleetctl.specs.kinds.sweep import SweepSpec

# For trials that their search, or W&B, has ended for good.
FINAL = frozenset({EARLY_TERMINATED, STOPPED_BY_WANDB})
# A grid is held in memory once per generation, so it has a limit; 100,000 points take about 40 MB.
GRID_POINTS_MAX = 100_000


def build_shared_template(spec: SweepSpec) -> Template:
    """Returns the work that all trials share, parameters aside: the template's own work, else the
    search's command.
    """
    template = spec.template or Template()
    if template.work is not None:
        return template
    command = (*(spec.search.command or DEFAULT_COMMAND), spec.search.program or "")
    return template.model_copy(update={"command": command})


def _build_suggested(spec: SweepSpec, pins: Pins) -> BayesPoints:
    metric = spec.search.metric
    assert metric is not None, "the loader refuses a bayes search without a metric"
    if spec.search.prior_trials is None:
        return BayesPoints(spec.search, spec.seed)
    prior = prior_trials(pins.prior, metric) if pins.prior else None
    return BayesPoints(spec.search, spec.seed, prior)


class SweepController(KindController):
    """A trial's identity is its parameters: a grid that grows keeps the trials it had, under their
    old indexes.

    allocated: params hash -> index of the trials that have runs already.
    """

    compares = True
    keeps_indexes = True

    def __init__(
        self,
        spec: SweepSpec,
        allocated: Mapping[str, int],
        pins: Pins = NO_PINS,
    ) -> None:
        points_in_all = count_points(spec.search) if spec.search.parameters else None
        self.handed = AssignedRuns(spec.trials) if spec.backend == "wandb" else None
        if self.handed is not None:
            config = json.loads(pins.wandb) if pins.wandb else {}
            spec = spec.model_copy(update={"search": search_of(spec, config)})
        search = spec.search
        self.spec = spec

        self.limits = replace(stop_by_unread(limits_of(spec)), final=FINAL)
        self.policy = policy_of(spec, pins, reuse=spec.trials_per_worker)
        if self.handed is not None:
            # A run that W&B has seen end is not begun again for another program.
            self.policy = replace(self.policy, keep_outdated=True)

        command = search.command or DEFAULT_COMMAND
        self._template = spec.template or Template()
        self._command = command if self._template.work is None else None
        self._shared = build_shared_template(spec)
        self.template_hash = template_hash(self._shared, spec.placement, pins)
        self.contents = self.contents_of(spec, pins)

        self._goals = [(it.name, it.goal) for it in spec.metrics or ()]
        self._metric_names = [name for name, _ in self._goals]
        if not self._metric_names and search.metric is not None:
            self._metric_names = [search.metric.name]

        method = search.method if self.handed is None else "wandb"
        self._grid = method == "grid"
        self._suggested = _build_suggested(spec, pins) if method == "bayes" else None
        self._prior = pins.prior
        self._points: dict[int, Mapping[str, object]] = {}
        self._fresh_from = 0
        if self._grid:
            self._allocate(allocated)
        self._end, self.total = self._count_trials(points_in_all)

        # In a bayes search, and in a sweep at W&B, units are added while it runs.
        growing = self._suggested is not None or self.handed is not None
        self.unit = self._unit if growing else lru_cache(UNITS_KEPT_MAX)(self._unit)

    def _count_trials(self, points_in_all: int | None) -> tuple[int | None, int | None]:
        """Returns the index after the last trial, and the number of trials; None while it is not
        known.
        """
        limit = self.spec.trial_limit
        if self.handed is not None:
            # Other agents may take some points; then W&B decides when there are no more.
            ends = [it for it in (points_in_all, limit) if it is not None]
            return limit, min(ends, default=None)
        if not self._grid:
            return limit, limit

        known = len(self._points)
        fresh = sum(1 for index in self._points if index >= self._fresh_from)
        return self._fresh_from + fresh, min(known, limit or known)

    @staticmethod
    def contents_of(spec: SweepSpec, pins: Pins) -> tuple[str, ...]:
        return (content_of(build_shared_template(spec), pins),)

    def _unit(self, index: int) -> Unit | None:
        if self._grid:
            params = self._points.get(index)
            if params is None:
                return None
        elif self.handed is not None:
            params = self.handed.points.get(index)
            if params is None:
                return None
        elif index < 0 or (self._end is not None and index >= self._end):
            return None
        elif self._suggested is not None:
            params = self._suggested.points.get(index)
            if params is None:
                return None
        else:
            params = random_point(self.spec.search, self.spec.seed, index)
        return Unit(
            index,
            params,
            params_hash(params),
            self.template_hash,
            self.contents[0],
        )

    def template(self, index: int) -> Template:
        """Returns the template; where the search brings the command, with that trial's own
        arguments.
        """
        unit = self.unit(index)
        assert unit is not None
        if self._command is None:
            return self._template
        argv = command_line(
            self._command, self.spec.search.program or "", unit.params, self._template.env
        )
        return self._template.model_copy(update={"command": tuple(argv)})

    def content(self, index: int) -> Template:  # one command for all trials
        return self._shared

    @property
    def metric(self) -> str:
        metric = self.spec.search.metric
        if metric is not None:
            return metric.name
        return ""

    def wandb(self, name: str, index: int) -> WandbTrial | None:
        if self.handed is not None:
            return link_trial(self.spec, self.handed, index, self._command)
        if self._command is None:
            return None  # the template's own work, which knows us
        return wandb_trial(name, self.spec.search, self._command)

    @property
    def repeats(self) -> bool:
        # A random draw may repeat a point, and each run at W&B is a distinct run.
        return self.handed is not None or self.spec.search.method == "random"

    def next(self, history: History) -> Iterator[Unit]:
        if self.handed is not None:
            yield from filter(None, map(self.unit, self.handed.next(history)))
            return
        if self._is_reached(history):
            return
        end = self._end if self._end is not None else 1 << 62
        room = (self.total or end) - len(history.taken)
        for index in history.fresh(self._fresh_from, end):
            if room <= 0:
                return
            room -= 1
            unit = self.unit(index)
            if unit is None:
                return  # its point is not suggested yet
            yield unit

    def ready(self, history: History, index: int) -> bool:
        return self.handed is None or not self.handed.is_stopped(index)

    def recall(self, run: Run) -> None:
        if self.handed is not None:
            self.handed.recall(run)
        if self._suggested is not None:
            self._suggested.recall(run)

    def asks(self, history: History) -> int | None:
        if self.handed is not None:
            if self.handed.asks(history):
                return len(history.taken)
            return None
        suggested = self._suggested
        if suggested is None or suggested.waits or suggested.exhausted or self._is_reached(history):
            return None
        if self.total is not None and len(history.taken) >= self.total:
            return None
        index = next(history.fresh(0, self._end or 1 << 62), None)
        if index in suggested.points:
            return None
        return index

    def work(self, history: History, index: int) -> Callable[[], Params | None]:
        assert self._suggested is not None
        return self._suggested.work(history, index)

    def answer(self, index: int, params: Params | None) -> None:
        assert self._suggested is not None
        self._suggested.answer(index, params)
        if self._suggested.exhausted:
            self.total = self._end = len(self._suggested.points)

    def curves(self) -> MetricCurves | None:
        metric = self.spec.search.metric
        early = self.spec.search.early_terminate
        if self.handed is not None:
            return None  # W&B decides what these decide
        needed = early is not None or self._suggested is not None
        if metric is None or not (needed or metric.target is not None):
            return None
        return MetricCurves(
            metric.name,
            maximize=metric.goal == "maximize",
            bands=early.bands if early is not None else (),
            target=metric.target,
        )

    def keep(self, history: History, run: Run) -> KeepRunning | StopNow:
        decision = as_desired(self, run)
        early = self.spec.search.early_terminate
        if isinstance(decision, StopNow):
            return decision
        if (stop := judge_wandb_stop(self.handed, run)) is not None:
            return stop
        if early is None or history.curves is None:
            return decision
        return judge_early_end(history.curves, run.name, early) or decision

    def verdict(self, history: History) -> ObjectVerdict | None:
        done = len(history.succeeded)
        failed = len(history.failed)
        if self.handed is not None and (over := judge_wandb_end(self.handed, history)):
            return over
        if self.handed is None and self._is_reached(history):
            target = self.spec.search.metric.target if self.spec.search.metric else None
            return ObjectVerdict(
                True, "TargetReached", f"target {target} reached", waits_for_live=True
            )
        failed_for_all = history.failed_job
        if failed_for_all is not None and failed_for_all.reason == PARAMETERS_UNREAD:
            return ObjectVerdict(
                False, PARAMETERS_UNREAD, describe_unread(failed_for_all), hint=READ_THEM
            )
        early = find_early_verdict(self.spec, history, units="trials")
        if early is not None:
            return early
        ended = done + failed + len(history.pruned)
        if self.handed is not None and ended < (self.spec.trials or 1 << 62):
            # Other agents may take the rest of a grid, so that only W&B knows when it is complete.
            if not all_ended(self.handed, history):
                return None
            self.total = ended
        if self.total is None or ended < self.total:
            return None
        if failed and self.spec.max_failed_indexes is None:
            return ObjectVerdict(False, "FailedTrials", f"{failed} of {self.total} trials failed")
        if not done and not history.pruned and self.total:
            return ObjectVerdict(False, "FailedTrials", f"all {failed} trials failed")
        return self._finished(history)

    def score(self, result: str | None, metrics: Mapping[str, float]) -> Score | None:
        """Returns the metric of a trial, or several metrics: from its result, else the last value
        that it reported.
        """
        if self._goals:
            return scores_of(result, metrics, self._goals)
        metric = self.spec.search.metric
        if metric is None:
            return None
        return score_of(result, metrics, metric.name)

    def summary(self, history: History) -> Status:
        metric = self.spec.search.metric
        best = self._best(history)
        out: Status = {"method": self.spec.search.method}
        if self.handed is not None:
            out["wandb"] = self.handed.status()
        early = self.spec.search.early_terminate
        if early is not None and history.curves is not None:
            out["rungs"] = list_rungs(history.curves, early)
        if metric is not None:
            out["metric"] = {"name": metric.name, "goal": metric.goal}
        if (prior := self.spec.search.prior_trials) is not None:
            known = {}
            if self._prior:
                known = prior_counts(self._prior)
            out["priorTrials"] = {"fromSweep": prior.from_sweep, **known}
        # Values that W&B's own programs log go to W&B, and are followed here as far as possible.
        names = self._metric_names if self.handed is None else []
        if names and (warning := warning_of(history, names, self._way)):
            out |= {"warning": warning.text, "hint": warning.hint}
        if self._goals:
            out |= front_status(history.front or (), self._goals)
        if self._is_lost(history):
            of = f" of {self.total}" if self.total is not None else ""
            out["cannotSucceed"] = f"{len(history.failed)}{of} trials failed"
        if best is not None and metric is not None:
            unit = self.unit(best)
            out["best"] = {
                "index": best,
                "params": dict(unit.params) if unit else {},
                "metric": {"name": metric.name, "value": history.scores[best]},
            }
        return out

    # -- helpers -----------------------------------------------------------------------------------

    @property
    def _way(self) -> str:
        """Returns the way in which its program reports the metric."""
        read = self._template.metrics
        logs = self._command is not None
        return describe_report(read, self._metric_names[0], logs=logs)

    def _allocate(self, allocated: Mapping[str, int]) -> None:
        self._fresh_from = max(allocated.values(), default=-1) + 1
        free = self._fresh_from
        for params in iterate_points(self.spec.search, self.spec.seed):
            assert len(self._points) < GRID_POINTS_MAX, "the loader limits the grid"
            index = allocated.get(params_hash(params))
            if index is None:
                index = free
                free = free + 1
            self._points[index] = params

    def _is_lost(self, history: History) -> bool:
        """Returns true if a trial was given up, and neither a limit, a target nor a policy makes up
        for it.
        """
        metric = self.spec.search.metric
        spec = self.spec
        if spec.max_failed_indexes is not None or spec.success_policy is not None:
            return False
        return bool(history.failed) and (metric is None or metric.target is None)

    def _finished(self, history: History) -> ObjectVerdict:
        done = len(history.succeeded)
        failed = len(history.failed)
        if self._metric_names and not history.scores and self.handed is None:
            text = describe_missing(self._metric_names)
            return ObjectVerdict(False, METRIC_MISSING, text, hint=self._way)
        text = f"{done} of {self.total} trials succeeded"
        text += f", {len(history.pruned)} were stopped early" if history.pruned else ""
        text += f", {failed} failed" if failed else ""
        return ObjectVerdict(True, "Completed", text)

    def _best(self, history: History) -> int | None:
        """Returns the index of the best trial, the earliest among equals."""
        metric = self.spec.search.metric
        maximize = metric is not None and metric.goal == "maximize"
        best = history.highest if maximize else history.lowest
        if best:
            return best[1]
        return None

    def _is_reached(self, history: History) -> bool:
        """Returns true if the target was reached, by a value reported at any time, or by a
        result.
        """
        metric = self.spec.search.metric
        if metric is None or metric.target is None:
            return False
        if history.curves is not None and history.curves.reached:
            return True
        best = self._best(history)
        if best is None:
            return False
        value = history.scores[best]
        if metric.goal == "maximize":
            return value >= metric.target
        return value <= metric.target
