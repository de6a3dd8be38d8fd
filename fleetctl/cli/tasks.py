"""A task as people see it: the newest run of an index, and a word for how it stands. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.cli.flags import INDEX_MAX
from fleetctl.cli.view import FAILED, View

if TYPE_CHECKING:
    from fleetctl.stores.reader import RunRow, TaskRow

QUEUED, CANCELLED = "Queued", "Cancelled"
CACHED = "Cached"  # as controllers.model has it, which would cost a read path its models


class Task(NamedTuple):
    """`run` is the newest attempt, `attempts` how many there were, `result` JSON text, `older` the
    attempts before it.
    """

    run: RunRow
    attempts: int
    state: str
    result: str | None
    older: tuple[RunRow, ...] = ()

    @property
    def reason(self) -> str:
        return self.run.reason


def task(row: TaskRow, seen: View) -> Task:
    return Task(row.run, row.attempts, _state(row.run, seen), row.result, row.older)


def attempt(run: RunRow) -> Task:
    """One run for itself: when it has ended it has failed, whatever becomes of its task."""
    ended = {"Lost": FAILED, "Refused": FAILED, "Stopped": CANCELLED}
    state = CACHED if run.reason == CACHED else run.state
    return Task(run, run.attempt, ended.get(state, state), None)


def _state(run: RunRow, seen: View) -> str:
    """The run's own state, unless the task goes on after it: then it is queued again."""
    if run.state in ("Starting", "Running", "Stopping", "Succeeded"):
        return CACHED if run.reason == CACHED else run.state
    over = seen.over or seen.resource.deleted_at_s is not None
    return ended_state(run.state, run.index, seen.text("failedIndexes"), over=over)


def task_usd(one: Task, now_s: float) -> float | None:
    """What all its attempts cost, a live one up to now; None when one has no known price."""
    total = 0.0
    for run in (*one.older, one.run):
        if run.started_at_s is None:
            continue
        if run.usd_per_s is None:
            return None
        end_s = now_s if run.ended_at_s is None else run.ended_at_s
        total += run.usd_per_s * max(0.0, end_s - run.started_at_s)
    return total


def ended_state(state: str, index: int, failed: str, *, over: bool) -> str:
    """Of a task whose newest run ended in `state`, without success. over: nothing more comes."""
    if state == "Stopped":
        return CANCELLED if over else QUEUED
    return FAILED if over or in_ranges(index, failed) else QUEUED


def in_ranges(index: int, text: str) -> bool:
    """Whether `index` is in a set that is written as `0-411,430`."""
    ranges = _ranges(text)
    at = bisect_right(ranges, (index, INDEX_MAX)) - 1
    return at >= 0 and index <= ranges[at][1]


def in_order(text: str) -> Iterator[int]:
    """The members of such a set."""
    for low, high in _ranges(text):
        yield from range(low, high + 1)


@lru_cache(maxsize=4)  # a table of tasks asks for the same text again and again
def _ranges(text: str) -> tuple[tuple[int, int], ...]:
    """Ascending; a last part `...` (a status that was cut short) is left out."""
    ranges = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if low.isdigit() and (high.isdigit() or not dash):
            ranges.append((int(low), int(high if dash else low)))
    return tuple(ranges)
