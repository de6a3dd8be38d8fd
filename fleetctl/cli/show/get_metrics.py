"""`fleetctl get metrics`: what the tasks of one object reported, and how it stands."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Iterator
from typing import NamedTuple

from fleetctl.cli.output.render import Screen
from fleetctl.cli.output.rows import Rows, write_rows
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.text import age, safe, timestamp
from fleetctl.stores.read.rows import MetricEnd
from fleetctl.views.kinds import target
from fleetctl.views.objects import View, parsed
from fleetctl.views.reading import Reading, must_find
from fleetctl.views.tasks import of_one_content

FORMATS = ("table", "wide", "name", "json", "csv")
DIGITS = 6
NOT_A_NUMBER = "NaN"


class Row(NamedTuple):
    """A metric of one task over all attempts at what it runs now. unit: a stage's name, or ""."""

    task: int
    unit: str
    attempt: int  # that reported it last
    reports: int
    end: MetricEnd


def get_metrics(args: Namespace, reading: Reading, screen: Screen) -> int:
    """Raises UsageError and NotFound."""
    if len(args.words) != 2:
        raise UsageError("`get metrics` takes one object", hint="fleetctl get metrics tr/NAME")
    odd = [flag for flag, given in _refused(args) if given]
    if odd:
        raise UsageError(
            f"`get metrics` does not take {odd[0]}", hint='fleetctl query "select * from metrics"'
        )
    if args.output not in FORMATS:
        raise UsageError(
            f"`get metrics` has no format `{args.output}`", hint=f"-o {'|'.join(FORMATS)}"
        )
    seen = must_find(target(args.words[1], args.namespace), reading)
    if not seen.kind.runs:
        raise UsageError(f"a {seen.kind.name} runs nothing, so it reports nothing")
    rows = sorted(_rows(seen, reading).values(), key=lambda one: (one.task, one.end.name))
    if not write_rows(_written(seen, rows, args), args.output, screen):
        screen.talk(f"{safe(seen.key)} has reported no metrics yet")
    return 0


def _refused(args: Namespace) -> Iterator[tuple[str, bool]]:
    yield "`-w`", args.watch
    yield "`-l`", bool(args.selector)
    yield "`-L`", bool(args.label_columns) or args.show_labels
    yield "`--queued`", args.queued
    yield "`--field-selector`", bool(args.fields)
    yield "`--sort-by`", bool(args.sort_by)


def _rows(seen: View, reading: Reading) -> dict[tuple[int, str], Row]:
    found: dict[tuple[int, str], Row] = {}
    for one in of_one_content(reading.attempts(seen)):
        run = one.run
        unit = str(parsed(run.params).get(seen.kind.unit, "")) if seen.kind.named else ""
        for end in reading.metric_ends(run.name):
            before = found.get((run.index, end.name))
            count = end.reports + (before.reports if before else 0)
            found[run.index, end.name] = Row(run.index, unit, run.attempt, count, end)
    return found


def _written(seen: View, rows: list[Row], args: Namespace) -> Rows:
    now_s, wide, named = SystemClock().now_s(), args.output == "wide", seen.kind.named
    unit = seen.kind.unit

    def table() -> tuple[list[str], Iterator[list[str]]]:
        first = unit.upper() if named else "INDEX"
        header = [first, "METRIC", "LAST", "STEP", "REPORTS", "REPORTED"]
        header += ["ATTEMPT"] if wide else []
        cells = (
            [safe(it.unit) if named else str(it.task), safe(it.end.name), shown(it.end.value)]
            + [str(it.end.step), str(it.reports), f"{age(now_s - it.end.at_s)} ago"]
            + ([str(it.attempt)] if wide else [])
            for it in rows
        )
        return ([] if args.no_headers else header), cells

    def documents() -> Iterator[dict[str, object]]:
        for it in rows:
            yield {
                "index": it.task,
                **({unit: it.unit} if named else {}),
                "metric": it.end.name,
                "value": finite(it.end.value),
                "step": it.end.step,
                "reports": it.reports,
                "attempt": it.attempt,
                "at": timestamp(it.end.at_s),
            }

    def plain() -> tuple[list[str], Iterator[list[object]]]:
        names = ["index", *([unit] if named else []), "metric", "value", "step", "reports"]
        names += ["attempt", "at"]
        cells = ([one.get(name) for name in names] for one in documents())
        return ([] if args.no_headers else names), cells

    return Rows(table, documents, plain, lambda: dict.fromkeys(safe(it.end.name) for it in rows))


def finite(value: float | None) -> float | None:
    """As JSON has it: null for what is not a number, and for what is without end."""
    return value if value is not None and math.isfinite(value) else None


def shown(value: float | None) -> str:
    if value is None:
        return NOT_A_NUMBER
    if not math.isfinite(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{value:.{DIGITS}g}"
