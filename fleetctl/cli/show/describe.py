"""`fleetctl describe`: shows one object in full. The first lines are its state and the reason."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.show.summary import failed_line
from fleetctl.cli.show.work_lines import work_lines
from fleetctl.common.author import CREATOR
from fleetctl.common.clock import SystemClock
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import (
    escape_line,
    escape_lines,
    format_age,
    format_hinted,
    format_timestamp,
    shorten_text,
)
from fleetctl.controllers.status_keys import SPILLED_OVER
from fleetctl.daemon.client.lock_holder import find_stall_reason
from fleetctl.daemon.client.spawn import find_holder_pid
from fleetctl.tracking.kept_by import read_owner, shorten_commit
from fleetctl.views.kinds import parse_target
from fleetctl.views.objects import View, explain_status, suggest_fix
from fleetctl.views.sections.assets import exempt_line
from fleetctl.views.store_reading import StoreReading, must_find, open_reading
from fleetctl.views.tasks import Task, list_in_order, wandb_run

if TYPE_CHECKING:
    from fleetctl.views.details import DetailCell

LABEL_CELLS = 13
EVENTS_SHOWN_MAX = 10
TRACEBACK_LINES_MAX = 12
ALSO_SHOWN_MAX = 4
FAILED_SHOWN_MAX = 10
ROWS_SHOWN_MAX = 10  # of a table; the page has more
CELL_CHARS_MAX = 80

# Returns the lines of a table: its header and its rows.
Align = Callable[[Sequence[str], Sequence[Sequence[str]]], list[str]]


PAGE = """\
KIND/NAME | KIND NAME

Show one object in full: its state, the reason, a fix, and what happened.

examples:
  fleetctl describe job/chunks
  fleetctl describe sweep lr
  fleetctl describe vol/ckpt

exit codes:
  0 ok, 2 wrong usage, 4 no such object
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("object", metavar="KIND/NAME", help="object to describe")
    made.add_argument("name", nargs="?", help="the name, after a KIND alone")
    return made


def run(args: Namespace, screen: Screen) -> int:
    wanted = parse_target(
        f"{args.object}/{args.name}" if args.name else args.object, args.namespace
    )
    state_dir = find_state_dir()
    with open_reading(state_dir) as reading:
        seen = must_find(wanted, reading)
        now_s = SystemClock().now_s()
        building = _is_building(state_dir, seen)
        services = _list_services(state_dir, seen, reading)
        for line in describe_lines(
            seen,
            reading,
            now_s,
            align=screen.table_lines,
            building=building,
            services=services,
        ):
            screen.data(line)
    # Without a controller the screen is as old as the controller's end, and would otherwise not
    # show that.
    waits = seen.kind.runs and not seen.over and seen.phase != "Suspended"
    if waits and find_holder_pid(state_dir) is None:
        screen.warn("no controller runs, so nothing moves on until `fleetctl up --detach`")
    elif waits and (stall := find_stall_reason(state_dir)) is not None:
        screen.warn(stall.why)
        screen.hint(stall.hint)
    return 0


def _is_building(state_dir: Path, seen: View) -> bool:
    """Returns whether an image is being built for a run that has not begun. The object's status
    only reports progress meanwhile.
    """
    if not seen.count("starting"):
        return False
    from fleetctl.providers.rundir.build_logs import is_building, logs_of

    return any(is_building(log) for log in logs_of(state_dir, seen.resource.uid))


def _list_services(
    state_dir: Path,
    seen: View,
    reading: StoreReading,
) -> Sequence[str]:
    """Returns a text with the state of each service beside the object's work."""
    if not seen.kind.runs:
        return ()
    from fleetctl.views.tasks import service_lines

    return service_lines(state_dir, seen, reading.live_attempts(seen))


def describe_lines(
    seen: View,
    reading: StoreReading,
    now_s: float,
    *,
    align: Align,
    building: bool = False,
    services: Sequence[str] = (),
) -> Iterator[str]:
    """Yields the lines of the screen. Each text from users is escaped for the terminal here.

    align: returns the lines of a table. building: an image is being built for a run that has not
    begun. services: a text with the state of each service beside the object's work.
    """
    yield from _describe_head(seen, now_s, building=building)
    if seen.kind.runs:
        for title, lines in work_lines(seen, reading, now_s):
            for number, line in enumerate(lines):
                yield _format_label("" if number else title, line)
        if services:
            yield _format_label("Services", escape_line("; ".join(services)))
        yield from _describe_failures(seen, reading)
        yield from _describe_spec(seen)
    else:
        yield from _describe_asset(seen, reading, now_s, align)
    yield from _describe_conditions(seen, now_s)
    if exempt := exempt_line(seen, now_s):
        yield _format_label("Exempt", escape_line(exempt))
    if notices := reading.notices(seen):
        from fleetctl.views.sections.notice_section import notice_line

        yield _format_label("Notices", escape_line(notice_line(notices, now_s)))
    yield from _describe_events(seen, reading, now_s)


def _describe_asset(
    seen: View,
    reading: StoreReading,
    now_s: float,
    align: Align,
) -> Iterator[str]:
    """Yields the fields and tables of an object that runs no work."""
    from fleetctl.views.details import call_section, list_details, list_tables

    for title, text in list_details(seen, reading, now_s):
        yield _format_label(title, text)
    for title, text in call_section(seen.kind.remote_lines, seen, reading, now_s):
        yield _format_label(title, escape_line(text))
    for table in list_tables(seen, reading, now_s):
        if not table.rows:
            yield _format_label(table.title, table.note)
            continue
        rows = [
            [_format_cell(it, now_s) for it in row.cells] for row in table.rows[:ROWS_SHOWN_MAX]
        ]
        yield f"{table.title}:"
        yield from (f"  {line}" for line in align(table.columns, rows))
        if left := len(table.rows) - len(rows):
            yield f"  and {left} more"
        elif table.note:
            yield f"  {table.note}"


def _format_cell(cell: DetailCell, now_s: float) -> str:
    if cell.at_s is not None:
        return format_age(now_s - cell.at_s)
    return shorten_text(cell.text, CELL_CHARS_MAX)


def _format_label(name: str, value: str) -> str:
    """Returns a line with a label; a line with the label "" continues the line above."""
    return f"{name + ': ' if name else '':<{LABEL_CELLS}}{value}"


def _describe_head(
    seen: View,
    now_s: float,
    *,
    building: bool,
) -> Iterator[str]:
    resource = seen.resource
    yield _format_label("Name", escape_line(seen.key))
    stale = "" if seen.current else f" (generation {resource.generation} not yet processed)"
    # A Budget has a state of its own, as in the column of `get`.
    yield _format_label("Status", escape_line(seen.text("state") or seen.phase) + stale)
    because = explain_status(seen)
    fix = suggest_fix(seen)
    if building and not because:
        because = "the image is being built"
        fix = f"fleetctl logs --build {seen.key} -f"
    if because:
        yield _format_label("Why", escape_line(because))
    for also in _list_other_waits(seen, because):
        yield _format_label("Also" if because else "Waiting", escape_line(also))
    if fix:
        yield _format_label("Fix", escape_line(fix))
    if (note := read_owner(resource.annotations)) is not None:
        yield _format_label(
            "Kept by", escape_line(f"{note.source}: {note.file} at {shorten_commit(note.revision)}")
        )
    creator = resource.annotations.get(CREATOR, "")
    yield _format_label(
        "Created",
        f"{format_timestamp(resource.created_at_s)} "
        f"({format_age(now_s - resource.created_at_s)} ago)"
        + (f" by {escape_line(creator)}" if creator else ""),
    )
    if seen.author != creator:
        yield _format_label("Changed by", escape_line(seen.author or "the server's own user"))
    if resource.labels:
        yield _format_label(
            "Labels", escape_line(" ".join(f"{k}={v}" for k, v in resource.labels.items()))
        )


def _list_other_waits(seen: View, because: str) -> list[str]:
    """Returns the object's waits that the first sentence, `because`, does not contain."""
    message = seen.text("message")
    lines = [it for it in seen.waiting_on if it not in because and not (message and message in it)]
    return lines[:ALSO_SHOWN_MAX]


def _describe_spec(seen: View) -> Iterator[str]:
    from fleetctl.cli.show.spec_lines import spec_lines

    if spec := seen.shown_spec():
        yield f"Spec (whole: fleetctl get {escape_line(seen.key)} -o yaml):"
        yield from (f"  {line}" for line in spec_lines(spec))


def _describe_failures(seen: View, reading: StoreReading) -> Iterator[str]:
    """Yields the failed tasks, and the end of the newest traceback: usually all that the user
    needs."""
    last = _last_failure(seen, reading)
    if seen.count("failed"):
        yield from _list_failed(seen, reading)
    if last is not None:
        yield from _describe_traceback(last, seen)


def _list_failed(seen: View, reading: StoreReading) -> Iterator[str]:
    unit = seen.kind.unit
    units = unit if seen.count("failed") == 1 else f"{unit}s"
    failed = list(islice(reading.failed_tasks(seen), FAILED_SHOWN_MAX))
    names = ", ".join(_format_unit_name(it, seen) for it in failed) if seen.kind.named else ""
    yield _format_label(
        "Failed", f"{units} {names or escape_line(seen.text('failedIndexes')) or '?'}"
    )
    for task in failed:
        yield f"  {failed_line(task, seen)}"


def _last_failure(seen: View, reading: StoreReading) -> Task | None:
    """Returns the newest failed attempt, also of a task that will be tried again; None without
    one.
    """
    index, attempt = (seen.map("lastFailure").get(key) for key in ("index", "attempt"))
    if not isinstance(index, int):
        index = next(list_in_order(seen.text("failedIndexes")), None)
    if index is None:
        return None
    found = list(reading.attempts(seen, index=index))
    named = [task for task in found if task.run.attempt == attempt]
    return next(reversed(named or found), None)


def _describe_traceback(task: Task, seen: View) -> Iterator[str]:
    name = _format_unit_name(task, seen)
    if task.run.message.strip():
        yield f"Last failure, {escape_line(seen.name_unit(task.run))} attempt {task.run.attempt}:"
        shown = escape_lines(format_hinted(task.run.message.rstrip(), task.run.hint))
        if len(shown) > TRACEBACK_LINES_MAX:
            yield "  ..."
        for line in shown[-TRACEBACK_LINES_MAX:]:
            yield f"  {line}"
    flag = "--stage" if seen.kind.named else "--index"
    yield _format_label("Logs", f"fleetctl logs {escape_line(seen.key)} {flag} {name}")
    if url := wandb_run(task, seen).get("url"):
        yield _format_label("W&B run", escape_line(url))


def _format_unit_name(task: Task, seen: View) -> str:
    """Returns the name of a stage, or the index of a task or trial."""
    return escape_line(seen.name_unit(task.run).partition(" ")[2])


def _describe_conditions(seen: View, now_s: float) -> Iterator[str]:
    shown = [_format_condition(condition, now_s) for condition in seen.conditions]
    if shown:
        yield _format_label("Conditions", "  ".join(shown))


def _format_condition(condition: Mapping[str, object], now_s: float) -> str:
    text = f"{condition.get('type')}={condition.get('status')}"
    since = condition.get("lastTransitionTime")
    if isinstance(since, (int, float)):
        text += f" {format_age(now_s - since)}"
    # The other conditions are in the first lines already.
    message = condition.get("type") == SPILLED_OVER and condition.get("message")
    return escape_line(f"{text} ({message})" if message else text)


def _describe_events(
    seen: View,
    reading: StoreReading,
    now_s: float,
) -> Iterator[str]:
    found = reading.events(seen)
    if not found:
        return
    yield "Events:"
    if len(found) > EVENTS_SHOWN_MAX:
        yield f"  {len(found) - EVENTS_SHOWN_MAX} older: fleetctl events {escape_line(seen.key)}"
    shown = [event.line for event in found[-EVENTS_SHOWN_MAX:]]
    reason_cells = max(len(escape_line(row.reason)) for row in shown)
    for row in shown:
        times = f" (x{row.count})" if row.count > 1 else ""
        ago = format_age(now_s - row.at_s)
        reason = escape_line(row.reason)
        text = escape_line(format_hinted(row.message, row.hint))
        yield f"  {ago:<5}  {reason:<{reason_cells}}  {text}{times}"
