"""`fleetctl get tasks` and `fleetctl get attempts`: list the runs below one object, with their
columns.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.text import (
    count_noun,
    escape_line,
    format_age,
    format_assignments,
    format_duration,
    format_hinted,
    format_money,
    shorten_text,
)
from fleetctl.specs.builtin import runs_here
from fleetctl.specs.kinds.registry import API_VERSION
from fleetctl.views.columns import last_line
from fleetctl.views.documents import task_document
from fleetctl.views.kinds import Target, parse_target
from fleetctl.views.objects import NONE, View, parse_document
from fleetctl.views.sections.assets import WHY_CHARS_MAX
from fleetctl.views.store_reading import StoreReading, must_find
from fleetctl.views.tasks import FILE, FileNames, Task, file_cell, task_usd, with_queued

TASK_HEADER = ("INDEX", "STATUS", "REASON", "ATTEMPTS", "PROVIDER", "STARTED", "DURATION")
ATTEMPT_HEADER = ("INDEX", "ATTEMPT", "STATUS", "REASON", "PROVIDER", "STARTED", "DURATION")
RUN_COST = ("COST",)
UNWANTED = "NoLongerWanted"  # as an attempt is stopped for that
RUN_WIDE = ("EXIT", "RUN", "PARAMS", "MESSAGE", "WHY THERE")
RUN_MACHINE = ("MACHINE",)
RUN_AT_WANDB = ("W&B RUN",)


def get_tasks(
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
    *,
    attempts: bool,
) -> int:
    wanted = _parse_target(args)
    seen = must_find(wanted, reading)
    if not seen.kind.runs:
        raise UsageError(f"a {seen.kind.name} has no tasks")
    if args.queued and attempts:
        raise UsageError("every attempt has begun; `--queued` lists tasks")
    if args.watch:
        return _watch_tasks(
            wanted,
            args,
            reading,
            screen,
            attempts=attempts,
        )
    found = _read_tasks(seen, reading, args, attempts=attempts)
    shown = _show_tasks(
        found,
        seen,
        args,
        screen,
        attempts=attempts,
    )
    if shown:
        _hint_at_queued(seen, args, screen, attempts=attempts)
    else:
        unit = "attempt" if attempts else seen.kind.unit
        none_yet = f"{escape_line(seen.key)} has started no {unit} yet"
        no_match = f"no {unit} of {escape_line(seen.key)} matches `{escape_line(args.fields)}`"
        screen.talk(no_match if args.fields else none_yet)
    return 0


def _hint_at_queued(
    seen: View,
    args: Namespace,
    screen: Screen,
    *,
    attempts: bool,
) -> None:
    """Mentions queued tasks that a table on a terminal leaves out."""
    begun = seen.settled + seen.count("active")
    left = seen.count("total") - begun
    silent = args.queued or attempts or args.fields or args.output not in ("table", "wide")
    if left > 0 and not seen.over and not silent and screen.talk_is_terminal:
        screen.hint(
            f"{count_noun(left, seen.kind.unit)} queued; `--queued` lists those that have not "
            f"begun too"
        )


def _parse_target(args: Namespace) -> Target:
    what, *objects = args.words
    if len(objects) != 1:
        raise UsageError(f"`get {what}` takes one object", hint=f"fleetctl get {what} job/NAME")
    if args.selector or args.label_columns or args.show_labels:
        raise UsageError("tasks have no labels", hint="labels belong to their object")
    return parse_target(objects[0], args.namespace)


def _read_tasks(
    seen: View,
    reading: StoreReading,
    args: Namespace,
    *,
    attempts: bool,
) -> Iterable[Task]:
    """Streams, unless all have to be there to be sorted or chosen."""
    found = reading.attempts(seen) if attempts else reading.tasks(seen)
    if args.queued:
        found = reading.with_files(with_queued(found, seen), seen)
    if not args.fields and not args.sort_by:
        return found
    from fleetctl.cli.output.select import select_items

    now_s = SystemClock().now_s()
    return select_items(
        found,
        lambda one, _parts: task_document(one, seen, now_s),
        fields=args.fields,
        sort_by=args.sort_by,
    )


def _show_tasks(
    found: Iterable[Task],
    seen: View,
    args: Namespace,
    screen: Screen,
    *,
    attempts: bool,
) -> bool:
    """Returns False for a table without a row; the caller prints the reason."""
    output = args.output
    headers = not args.no_headers
    now_s = SystemClock().now_s()
    if output in ("json", "yaml"):
        from fleetctl.cli.output.documents import write_document

        items = [task_document(one, seen, now_s) for one in found]
        write_document({"apiVersion": API_VERSION, "kind": "List", "items": items}, output, screen)
    elif output == "name":
        for one in found:
            screen.data(escape_line(one.run.name or f"{seen.key}/{one.run.index}"))
    elif "=" in output or output == "csv":
        from fleetctl.cli.output.documents import TASK_CSV, make_writer

        write_document = make_writer(output, TASK_CSV, screen, headers=headers)
        write_document(task_document(one, seen, now_s) for one in found)
    else:
        columns = TaskColumns.of(seen, wide=output == "wide", attempts=attempts)
        return bool(_print_table(found, screen, columns, headers=headers))
    return True


def _print_table(
    found: Iterable[Task],
    screen: Screen,
    columns: TaskColumns,
    *,
    headers: bool = True,
    widths: Sequence[int] = (),
) -> list[int]:
    return screen.table(
        columns.header if headers else (), _build_rows(found, columns), widths=widths
    )


def _build_rows(found: Iterable[Task], columns: TaskColumns) -> Iterator[list[str]]:
    now_s = SystemClock().now_s()
    return (task_row(one, now_s, columns) for one in found)


def _watch_tasks(
    wanted: Target,
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
    *,
    attempts: bool,
) -> int:
    if screen.out_is_terminal and args.output in ("table", "wide"):
        return _watch_redrawn(
            wanted,
            args,
            reading,
            screen,
            attempts=attempts,
        )
    return _watch_lines(
        wanted,
        args,
        reading,
        screen,
        attempts=attempts,
    )


def _watch_redrawn(
    wanted: Target,
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
    *,
    attempts: bool,
) -> int:
    """Draws the whole table each time, until the object is gone."""
    from fleetctl.cli.output.live import RedrawnLines

    with RedrawnLines(screen) as shown:
        while (seen := reading.find(wanted)) is not None:
            found = _read_tasks(seen, reading, args, attempts=attempts)
            columns = TaskColumns.of(seen, wide=args.output == "wide", attempts=attempts)
            header = () if args.no_headers else columns.header
            shown.show(screen.table_lines(header, list(_build_rows(found, columns))))
            reading.wait_for_change()
    return 0


def _watch_lines(
    wanted: Target,
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
    *,
    attempts: bool,
) -> int:
    """Prints all rows, then every row that changed, until the object is gone."""
    marks: dict[tuple[int, int], tuple[str, float | None]] = {}
    show = _change_printer(args, screen, attempts=attempts)
    while (seen := reading.find(wanted)) is not None:
        changed = []
        for one in _read_tasks(seen, reading, args, attempts=attempts):
            mark = (one.state, one.run.started_at_s)
            name = (one.run.index, one.run.attempt)
            if marks.get(name) != mark:
                marks[name] = mark
                changed.append(one)
        show(changed, seen)
        screen.flush()
        reading.wait_for_change()
    return 0


def _change_printer(
    args: Namespace,
    screen: Screen,
    *,
    attempts: bool,
) -> Callable[[list[Task], View], None]:
    """Returns a function that prints some tasks: rows under one header, or one document a line."""
    output = args.output
    headers = not args.no_headers
    from fleetctl.cli.output.documents import TASK_CSV, is_templated, make_writer

    widths: list[int] = []
    write = make_writer(output, TASK_CSV, screen, headers=headers) if is_templated(output) else None

    def show(changed: list[Task], seen: View) -> None:
        nonlocal widths
        now_s = SystemClock().now_s()
        if write is not None:
            for one in changed:
                write([task_document(one, seen, now_s)], one=True)
        elif output == "name":
            for one in changed:
                screen.data(escape_line(one.run.name))
        elif output in ("json", "yaml"):
            from fleetctl.cli.output.documents import write_stream

            write_stream([task_document(one, seen, now_s) for one in changed], output, screen)
        else:
            columns = TaskColumns.of(seen, wide=output == "wide", attempts=attempts)
            widths = _print_table(
                changed,
                screen,
                columns,
                headers=headers,
                widths=widths,
            )

    return show


class TaskColumns(NamedTuple):
    """The columns of a list of tasks. attempts: a line for every run. cost: where the work has cost
    anything. named: the unit's word where each has a name, which is its parameter, or FILE where
    each has files. at_wandb: where each is a run at W&B. elsewhere: where some may have a machine
    of a service, which has a name of its own.
    """

    wide: bool = False
    attempts: bool = False
    cost: bool = False
    named: str = ""
    at_wandb: bool = False
    elsewhere: bool = False

    @classmethod
    def of(
        cls,
        seen: View,
        *,
        wide: bool,
        attempts: bool,
    ) -> TaskColumns:
        actual = seen.map("cost").get("actual")
        cost = isinstance(actual, (int, float)) and actual > 0 and not attempts
        named = seen.kind.unit if seen.kind.named else ""
        named = FILE if FileNames.of(seen) is not None else named
        return cls(
            wide,
            attempts,
            cost or wide,
            named,
            wide and bool(seen.map("wandb")),
            wide and not all(map(runs_here, seen.providers)),
        )

    @property
    def header(self) -> tuple[str, ...]:
        index, *rest = ATTEMPT_HEADER if self.attempts else TASK_HEADER
        named = (index, *((self.named.upper(),) if self.named else ()), *rest)
        wide = (*RUN_WIDE, *(RUN_AT_WANDB if self.at_wandb else ())) if self.wide else ()
        machine = RUN_MACHINE if self.elsewhere else ()
        return (*named, *(RUN_COST if self.cost else ()), *machine, *wide)


def task_row(
    task: Task,
    now_s: float,
    columns: TaskColumns,
) -> list[str]:
    """Returns one line of `get tasks`, or of `get attempts`."""
    run, (wide, attempts, cost, named, at_wandb, elsewhere) = task.run, columns
    middle = [
        escape_line(task.shown),
        (escape_line(task.reason) if task.wanted else UNWANTED) or NONE,
    ]
    params = parse_document(run.params)
    called = file_cell(params) if named == FILE else str(params.get(named) or "")
    name = [escape_line(called) or NONE] if named else []
    row = [str(run.index), *name, *(
        [str(run.attempt), *middle] if attempts else [*middle, str(task.attempts)]
    ), escape_line(run.provider) or NONE]  # fmt: skip
    row.append(
        f"{format_age(now_s - run.started_at_s)} ago" if run.started_at_s is not None else NONE
    )
    row.append(_format_duration(task, now_s))
    if cost and not task.begun:
        row.append(NONE)
    elif cost:
        spent = task_usd(task, now_s)
        row.append(NONE if spent is None else format_money(spent))
    if elsewhere:
        row.append(escape_line(task.machine.name) or NONE)
    if wide:
        row.append(NONE if run.exit_code is None else str(run.exit_code))
        row.append(escape_line(run.name) or NONE)
        row.append(escape_line(format_assignments(parse_document(run.params))) or NONE)
        why = format_hinted(last_line(run.message), run.hint)
        row.append(escape_line(shorten_text(why, WHY_CHARS_MAX)) or NONE)
        row.append(escape_line(run.placed) or NONE)
    if at_wandb:
        row.append(escape_line(run.wandb) or NONE)
    return row


def _format_duration(task: Task, now_s: float) -> str:
    run = task.run
    if run.started_at_s is None:
        return NONE
    return format_duration(
        (run.ended_at_s if run.ended_at_s is not None else now_s) - run.started_at_s
    )
