"""`fleetctl get metrics` and `fleetctl get checkpoints`: lists what the runs of an object have
reported.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fleetctl.cli.output.output_rows import OutputRows, write_listed, write_rows
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.text import byte_size, escape_line, format_age, format_timestamp
from fleetctl.controllers.history.checkpoints import choose_removed_steps
from fleetctl.stores.read.rows import CheckpointRow, MetricEnd
from fleetctl.views.kinds import parse_target
from fleetctl.views.objects import View, as_mapping, parse_document
from fleetctl.views.store_reading import StoreReading, must_find
from fleetctl.views.tasks import of_one_content

FORMATS = ("table", "wide", "name", "json", "csv")
DIGITS = 6
NOT_A_NUMBER = "NaN"

HEADER = ("STEP", "STAGE", "ATTEMPT", "AGE", "SIZE", "TOOK", "PATH")


class ReportedMetric(NamedTuple):
    """A task's metric over all attempts with its present content. unit: a stage's name, or ""."""

    task: int
    unit: str
    attempt: int  # that reported it last
    reports: int
    end: MetricEnd


def get_metrics(
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
) -> int:
    """Prints the list. Raises UsageError and NotFound."""
    if len(args.words) != 2:
        raise UsageError("`get metrics` takes one object", hint="fleetctl get metrics tr/NAME")
    odd = [flag for flag, given in _list_refused_flags(args) if given]
    if odd:
        raise UsageError(
            f"`get metrics` does not take {odd[0]}", hint='fleetctl query "select * from metrics"'
        )
    if args.output not in FORMATS:
        raise UsageError(
            f"`get metrics` has no format `{args.output}`", hint=f"-o {'|'.join(FORMATS)}"
        )
    seen = must_find(parse_target(args.words[1], args.namespace), reading)
    if not seen.kind.runs:
        raise UsageError(f"a {seen.kind.name} runs nothing, so it reports nothing")
    rows = sorted(_build_rows(seen, reading).values(), key=lambda one: (one.task, one.end.name))
    if not write_rows(_build_output(seen, rows, args), args.output, screen):
        screen.talk(f"{escape_line(seen.key)} has reported no metrics yet")
    return 0


def _list_refused_flags(args: Namespace) -> Iterator[tuple[str, bool]]:
    yield "`-w`", args.watch
    yield "`-l`", bool(args.selector)
    yield "`-L`", bool(args.label_columns) or args.show_labels
    yield "`--queued`", args.queued
    yield "`--field-selector`", bool(args.fields)
    yield "`--sort-by`", bool(args.sort_by)


def _build_rows(seen: View, reading: StoreReading) -> dict[tuple[int, str], ReportedMetric]:
    found: dict[tuple[int, str], ReportedMetric] = {}
    for one in of_one_content(reading.attempts(seen)):
        run = one.run
        unit = str(parse_document(run.params).get(seen.kind.unit, "")) if seen.kind.named else ""
        for end in reading.metric_ends(run.name):
            before = found.get((run.index, end.name))
            count = end.reports + (before.reports if before else 0)
            found[run.index, end.name] = ReportedMetric(
                run.index,
                unit,
                run.attempt,
                count,
                end,
            )
    return found


def _build_output(
    seen: View,
    rows: list[ReportedMetric],
    args: Namespace,
) -> OutputRows:
    now_s = SystemClock().now_s()
    named = seen.kind.named
    unit = seen.kind.unit

    def table() -> tuple[list[str], Iterator[list[str]]]:
        first = unit.upper() if named else "INDEX"
        header = [first, "METRIC", "LAST", "STEP", "REPORTS", "REPORTED"]
        if args.output == "wide":
            header.append("ATTEMPT")
        cells = (_metric_cells(it, now_s, named=named)[: len(header)] for it in rows)
        return ([] if args.no_headers else header), cells

    def documents() -> Iterator[dict[str, object]]:
        for it in rows:
            yield {
                "index": it.task,
                **({unit: it.unit} if named else {}),
                "metric": it.end.name,
                "value": to_json_number(it.end.value),
                "step": it.end.step,
                "reports": it.reports,
                "attempt": it.attempt,
                "at": format_timestamp(it.end.at_s),
            }

    def plain() -> tuple[list[str], Iterator[list[object]]]:
        unit_names = [unit] if named else []
        names = ["index", *unit_names, "metric", "value", "step", "reports", "attempt", "at"]
        cells = ([one.get(name) for name in names] for one in documents())
        return ([] if args.no_headers else names), cells

    def names() -> dict[str, None]:
        return dict.fromkeys(escape_line(it.end.name) for it in rows)

    return OutputRows(table, documents, plain, names)


def _metric_cells(row: ReportedMetric, now_s: float, *, named: bool) -> list[str]:
    """Returns the cells of the widest table. named: the units have names."""
    return [
        escape_line(row.unit) if named else str(row.task),
        escape_line(row.end.name),
        format_metric(row.end.value),
        str(row.end.step),
        str(row.reports),
        f"{format_age(now_s - row.end.at_s)} ago",
        str(row.attempt),
    ]


def to_json_number(value: float | None) -> float | None:
    """Returns the value as JSON has it: null for infinite values, and for values that are not a
    number."""
    if value is not None and math.isfinite(value):
        return value
    return None


def format_metric(value: float | None) -> str:
    if value is None:
        return NOT_A_NUMBER
    if not math.isfinite(value):
        if value > 0:
            return "Infinity"
        return "-Infinity"
    return f"{value:.{DIGITS}g}"


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
    return choose_removed_steps(
        steps, began, last=last, every=every if isinstance(every, int) else None
    )


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
