"""A task as screens show it: the newest run of an index, a word for its state, its file where it
has one, and the services beside it. Pure.

Tasks stand for contents (`tasks.fromFiles`), and names are of the present spec alone: after a
rename a finished task is shown with the new name.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.controllers.status_keys import EARLY_TERMINATED, INDEXES
from fleetctl.specs.builtin import RunMachine
from fleetctl.specs.values.quantities import INDEX_MAX
from fleetctl.views.objects import FAILED, SUCCEEDED, View, as_mapping, parse_document

if TYPE_CHECKING:
    from fleetctl.stores.read.rows import RunRow, TaskRow


QUEUED = "Queued"
CANCELLED = "Cancelled"
REFUSED = "Refused"
OUTDATED = "Outdated"
ENDED_BADLY = ("Failed", "Lost", "Refused")
STOPPED = "Stopped"  # for good: its search ended it for poor values
CACHED = "Cached"  # as fleetctl.controllers.model has it, which would cost a read path its models

FILE, FILES = "file", "files"  # parameters of a task
_MARK = '"files":'  # in the text of a spec, which may hold a million rows in place of files
NAMES_SHOWN = 2  # of a task's files, in a cell
DIGEST_SHOWN = 12  # of a content that the present spec does not name

# A screen does not read more journals: the names have to do.
JOURNALS_READ_MAX = 16


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
    machine: RunMachine = RunMachine()

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
    wanted = not is_in_ranges(row.run.index, seen.text("unwantedIndexes"))
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
    if state == REFUSED and over and not is_in_ranges(index, failed):
        return REFUSED  # it never ran, and `failed` does not count it
    if over or is_in_ranges(index, failed):
        return FAILED
    return QUEUED


def is_in_ranges(index: int, text: str) -> bool:
    """Returns true where `index` is in a set that is written as `0-411,430`."""
    ranges = _parse_ranges(text)
    at = bisect_right(ranges, (index, INDEX_MAX)) - 1
    return at >= 0 and index <= ranges[at][1]


def list_in_order(text: str) -> Iterator[int]:
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


class FileNames:
    """The names of the files of an object's tasks."""

    def __init__(self, files: Mapping[str, object], indexes: str) -> None:
        base = str(files.get("base", "."))
        found = files.get("found")
        chunk = files.get("chunk")
        rows = [as_mapping(it) for it in (found if isinstance(found, list) else ())]
        prefix = "" if base == "." else f"{base.rstrip('/')}/"
        self._shown = [f"{prefix}{it.get('path')}" for it in rows]
        self._digests = [_identity_of(it) for it in rows]
        self._size = chunk if isinstance(chunk, int) else 1
        self.parameter = FILE if chunk is None else FILES
        self._rows = _rows_by_index(indexes)

    @classmethod
    def of(cls, seen: View) -> FileNames | None:
        """Returns the names; None for an object whose tasks have no files."""
        if seen.kind.name != "BatchJob" or _MARK not in seen.spec_text():
            return None
        files = as_mapping(as_mapping(seen.spec().get("tasks")).get("files"))
        if files:
            return cls(files, seen.resource.annotations.get(INDEXES, ""))
        return None

    def name_tasks(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Yields the tasks with the names of their files as parameters."""
        return (
            it._replace(run=self.name_run(it.run), older=tuple(map(self.name_run, it.older)))
            for it in tasks
        )

    def name_run(self, run: RunRow) -> RunRow:
        """Returns the run with the names; also of a task that has not begun."""
        return run._replace(params=self.name_params(run.index, run.params))

    def name_params(self, index: int, text: str) -> str:
        """Returns the parameters of a task, JSON, with the names of its files."""
        params = parse_document(text)
        known = params.get(FILE, params.get(FILES))
        listed = known if isinstance(known, list) else [known]
        if any(isinstance(it, str) for it in listed):
            return text  # it has its names
        own = self._of_row(index)
        if known is None:
            names = [name for name, _ in own]
        else:
            names = self._names_of([as_mapping(it) for it in listed], own)
        value: object = names[0] if self.parameter == FILE and names else names
        others = {key: it for key, it in params.items() if key not in (FILE, FILES)}
        return json.dumps({self.parameter: value, **others})

    def _of_row(self, index: int) -> list[tuple[str, str]]:
        """Returns (name, digest) of the files of the row that has an index."""
        row = self._rows(index)
        if row is None:
            return []
        at = slice(row * self._size, (row + 1) * self._size)
        return list(zip(self._shown[at], self._digests[at], strict=True))

    def _names_of(
        self, contents: list[Mapping[str, object]], own: list[tuple[str, str]]
    ) -> list[str]:
        digests = [_identity_of(it) for it in contents]
        if digests == [digest for _, digest in own]:
            return [name for name, _ in own]
        by_content = dict(zip(self._digests, self._shown, strict=True))
        return [
            by_content.get(digest) or _describe_former(it, digest)
            for it, digest in zip(contents, digests, strict=True)
        ]


def _identity_of(known: Mapping[str, object]) -> str:
    """Returns the digest of a content; of a file in a volume its path, with which it is shown."""
    return str(known.get("sha256") or known.get("path"))


def _describe_former(it: Mapping[str, object], digest: str) -> str:
    """Returns the name of a file that the present spec has no more."""
    if "sha256" in it:
        return f"{it.get('name')} ({digest[:DIGEST_SHOWN]})"
    return digest


def file_cell(params: Mapping[str, object]) -> str:
    """Returns the names of a task's files for a cell: `a.txt, b.txt and 8 more`."""
    named = params.get(FILE, params.get(FILES))
    if not isinstance(named, list):
        if named is None:
            return ""
        return str(named)
    more = len(named) - NAMES_SHOWN
    shown = ", ".join(str(it) for it in named[:NAMES_SHOWN])
    if more > 0:
        return f"{shown} and {more} more"
    return shown


def _rows_by_index(indexes: str) -> Callable[[int], int | None]:
    if not indexes:
        return lambda index: index
    from fleetctl.controllers.reuse.row_matching import RowIndexes

    return RowIndexes.parse(indexes).row


def service_names(seen: View) -> list[str]:
    """Returns names in their order; of a training, those of its stages too."""
    spec = seen.spec()
    stages = spec.get("groups") or spec.get("stages")
    parts = [spec.get("template"), *(stages if isinstance(stages, list) else ())]
    return list(dict.fromkeys(name for part in parts for name in _list_named(as_mapping(part))))


def service_lines(
    state_dir: Path,
    seen: View,
    live: list[RunRow],
) -> list[str]:
    """Returns `ollama: 2 Ready, 1 Starting` for each service; without live attempts, or with many,
    its name alone.
    """
    names = service_names(seen)
    if not names or not live or len(live) > JOURNALS_READ_MAX:
        return names
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    for name, state in _read_states(state_dir, seen.resource.uid, live):
        if name in found:
            found[name][state] += 1
    return [_format_line(name, states) for name, states in found.items()]


def _format_line(name: str, states: Counter[str]) -> str:
    shown = ", ".join(f"{count} {state}" for state, count in states.items())
    if shown:
        return f"{name}: {shown}"
    return name


def _read_states(
    state_dir: Path,
    uid: str,
    live: Iterable[RunRow],
) -> Iterator[tuple[str, str]]:
    from fleetctl.providers.rundir.journal_runs import JournalRuns

    for run in live:
        journal = JournalRuns(state_dir, run.provider).read(uid, run.name)
        if journal is not None:
            yield from journal.services.items()


def _list_named(part: object) -> Iterator[str]:
    services = as_mapping(part).get("services")
    for service in services if isinstance(services, list) else ():
        name = as_mapping(service).get("name")
        if isinstance(name, str):
            yield name
