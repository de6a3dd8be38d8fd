"""`fleetctl get tasks` and `fleetctl get attempts`: the runs below one object."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fleetctl.cli.output.render import Screen
from fleetctl.cli.show.lists.task_columns import TaskColumns, task_row
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.text import plural, safe, timestamp
from fleetctl.specs.kinds.registry import API_VERSION
from fleetctl.views.kinds import Target, target
from fleetctl.views.objects import View, parsed
from fleetctl.views.reading import Reading, must_find
from fleetctl.views.tasks import Task, task_usd, wandb_run, with_queued


def get_tasks(args: Namespace, reading: Reading, screen: Screen, *, attempts: bool) -> int:
    wanted = _target(args)
    seen = must_find(wanted, reading)
    if not seen.kind.runs:
        raise UsageError(f"a {seen.kind.name} has no tasks")
    if args.queued and attempts:
        raise UsageError("every attempt has begun; `--queued` lists tasks")
    if args.watch:
        return _watch(wanted, args, reading, screen, attempts=attempts)
    found = _read(seen, reading, args, attempts=attempts)
    shown = _show(found, seen, args, screen, attempts=attempts)
    if shown:
        _hint_at_queued(seen, args, screen, attempts=attempts)
    else:
        unit = "attempt" if attempts else seen.kind.unit
        none_yet = f"{safe(seen.key)} has started no {unit} yet"
        no_match = f"no {unit} of {safe(seen.key)} matches `{safe(args.fields)}`"
        screen.talk(no_match if args.fields else none_yet)
    return 0


def _hint_at_queued(seen: View, args: Namespace, screen: Screen, *, attempts: bool) -> None:
    """A table for a person that shows less than there is says so."""
    begun = seen.settled + seen.count("active")
    left = seen.count("total") - begun
    silent = args.queued or attempts or args.fields or args.output not in ("table", "wide")
    if left > 0 and not seen.over and not silent and screen.talk_is_terminal:
        screen.hint(
            f"{plural(left, seen.kind.unit)} queued; `--queued` lists those that have not begun too"
        )


def _target(args: Namespace) -> Target:
    what, *objects = args.words
    if len(objects) != 1:
        raise UsageError(f"`get {what}` takes one object", hint=f"fleetctl get {what} job/NAME")
    if args.selector or args.label_columns or args.show_labels:
        raise UsageError("tasks have no labels", hint="labels belong to their object")
    return target(objects[0], args.namespace)


def _read(seen: View, reading: Reading, args: Namespace, *, attempts: bool) -> Iterable[Task]:
    """Streams, unless all have to be there to be sorted or chosen."""
    found = reading.attempts(seen) if attempts else reading.tasks(seen)
    if args.queued:
        found = with_queued(found, seen)
    if not args.fields and not args.sort_by:
        return found
    from fleetctl.cli.output.select import picked

    now_s = SystemClock().now_s()
    return picked(
        found,
        lambda one, _parts: task_document(one, seen, now_s),
        fields=args.fields,
        sort_by=args.sort_by,
    )


def _show(
    found: Iterable[Task], seen: View, args: Namespace, screen: Screen, *, attempts: bool
) -> bool:
    """False for a table without a row, of which the caller tells why."""
    output, headers = args.output, not args.no_headers
    now_s = SystemClock().now_s()
    if output in ("json", "yaml"):
        from fleetctl.cli.output.documents import write

        items = [task_document(one, seen, now_s) for one in found]
        write({"apiVersion": API_VERSION, "kind": "List", "items": items}, output, screen)
    elif output == "name":
        for one in found:
            screen.data(safe(one.run.name or f"{seen.key}/{one.run.index}"))
    elif "=" in output or output == "csv":
        from fleetctl.cli.output.templates import TASK_CSV, writer

        write = writer(output, TASK_CSV, screen, headers=headers)
        write(task_document(one, seen, now_s) for one in found)
    else:
        columns = TaskColumns.of(seen, wide=output == "wide", attempts=attempts)
        return bool(_table(found, screen, columns, headers=headers))
    return True


def _table(
    found: Iterable[Task],
    screen: Screen,
    columns: TaskColumns,
    *,
    headers: bool = True,
    widths: Sequence[int] = (),
) -> list[int]:
    return screen.table(columns.header if headers else (), _rows(found, columns), widths=widths)


def _rows(found: Iterable[Task], columns: TaskColumns) -> Iterator[list[str]]:
    now_s = SystemClock().now_s()
    return (task_row(one, now_s, columns) for one in found)


def task_document(one: Task, seen: View, now_s: float) -> Mapping[str, object]:
    """A task, or an attempt, as an object of its own."""
    run = one.run
    status: dict[str, object] = {
        "phase": one.state, "reason": one.reason, "message": run.message, "attempts": one.attempts,
        "exitCode": run.exit_code, "provider": run.provider, "sandbox": run.sandbox,
        "whyThere": run.placed,
    }  # fmt: skip
    if not one.wanted:
        status["wanted"] = False
    if one.outdated:
        status["outdated"] = True
    if one.run.started_at_s is not None:
        spent_s = now_s - one.run.started_at_s if one.duration_s is None else one.duration_s
        status["durationSeconds"] = round(max(0.0, spent_s), 3)
    for key, at_s in (("startTime", run.started_at_s), ("completionTime", run.ended_at_s)):
        if at_s is not None:
            status[key] = timestamp(at_s)
    if place := wandb_run(one, seen):
        status["wandb"] = place
    spent = task_usd(one, now_s) if one.begun else None
    status["cost"] = {"actual": None if spent is None else round(spent, 6)}
    return {
        "apiVersion": API_VERSION,
        "kind": "Task",
        "metadata": {
            "name": run.name,
            "owner": seen.key,
            "index": run.index,
            "attempt": run.attempt,
            **({"creationTimestamp": timestamp(run.created_at_s)} if one.begun else {}),
        },
        "spec": {"params": parsed(run.params)},
        "status": status,
    }


def _watch(
    wanted: Target, args: Namespace, reading: Reading, screen: Screen, *, attempts: bool
) -> int:
    if screen.out_is_terminal and args.output in ("table", "wide"):
        return _watch_redrawn(wanted, args, reading, screen, attempts=attempts)
    return _watch_lines(wanted, args, reading, screen, attempts=attempts)


def _watch_redrawn(
    wanted: Target, args: Namespace, reading: Reading, screen: Screen, *, attempts: bool
) -> int:
    """The whole table each time, until the object is gone."""
    from fleetctl.cli.output.redraw import Redrawn

    with Redrawn(screen) as shown:
        while (seen := reading.find(wanted)) is not None:
            found = _read(seen, reading, args, attempts=attempts)
            columns = TaskColumns.of(seen, wide=args.output == "wide", attempts=attempts)
            header = () if args.no_headers else columns.header
            shown.show(screen.table_lines(header, list(_rows(found, columns))))
            reading.wait_for_change()
    return 0


def _watch_lines(
    wanted: Target, args: Namespace, reading: Reading, screen: Screen, *, attempts: bool
) -> int:
    """All rows, then every row that changed, until the object is gone."""
    marks: dict[tuple[int, int], tuple[str, float | None]] = {}
    show = _change_printer(args, screen, attempts=attempts)
    while (seen := reading.find(wanted)) is not None:
        changed = []
        for one in _read(seen, reading, args, attempts=attempts):
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
    args: Namespace, screen: Screen, *, attempts: bool
) -> Callable[[list[Task], View], None]:
    """A function that prints some tasks: rows under one header, or one document a line."""
    output, headers = args.output, not args.no_headers
    from fleetctl.cli.output.templates import TASK_CSV, is_templated, writer

    widths: list[int] = []
    write = writer(output, TASK_CSV, screen, headers=headers) if is_templated(output) else None

    def show(changed: list[Task], seen: View) -> None:
        nonlocal widths
        now_s = SystemClock().now_s()
        if write is not None:
            for one in changed:
                write([task_document(one, seen, now_s)], one=True)
        elif output == "name":
            for one in changed:
                screen.data(safe(one.run.name))
        elif output in ("json", "yaml"):
            from fleetctl.cli.output.documents import write_stream

            write_stream([task_document(one, seen, now_s) for one in changed], output, screen)
        else:
            columns = TaskColumns.of(seen, wide=output == "wide", attempts=attempts)
            widths = _table(changed, screen, columns, headers=headers, widths=widths)

    return show
