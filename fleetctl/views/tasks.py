"""A task as screens show it: the newest run of an index, and a word for its state. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.controllers.vocabulary.status_keys import EARLY_TERMINATED
from fleetctl.specs.values.quantities import INDEX_MAX
from fleetctl.views.objects import FAILED, SUCCEEDED, View

if TYPE_CHECKING:
    from fleetctl.stores.read.rows import RunRow, TaskRow

QUEUED = "Queued"
CANCELLED = "Cancelled"
REFUSED = "Refused"
OUTDATED = "Outdated"
ENDED_BADLY = ("Failed", "Lost", "Refused")
STOPPED = "Stopped"  # for good: its search ended it for poor values
CACHED = "Cached"  # as fleetctl.controllers.model has it, which would cost a read path its models


class Task(NamedTuple):
    """A task. `run` is the newest attempt, `attempts` how many there were, `result` JSON text,
    `older` the attempts before it.
    """

    run: RunRow
    attempts: int
    state: str
    result: str | None
    older: tuple[RunRow, ...] = ()
    wanted: bool = True  # False: the present spec has no such task
    outdated: bool = False  # it succeeded with another content than the desired one

    @property
    def reason(self) -> str:
        return self.run.reason

    @property
    def shown(self) -> str:
        """Returns its state as a word for screens."""
        if self.outdated:
            return OUTDATED
        return self.state

    @property
    def begun(self) -> bool:
        return self.attempts > 0

    @property
    def duration_s(self) -> float | None:
        """Returns how long the task's newest attempt took, once that has ended."""
        start_s = self.run.started_at_s
        end_s = self.run.ended_at_s
        if start_s is None or end_s is None:
            return None
        return max(0.0, end_s - start_s)


def build_task(row: TaskRow, seen: View) -> Task:
    wanted = not in_ranges(row.run.index, seen.text("unwantedIndexes"))
    state = _find_state(row.run, seen)
    old = state in (SUCCEEDED, CACHED) and is_outdated(row.run, seen)
    return Task(
        row.run,
        row.attempts,
        state,
        row.result,
        row.older,
        wanted,
        old,
    )


def is_outdated(run: RunRow, seen: View) -> bool:
    """Returns true where a success is that of another program, image or source than the desired
    one."""
    contents = seen.status.get("contents")
    if not run.content or not isinstance(contents, list) or not contents:
        return False
    # A single content is that of all units; a kind whose units differ has one for each.
    wanted = str(contents[min(run.index, len(contents) - 1)])
    return bool(wanted) and run.content != wanted  # empty: the spec has no such unit any more


def with_queued(begun: Iterable[Task], seen: View) -> Iterator[Task]:
    """Yields the tasks by index, with a row for every task of a known number that has not begun."""
    total = seen.count("total")
    if own := seen.text("taskIndexes"):
        yield from _with_those_of(own, begun, seen)
        return
    highest = -1
    wanted = 0
    for one in begun:
        if not seen.kind.searches:
            yield from (_make_queued(index, seen) for index in range(highest + 1, one.run.index))
            wanted += max(0, one.run.index - highest - 1)
        yield one
        highest = one.run.index
        wanted = wanted + one.wanted
    # A future trial gets the next number, whatever the outcome of earlier ones.
    for index in range(highest + 1, highest + 1 + max(0, total - wanted)):
        yield _make_queued(index, seen)


def _with_those_of(
    own: str,
    begun: Iterable[Task],
    seen: View,
) -> Iterator[Task]:
    """Yields the same where the indexes have gaps. own: `0-3,7`."""
    left = _parse_indexes(own)
    due = next(left, None)
    for one in begun:
        while due is not None and due <= one.run.index:
            if due < one.run.index:
                yield _make_queued(due, seen)
            due = next(left, None)
        yield one
    while due is not None:
        yield _make_queued(due, seen)
        due = next(left, None)


def _parse_indexes(text: str) -> Iterator[int]:
    """Yields indexes in ascending order. A text that was cut ends where it was."""
    for part in text.removesuffix(",...").split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _make_queued(index: int, seen: View) -> Task:
    from fleetctl.stores.read.rows import RunRow

    state = CANCELLED if seen.over else QUEUED
    row = RunRow(
        index, 0, state, "", "", "", "", seen.resource.created_at_s, None, None, None, "", "",
        sandbox_open=False, params="{}",
    )  # fmt: skip
    return Task(row, 0, state, None)


def build_attempt(run: RunRow) -> Task:
    """Returns one run by itself: when it has ended it has failed, whatever the fate of its task."""
    stopped = STOPPED if run.reason == EARLY_TERMINATED else CANCELLED
    ended = {"Lost": FAILED, "Stopped": stopped}
    state = CACHED if run.reason == CACHED else run.state
    return Task(run, run.attempt, ended.get(state, state), None)


def _find_state(run: RunRow, seen: View) -> str:
    """Returns the run's own state, unless the task continues after it: then it is queued again."""
    if run.state in ("Starting", "Running", "Stopping", "Succeeded"):
        if run.reason == CACHED:
            return CACHED
        return run.state
    over = seen.over or seen.resource.deleted_at_s is not None
    return ended_state(
        run.state,
        run.reason,
        run.index,
        seen.text("failedIndexes"),
        over=over,
    )


def wandb_run(one: Task, seen: View) -> dict[str, str]:
    """Returns `{"id": ..., "url": ...}` of its run at W&B, the url where its page is known; or
    empty."""
    run_id = one.run.wandb
    if not run_id:
        return {}
    url = seen.map("wandb").get("url")
    home, sweeps, _ = url.rpartition("/sweeps/") if isinstance(url, str) else ("", "", "")
    return {"id": run_id} | ({"url": f"{home}/runs/{run_id}"} if sweeps else {})


def task_usd(one: Task, now_s: float) -> float | None:
    """Returns the cost of all its attempts, a live one up to now; None when one has no known
    price."""
    total = 0.0
    for run in (*one.older, one.run):
        if run.started_at_s is None:
            continue
        if run.usd_per_s is None:
            return None
        end_s = now_s if run.ended_at_s is None else run.ended_at_s
        total += run.usd_per_s * max(0.0, end_s - run.started_at_s)
    return total


def ended_state(
    state: str,
    reason: str,
    index: int,
    failed: str,
    *,
    over: bool,
) -> str:
    """Returns the state of a task whose newest run ended in `state`, without success. over: no
    attempt follows.
    """
    if state == STOPPED and reason == EARLY_TERMINATED:
        return STOPPED
    if state == STOPPED:
        if over:
            return CANCELLED
        return QUEUED
    if state == REFUSED and over and not in_ranges(index, failed):
        return REFUSED  # it never ran, and `failed` does not count it
    if over or in_ranges(index, failed):
        return FAILED
    return QUEUED


def in_ranges(index: int, text: str) -> bool:
    """Returns true where `index` is in a set that is written as `0-411,430`."""
    ranges = _parse_ranges(text)
    at = bisect_right(ranges, (index, INDEX_MAX)) - 1
    return at >= 0 and index <= ranges[at][1]


def in_order(text: str) -> Iterator[int]:
    """Yields the members of such a set."""
    for low, high in _parse_ranges(text):
        yield from range(low, high + 1)


@lru_cache(maxsize=4)  # a table of tasks asks for the same text again and again
def _parse_ranges(text: str) -> tuple[tuple[int, int], ...]:
    """Returns ranges in ascending order; a last part `...` (a status that was cut short) is left
    out."""
    ranges = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if low.isdigit() and (high.isdigit() or not dash):
            ranges.append((int(low), int(high if dash else low)))
    return tuple(ranges)


def of_one_content(attempts: Iterable[Task]) -> Iterator[Task]:
    """Yields for each task the attempts with the content of its newest one: a curve shows a single
    program. attempts: in their order, a task's attempts together.
    """
    for _, group in groupby(attempts, key=lambda one: one.run.index):
        tried = list(group)
        yield from (one for one in tried if one.run.content == tried[-1].run.content)
