"""A review on a terminal. Called by review.py."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.apply.cost.words import figure
from fleetctl.apply.review.review import Review, Reviewed, Turn
from fleetctl.cli.apply.plans.review_words import delta, grouped, units
from fleetctl.cli.output.render import Screen
from fleetctl.common.text import plural, safe

SIGNS = {Turn.CREATED: "+", Turn.CHANGED: "~", Turn.DELETED: "x"}
FIELDS_SHOWN_MAX = 20


def show(found: Review, screen: Screen) -> None:
    since = f", where it left {found.asked.shown}" if found.asked is not None else ""
    screen.data(f"From {safe(found.before.shown)} to {safe(found.after.shown)}{safe(since)}")
    if found.objects:
        screen.data("")
        for line in screen.table_lines((), [row for it in found.objects for row in _rows(it)]):
            screen.data(screen.marked(line, sign=line.strip()[:1]))
    if found.risks:
        screen.data("")
        screen.table(
            (), [[f"  {it.sort}", safe(it.key), safe(it.sentence)] for it in grouped(found)]
        )
    screen.data("")
    bill = found.bill
    before = figure(bill.before) if bill.known_before else "unknown"
    screen.data(
        f"  Cost    {before} before, {figure(bill.after)} after, from nothing: {delta(bill)}"
    )
    for number, text in enumerate(found.budgets):
        screen.data(f"  {'Budget' if number == 0 else '      '}  {safe(text)}")
    screen.data("")
    screen.data(
        f"Plan: {found.count(Turn.CREATED)} to create, {found.count(Turn.CHANGED)} to change,"
        f" {found.count(Turn.DELETED)} to delete, {plural(found.unchanged, 'object')} unchanged"
    )


def _rows(it: Reviewed) -> Iterator[list[str]]:
    about = [text for text in (units(it), it.where, it.standing, *it.notes) if text]
    yield [f"  {SIGNS[it.turn]} {safe(it.key)}", it.turn.value, safe("; ".join(about))]
    if it.turn is Turn.CHANGED:
        for field in it.fields[:FIELDS_SHOWN_MAX]:
            yield [f"      {safe(field.short)}", "", ""]
        if len(it.fields) > FIELDS_SHOWN_MAX:
            yield [f"      and {len(it.fields) - FIELDS_SHOWN_MAX} more", "", ""]
