"""Rebuilds a history from rows, after a restart or under another spec.

Called when a resource is read, in (index, attempt) order. The effect of each row on its unit is
settled as it is when a run ends (attempts.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from fleetctl.controllers.history import attempts
from fleetctl.controllers.history.checkpoints import CheckpointSteps
from fleetctl.controllers.history.facts import Score, UnfinishedUnit
from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import LIVE_STATES, Run


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """A row read back.

    superseded: its params or template are no longer the spec, so its outcome does not count.
    outdated: it succeeded with another content than the desired one. wanted: the present spec has
    its unit; else the row only shows that a machine may live. step: the greatest that it reported,
    where it rolls over; None without a report.
    """

    run: Run
    score: Score | None = None
    superseded: bool = False
    outdated: bool = False
    wanted: bool = True
    step: int | None = None


def replay_runs(history: History, rows: Iterable[ReplayedRun]) -> None:
    """Takes in all rows, in (index, attempt) order. Only for an empty history."""
    extra_uses: Counter[str] = Counter()
    made_at_s: dict[str, float] = {}
    open_runs: list[Run] = []
    for _, group in groupby(rows, key=lambda row: row.run.index):
        unit_rows = list(group)
        _replay_unit(history, unit_rows)
        for row in unit_rows:
            if row.run.provider:
                history.providers.add(row.run.provider)
                history.placed[row.run.provider] += attempts.has_begun(row.run)
            if row.run.state not in LIVE_STATES:
                attempts.record_spending(history, row.run)
            if row.run.sandbox != row.run.name:
                extra_uses[row.run.sandbox] += 1
            else:
                made_at_s[row.run.name] = row.run.created_at_s
            if row.run.sandbox_open or row.run.state in LIVE_STATES:
                open_runs.append(row.run)
    for run in open_runs:
        since_s = made_at_s.get(run.sandbox, run.created_at_s)
        history.sandboxes.replay(run, used=1 + extra_uses[run.sandbox], since_s=since_s)


def _replay_unit(history: History, rows: list[ReplayedRun]) -> None:
    last = rows[-1].run
    index = last.index
    live = last.state in LIVE_STATES
    if not rows[-1].wanted:
        history.unwanted.add(index)
        if not live:
            return
        rows = rows[-1:]
    history.taken.add(index)
    history.started += len(rows)
    unit = history.unfinished[index] = UnfinishedUnit(attempts=last.attempt)
    # An attempt under an older spec cuts off all that came before it: the latest attempt counts.
    cut = max((at for at, row in enumerate(rows) if row.superseded), default=-1)
    unit.forced = cut >= 0 and rows[cut].run.put_aside
    if unit.forced:
        unit.steps = CheckpointSteps.after([row.run for row in rows[: cut + 1]])
    if cut >= 0 and (old := _find_outdated(rows[: cut + 1])) is not None:
        attempts.mark_outdated(history, old)
    for row in rows[cut + 1 : len(rows) - live]:
        if not attempts.record_attempt(
            history,
            unit,
            row.run,
            row.score,
            row.step,
        ):
            if row.outdated:
                history.kept_outdated.add(index)
            return
    if live:
        history.live[last.name] = last
        history.live_by_index[index] = last.name
    elif unit.last is None:
        attempts.requeue_unit(history, index, unit, 0.0)
    else:
        attempts.settle_unit(history, unit, unit.last)


def _find_outdated(rows: list[ReplayedRun]) -> Run | None:
    """Returns the newest of these successes that has another content than the desired one."""
    return next((row.run for row in reversed(rows) if row.outdated), None)
