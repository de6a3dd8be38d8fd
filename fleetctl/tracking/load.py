"""Reads a resource: its spec parsed, its work rebuilt from the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite

from fleetctl.controllers.history.curves import MetricCurves
from fleetctl.controllers.history.facts import Score
from fleetctl.controllers.history.history import History, ReplayedRun, replay_runs
from fleetctl.controllers.history.retry_limits import rolls_over
from fleetctl.controllers.kinds.registry import (
    CONTROLLERS,
    UnreadableController,
    choose_controller,
)
from fleetctl.controllers.model import LIVE_STATES, Metric, Resource, Run, RunState
from fleetctl.controllers.planning.kind_controller import KindController, is_outdated, is_superseded
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.stores.base import RunStore
from fleetctl.tracking.annotations import pins_of
from fleetctl.tracking.track import ResourceWork, Track, track_of

REPORTS_PER_PAGE = 5000  # which are in memory at once


def load_work(
    track: Track,
    runs: RunStore,
    *,
    rerun: bool = False,
) -> ResourceWork | None:
    """Parses the spec and rebuilds the history from the rows; rerun: as if none of them counted.
    None for a kind without runs.

    Raises pydantic's ValidationError when the stored spec cannot be read by this version and the
    resource is not deleted.
    """
    resource = track.resource
    rows: Iterable[tuple[Run, str | None]] = runs.of(resource.uid)
    try:
        track.spec = parse_spec(resource.kind, resource.spec)
    except ValueError:
        if resource.deleted_at_s is None:
            raise
        if resource.kind not in CONTROLLERS:
            return None
        # An unreadable object can still be deleted (I23).
        controller: KindController = UnreadableController()
    else:
        make = choose_controller(resource.kind, track.spec)
        if make is None:
            return None
        allocated: dict[str, int] = {}
        if make.keeps_indexes:
            rows = list(rows)
            allocated = {run.params_hash: run.index for run, _ in rows}
        controller = make(track.spec, allocated, pins_of(resource.annotations))
        if make.keeps_indexes:
            for run, _ in rows:
                controller.recall(run)
    history = History(controller.limits, controller.curves())
    found: Iterable[ReplayedRun] = _replay_runs(controller, rows, runs)
    if history.curves is not None:
        found = _take_curves(found, history.curves, runs)
    replay_runs(history, map(_discount_success, found) if rerun else found)
    if calls_usd := runs.calls_usd_of(resource.uid):
        history.called(calls_usd)
    if controller.limits.checkpoints:
        for saved in runs.checkpoints_of(resource.uid):
            history.saved(saved)
        for run, _ in runs.of(resource.uid):
            if run.resumed_step is not None:
                history.saves.began(run.resumed_step)
    for run in history.live.values():
        track.latest[run.name] = dict(runs.last_values_of(run.name))
    track.work = ResourceWork(track, controller, history)
    return track.work


def work_of(
    resource: Resource,
    runs: RunStore,
    *,
    rerun: bool = False,
) -> ResourceWork:
    """Returns the work of a stored object of a kind that runs it, read as the next pass reads
    it."""
    work = load_work(track_of(resource), runs, rerun=rerun)
    assert work is not None, f"a {resource.kind} runs nothing"
    return work


def last_values(metrics: Sequence[Metric]) -> dict[str, float]:
    """Returns the last number of each metric, by which units are compared: a unit that diverged
    counts with its last number before.
    """
    return {metric.name: metric.value for metric in metrics if isfinite(metric.value)}


def score_of(
    controller: KindController,
    run: Run,
    result: str | None,
    latest: Callable[[], Mapping[str, float]],
) -> Score | None:
    """Returns the unit's value, where its kind compares units; for a unit that its kind ended, the
    last report. `latest` is called only when the result has none.
    """
    ended = run.state is RunState.STOPPED and run.reason in controller.limits.final
    if not controller.compares or not (ended or run.state is RunState.SUCCEEDED):
        return None
    result = None if ended else result  # the result of an ended unit is not final
    value = controller.score(result, {})
    if value is not None:
        return value
    return controller.score(result, latest())


def _replay_runs(
    controller: KindController,
    rows: Iterable[tuple[Run, str | None]],
    runs: RunStore,
) -> Iterator[ReplayedRun]:
    for run, result in rows:
        wanted = controller.unit(run.index) is not None
        score = None
        if wanted:
            score = score_of(controller, run, result, partial(runs.last_values_of, run.name))
        old = is_outdated(controller, run)
        # The last step is read only for a run that was rolled over: it takes reading its reports.
        step = runs.last_step(run.name) if rolls_over(run) else None
        yield ReplayedRun(
            run,
            score,
            is_superseded(controller, run),
            old,
            wanted,
            step,
        )


def _take_curves(
    rows: Iterable[ReplayedRun],
    curves: MetricCurves,
    runs: RunStore,
) -> Iterator[ReplayedRun]:
    """Yields the rows; the reports of each attempt under the present spec are read on the way,
    before any decision: by half of the reports a trial would be judged wrongly.
    """
    for row in rows:
        if row.wanted and not row.superseded:
            for reports in _page_metrics(runs, row.run.name):
                curves.take(row.run.index, row.run.name, reports)
        yield row


def _page_metrics(runs: RunStore, run: str) -> Iterator[Sequence[Metric]]:
    """Yields all reports of a run, a bounded number at a time: one may have millions."""
    after = -1
    while reports := runs.metrics_of(run, after=after, limit=REPORTS_PER_PAGE):
        yield reports
        after = reports[-1].seq


def _discount_success(row: ReplayedRun) -> ReplayedRun:
    """Returns the row with the success of a desired unit discounted: it has to succeed again."""
    counts = row.run.state is RunState.SUCCEEDED and row.wanted and not row.superseded
    over = row.run.state not in LIVE_STATES
    return replace(row, superseded=row.superseded or over, outdated=row.outdated or counts)
