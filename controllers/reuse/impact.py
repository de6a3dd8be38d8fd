"""Computes the effect of a changed spec on work that was done or is under way. Pure.

Called by the engine before it stores a spec, and by `plan`. It calls the functions of the
reconciler, so its result is what the next pass does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from fleetctl.controllers.history.facts import OutdatedSuccess
from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.planning.kind_controller import KindController
from fleetctl.controllers.schedule.advance import SCALED_DOWN, find_unwanted


@dataclass(frozen=True, slots=True)
class RepeatedWork:
    """Finished units whose success counts no more and that would run again. work_s: the seconds
    they had taken; usd: their cost, None where one had no known price.
    """

    units: int = 0
    work_s: float = 0.0
    usd: float | None = 0.0

    def __add__(self, other: RepeatedWork) -> RepeatedWork:
        unknown = self.usd is None or other.usd is None
        usd = None if unknown else (self.usd or 0.0) + (other.usd or 0.0)
        return RepeatedWork(self.units + other.units, self.work_s + other.work_s, usd)


NOT_AGAIN = RepeatedWork()


@dataclass(frozen=True, slots=True)
class Impact:
    """The units of an object under its new spec. None: not yet known.

    kept: finished units that still count, also where a search stopped them early. cached: units
    that take the result of equal work over. failed: given up, and not tried again. going_on: live
    runs that the new spec wants. replaced and cancelled: live runs that it stops, with or without
    another attempt after them. to_run: units that will start, also those replaced. outdated:
    finished units of another content; they run again or are cached, or they are kept because a user
    accepted them.
    """

    total: int | None
    kept: int
    failed: int
    going_on: tuple[Run, ...]
    replaced: tuple[Run, ...]
    cancelled: tuple[Run, ...]
    to_run: int | None
    over: bool  # finished work is enough under the new spec, so no unit starts
    spared: int  # replaced runs that `rollout: FinishRunning` would let end
    controller: KindController  # the controller of this impact
    history: History  # the history that it was computed from
    cached: int = 0
    outdated: int = 0
    again: RepeatedWork = NOT_AGAIN

    @property
    def destroyed(self) -> tuple[Run, ...]:
        """Returns runs whose work is lost. A run that has not begun loses no work."""
        stopped = (*self.replaced, *self.cancelled)
        return tuple(run for run in stopped if run.state is RunState.RUNNING)


def estimate_impact(
    controller: KindController,
    history: History,
    *,
    cached: Collection[int] = (),
    parallelism: int | None = None,
) -> Impact:
    """Returns what the next pass would keep, stop and start. history is read under the new spec;
    cached units have a known result; parallelism is the providers' default for a spec that names
    none.
    """
    policy = controller.policy
    limits = (policy.parallelism, parallelism, len(history.live))
    limit = next(it for it in limits if it is not None)
    reasons = {stop.run: stop.reason for stop in find_unwanted(controller, history, limit)}
    stopped = [history.live[name] for name in reasons]
    replaced = [run for run in stopped if reasons[run.name] != "NoLongerWanted"]
    going_on = [run for run in history.live.values() if run.name not in reasons]
    done = history.done
    failed = len(history.failed)
    over = controller.verdict(history) is not None
    known = 0 if over else len(cached)
    to_run = None
    if controller.total is not None:
        to_run = 0 if over else max(0, controller.total - done - known - failed - len(going_on))
    return Impact(
        total=controller.total,
        kept=done,
        failed=failed,
        going_on=tuple(going_on),
        replaced=tuple(replaced),
        cancelled=tuple(run for run in stopped if reasons[run.name] == "NoLongerWanted"),
        to_run=to_run,
        over=over,
        spared=sum(
            1 for run in replaced if reasons[run.name] == SCALED_DOWN or _same_unit(controller, run)
        ),
        controller=controller,
        history=history,
        cached=known,
        outdated=len(history.outdated) + len(history.kept_outdated),
        again=NOT_AGAIN if over else _count_repeated(history, cached),
    )


def _count_repeated(history: History, cached: Collection[int]) -> RepeatedWork:
    """Returns the units that run again. Cached ones take a result over; one that runs already is
    not lost now.
    """
    lost = [
        it
        for index, it in history.outdated.items()
        if index not in cached and index not in history.live_by_index
    ]
    return estimate_repeat(lost)


def estimate_repeat(lost: Sequence[OutdatedSuccess]) -> RepeatedWork:
    """Estimates the effort to do these again, by the time they had taken."""
    known = [it.usd for it in lost if it.usd is not None]
    usd = sum(known) if len(known) == len(lost) else None
    return RepeatedWork(len(lost), sum(it.work_s for it in lost), usd)


def _same_unit(controller: KindController, run: Run) -> bool:
    """Returns true if the run would go on if neither a changed template nor an earlier unit ended
    it.
    """
    unit = controller.unit(run.index)
    return unit is not None and unit.params_hash == run.params_hash


def worked_s(runs: Iterable[Run], now_s: float) -> float:
    """Seconds of work in these runs so far."""
    return sum(max(0.0, now_s - run.started_at_s) for run in runs if run.started_at_s is not None)


def spent_usd(runs: Iterable[Run], now_s: float) -> float | None:
    """Returns the cost of these live runs so far; None when one has no known price."""
    total = 0.0
    for run in runs:
        if run.started_at_s is None:
            continue
        if run.usd_per_s is None:
            return None
        total += run.usd_per_s * max(0.0, now_s - run.started_at_s)
    return total
