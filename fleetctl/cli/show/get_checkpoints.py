"""`fleetctl get checkpoints tr/NAME`: lists the complete checkpoints that the controller has seen
its attempts write."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from fleetctl.cli.output.output_rows import OutputRows, write_listed
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.text import byte_size, escape_line, format_age, format_timestamp
from fleetctl.controllers.history.checkpoints import removed_steps
from fleetctl.stores.read.rows import CheckpointRow
from fleetctl.views.kinds import parse_target
from fleetctl.views.objects import View, as_mapping, parse_document
from fleetctl.views.store_reading import StoreReading, must_find

HEADER = ("STEP", "STAGE", "ATTEMPT", "AGE", "SIZE", "TOOK", "PATH")


def get_checkpoints(
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
) -> int:
    what, *objects = args.words
    if len(objects) != 1:
        raise UsageError(f"`get {what}` takes one object", hint=f"fleetctl get {what} tr/NAME")
    if args.watch or args.selector or args.fields or args.sort_by or "=" in args.output:
        raise UsageError(
            "checkpoints are listed as they are; they have no labels and no status",
            hint="fleetctl get checkpoints tr/NAME [-o table|name|json|csv]",
        )
    seen = must_find(parse_target(objects[0], args.namespace), reading)
    found = list(reading.checkpoints(seen))
    removed = _removed_steps(seen, reading, found)
    listed = [one for one in found if one.step not in removed]
    stages = _list_stages(seen, reading) if found else {}
    now_s = SystemClock().now_s()
    written = OutputRows(
        table=lambda: (HEADER, (_build_cells(one, stages, now_s) for one in listed)),
        documents=lambda: (_build_document(one, stages) for one in listed),
        plain=lambda: (
            list(_build_document(listed[0], stages)) if listed else [],
            (list(map(str, _build_document(one, stages).values())) for one in listed),
        ),
        names=lambda: (escape_line(one.path) for one in listed),
    )
    if not write_listed(written, args, screen):
        screen.talk(f"no checkpoint of {escape_line(seen.key)} was seen yet")
        if path := as_mapping(seen.spec().get("checkpoint")).get("path"):
            screen.hint(f"it looks for complete ones in {escape_line(str(path))} itself")
    elif removed:
        screen.talk(f"{len(found) - len(listed)} more were removed by `keep`")
    return 0


def _removed_steps(
    seen: View,
    reading: StoreReading,
    found: list[CheckpointRow],
) -> set[int]:
    """Returns the steps that `keep` of its spec has removed."""
    keep = as_mapping(as_mapping(seen.spec().get("checkpoint")).get("keep"))
    last = keep.get("last")
    every = keep.get("every")
    if not isinstance(last, int):
        return set()
    steps = {one.step for one in found}
    began = reading.resumed_steps(seen)
    return removed_steps(steps, began, last=last, every=every if isinstance(every, int) else None)


def _list_stages(seen: View, reading: StoreReading) -> Mapping[int, str]:
    """Returns the names of stages that have begun, by their index."""
    unit = seen.kind.unit
    return {
        it.run.index: str(parse_document(it.run.params).get(unit)) for it in reading.tasks(seen)
    }


def _build_cells(
    one: CheckpointRow,
    stages: Mapping[int, str],
    now_s: float,
) -> list[str]:
    return [
        str(one.step),
        escape_line(stages[one.index]),
        str(one.attempt),
        format_age(now_s - one.at_s),
        byte_size(one.size),
        f"{one.took_s:.0f}s",
        escape_line(one.path),
    ]


def _build_document(one: CheckpointRow, stages: Mapping[int, str]) -> Mapping[str, object]:
    """Returns a document. index: of the stage, as in every other list."""
    return {
        "step": one.step,
        "index": one.index,
        "stage": stages[one.index],
        "attempt": one.attempt,
        "at": format_timestamp(one.at_s),
        "bytes": one.size,
        "tookSeconds": one.took_s,
        "path": one.path,
    }
