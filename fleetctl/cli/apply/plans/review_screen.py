"""A review on a terminal. Called by review.py."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.apply.cost.cost_text import format_cost
from fleetctl.apply.review.review import Review, ReviewAction, ReviewedObject
from fleetctl.cli.apply.plans.review_words import format_cost_change, format_units, group_risks
from fleetctl.cli.output.screen import Screen
from fleetctl.common.text import count_noun, escape_line

SIGNS = {ReviewAction.CREATED: "+", ReviewAction.CHANGED: "~", ReviewAction.DELETED: "x"}
FIELDS_SHOWN_MAX = 20


def print_review(found: Review, screen: Screen) -> None:
    since = f", where it left {found.asked.shown}" if found.asked is not None else ""
    screen.data(
        f"From {escape_line(found.before.shown)} to "
        f"{escape_line(found.after.shown)}{escape_line(since)}"
    )
    if found.objects:
        screen.data("")
        for line in screen.table_lines(
            (), [row for it in found.objects for row in _build_rows(it)]
        ):
            screen.data(screen.marked(line, sign=line.strip()[:1]))
    if found.risks:
        screen.data("")
        screen.table(
            (),
            [
                [f"  {it.sort}", escape_line(it.key), escape_line(it.sentence)]
                for it in group_risks(found)
            ],
        )
    screen.data("")
    bill = found.bill
    before = format_cost(bill.before) if bill.known_before else "unknown"
    screen.data(
        f"  Cost    {before} before, {format_cost(bill.after)} after, from nothing: "
        f"{format_cost_change(bill)}"
    )
    for number, text in enumerate(found.budgets):
        screen.data(f"  {'Budget' if number == 0 else '      '}  {escape_line(text)}")
    screen.data("")
    screen.data(
        f"Plan: {found.count(ReviewAction.CREATED)} to create, "
        f"{found.count(ReviewAction.CHANGED)} to change,"
        f" {found.count(ReviewAction.DELETED)} to delete, "
        f"{count_noun(found.unchanged, 'object')} unchanged"
    )


def _build_rows(it: ReviewedObject) -> Iterator[list[str]]:
    about = [text for text in (format_units(it), it.where, it.standing, *it.notes) if text]
    yield [
        f"  {SIGNS[it.turn]} {escape_line(it.key)}",
        it.turn.value,
        escape_line("; ".join(about)),
    ]
    if it.turn is ReviewAction.CHANGED:
        for field in it.fields[:FIELDS_SHOWN_MAX]:
            yield [f"      {escape_line(field.short)}", "", ""]
        if len(it.fields) > FIELDS_SHOWN_MAX:
            yield [f"      and {len(it.fields) - FIELDS_SHOWN_MAX} more", "", ""]
