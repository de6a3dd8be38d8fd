"""Reading a resource: its spec parsed, its work rebuilt from the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite

from fleetctl.controllers.history.facts import Score
from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.metrics.curves import Curves
from fleetctl.controllers.history.replay import Replayed, replay
from fleetctl.controllers.history.retries.retry import rolls_over
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.kinds.unreadable import Unreadable
from fleetctl.controllers.model import LIVE_STATES, Metric, Resource, Run, RunState
from fleetctl.controllers.planning.kind import KindController, outdated, superseded
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.stores.base import RunStore
from fleetctl.tracking.annotations import pins_of
from fleetctl.tracking.track import Track, Work, track_of


def load(track: Track, runs: RunStore, *, rerun: bool = False) -> Work | None:
    """Parse the spec and rebuild the history from the rows; rerun: as if none of them counted.
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
        # What nobody can read can still be deleted (I23).
        controller: KindController = Unreadable()
    else:
        make = CONTROLLERS.get(resource.kind)
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
    found: Iterable[Replayed] = _replayed(controller, rows, runs)
    if history.curves is not None:
        found = _told(found, history.curves, runs)
    replay(history, map(_discounted, found) if rerun else found)
    if calls_usd := runs.calls_usd_of(resource.uid):
        history.called(calls_usd)
    if controller.limits.checkpoints:
        for saved in runs.checkpoints_of(resource.uid):
            history.saved(saved)
    for run in history.live.values():
        track.latest[run.name] = last_values(runs.metrics_of(run.name))
    track.work = Work(track, controller, history)
    return track.work


def work_of(resource: Resource, runs: RunStore, *, rerun: bool = False) -> Work:
    """The work of a stored object of a kind that runs it, read as the next pass reads it."""
    work = load(track_of(resource), runs, rerun=rerun)
    assert work is not None, f"a {resource.kind} runs nothing"
    return work


def last_values(metrics: Sequence[Metric]) -> dict[str, float]:
    """The last number of each metric, by which units are compared: one that diverged counts by what
    it came to before.
    """
    return {metric.name: metric.value for metric in metrics if isfinite(metric.value)}


def score_of(
    controller: KindController,
    run: Run,
    result: str | None,
    latest: Callable[[], Mapping[str, float]],
) -> Score | None:
    """The unit's value, where its kind compares units; of one that its kind ended, what it reported
    last. `latest` is asked only when the result has none.
    """
    ended = run.state is RunState.STOPPED and run.reason in controller.limits.final
    if not controller.compares or not (ended or run.state is RunState.SUCCEEDED):
        return None
    result = None if ended else result  # half a result says nothing
    value = controller.score(result, {})
    return value if value is not None else controller.score(result, latest())


def _replayed(
    controller: KindController, rows: Iterable[tuple[Run, str | None]], runs: RunStore
) -> Iterator[Replayed]:
    for run, result in rows:
        wanted = controller.unit(run.index) is not None
        score = None
        if wanted:
            score = score_of(controller, run, result, partial(_stored_values, runs, run.name))
        old = outdated(controller, run)
        # Only what was rolled over is asked how far it came: to look takes reading its reports.
        step = runs.last_step(run.name) if rolls_over(run) else None
        yield Replayed(run, score, superseded(controller, run), old, wanted, step)


def _told(rows: Iterable[Replayed], curves: Curves, runs: RunStore) -> Iterator[Replayed]:
    """The rows; what each attempt under the present spec reported is read on the way, before any
    decision: by half of it a trial would be judged wrongly.
    """
    for row in rows:
        if row.wanted and not row.superseded:
            curves.take(row.run.index, row.run.name, runs.metrics_of(row.run.name))
        yield row


def _discounted(row: Replayed) -> Replayed:
    """The success of a wanted unit is to be had anew."""
    counts = row.run.state is RunState.SUCCEEDED and row.wanted and not row.superseded
    over = row.run.state not in LIVE_STATES
    return replace(row, superseded=row.superseded or over, outdated=row.outdated or counts)


def _stored_values(runs: RunStore, run: str) -> dict[str, float]:
    return last_values(runs.metrics_of(run))
