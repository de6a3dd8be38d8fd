"""`fleetctl get tasks` and `fleetctl get attempts`: the runs below one object."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fleetctl.cli.columns import ATTEMPT_HEADER, RUN_WIDE, TASK_HEADER, task_row
from fleetctl.cli.kinds import Target, target
from fleetctl.cli.reading import Reading, must_find
from fleetctl.cli.render import Screen
from fleetctl.cli.tasks import Task
from fleetctl.cli.text import safe, timestamp
from fleetctl.cli.view import View
from fleetctl.clock import SystemClock
from fleetctl.errors import UsageError
from specs.kinds import API_VERSION


def get_tasks(args: Namespace, reading: Reading, screen: Screen, *, attempts: bool) -> int:
    wanted = _target(args)
    seen = must_find(wanted, reading)
    if not seen.kind.runs:
        raise UsageError(f"a {seen.kind.name} has no tasks")
    if args.watch:
        return _watch(wanted, args, reading, screen, attempts=attempts)
    _show(_read(seen, reading, attempts=attempts), seen, args.output, screen, attempts=attempts)
    return 0


def _target(args: Namespace) -> Target:
    what, *objects = args.words
    if len(objects) != 1:
        raise UsageError(f"`get {what}` takes one object", hint=f"fleetctl get {what} job/NAME")
    if args.selector:
        raise UsageError("tasks have no labels to select by", hint="labels belong to their object")
    return target(objects[0])


def _read(seen: View, reading: Reading, *, attempts: bool) -> Iterator[Task]:
    return reading.attempts(seen) if attempts else reading.tasks(seen)


def _show(
    found: Iterable[Task], seen: View, output: str, screen: Screen, *, attempts: bool
) -> None:
    if output in ("json", "yaml"):
        from fleetctl.cli.documents import write

        items = [task_document(one, seen.key) for one in found]
        write({"apiVersion": API_VERSION, "kind": "List", "items": items}, output, screen)
    elif output == "name":
        for one in found:
            screen.data(safe(one.run.name))
    elif not _table(found, screen, wide=output == "wide", attempts=attempts):
        screen.talk(f"{safe(seen.key)} has started no {seen.kind.unit} yet")


def _table(
    found: Iterable[Task],
    screen: Screen,
    *,
    wide: bool,
    attempts: bool,
    widths: Sequence[int] = (),
) -> list[int]:
    header = (ATTEMPT_HEADER if attempts else TASK_HEADER) + (RUN_WIDE if wide else ())
    now_s = SystemClock().now_s()
    rows = (task_row(one, now_s, wide=wide, attempts=attempts) for one in found)
    return screen.table(header, rows, widths=widths)


def task_document(one: Task, owner: str) -> Mapping[str, object]:
    """A task, or an attempt, as an object of its own."""
    run = one.run
    status: dict[str, object] = {
        "phase": one.state, "reason": one.reason, "message": run.message, "attempts": one.attempts,
        "exitCode": run.exit_code, "provider": run.provider, "sandbox": run.sandbox,
    }  # fmt: skip
    for key, at_s in (("startTime", run.started_at_s), ("completionTime", run.ended_at_s)):
        if at_s is not None:
            status[key] = timestamp(at_s)
    return {
        "apiVersion": API_VERSION,
        "kind": "Task",
        "metadata": {
            "name": run.name,
            "owner": owner,
            "index": run.index,
            "attempt": run.attempt,
            "creationTimestamp": timestamp(run.created_at_s),
        },
        "spec": {"params": json.loads(run.params or "{}")},
        "status": status,
    }


def _watch(
    wanted: Target, args: Namespace, reading: Reading, screen: Screen, *, attempts: bool
) -> int:
    """All rows, then every row that changed, until the object is gone."""
    shown: dict[str, tuple[str, float | None]] = {}
    widths: list[int] = []
    while True:
        seen = reading.find(wanted)
        if seen is None:
            return 0
        changed = []
        for one in _read(seen, reading, attempts=attempts):
            mark = (one.state, one.run.started_at_s)
            if shown.get(one.run.name) != mark:
                shown[one.run.name] = mark
                changed.append(one)
        if args.output in ("table", "wide"):
            widths = _table(
                changed, screen, wide=args.output == "wide", attempts=attempts, widths=widths
            )
        else:
            _show_changed(changed, seen, args.output, screen)
        screen.flush()
        reading.wait_for_change()


def _show_changed(changed: list[Task], seen: View, output: str, screen: Screen) -> None:
    if output == "name":
        for one in changed:
            screen.data(safe(one.run.name))
        return
    from fleetctl.cli.documents import write_stream

    write_stream([task_document(one, seen.key) for one in changed], output, screen)
