"""A review as a comment on a pull request: Markdown that GitHub and GitLab show alike.

Begins with the marker of every plan, so that a later run updates the comment; has no time, no name
of a machine and nothing random in it, so that equal plans cause no update. Text from users cannot
end a cell, a code block or the comment itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.apply.cost.cost_text import UNKNOWN, format_cost
from fleetctl.apply.cost.estimate import Cost
from fleetctl.apply.review.review import Review, ReviewAction, ReviewedObject
from fleetctl.cli.apply.plans.plan_markdown import MARKER, escape_cell
from fleetctl.cli.apply.plans.review_words import (
    KEYS_SHOWN_MAX,
    RiskGroup,
    format_cost_change,
    format_units,
    group_risks,
)
from fleetctl.common.text import count_noun, escape_line
from fleetctl.specs.values.changes import FieldChange, line_text

# A comment on GitHub may have 65,536; the rest is for the text that a wrapper writes around it.
CHARS_MAX = 60_000
ROWS_MAX = 200
RISKS_MAX = 50
FIELDS_MAX = 30  # per object
_FENCES = re.compile(r"`{3,}")


def render_review_comment(found: Review) -> str:
    lines = [MARKER, f"### fleetctl plan: {_format_title(found)}", ""]
    lines += [
        *_format_refusals(found),
        *_format_risks(found),
        *_format_table(found),
        *_format_bill(found),
        *_format_notes(found),
    ]
    head = "\n".join(lines).rstrip()
    return (head + _format_details(found, CHARS_MAX - len(head))).rstrip()


def _format_title(found: Review) -> str:
    if not found.objects:
        return "no changes"
    words = (
        (ReviewAction.CREATED, "to create"),
        (ReviewAction.CHANGED, "to change"),
        (ReviewAction.DELETED, "to delete"),
    )
    counts = ", ".join(f"{found.count(it)} {word}" for it, word in words if found.count(it))
    return f"{counts}; {format_cost_change(found.bill)}"


def _format_refusals(found: Review) -> Iterator[str]:
    if found.failed:
        yield "> **Refused:** " + "; ".join(escape_cell(it) for it in found.failed)
        yield ""


def _format_risks(found: Review) -> Iterator[str]:
    if not found.objects and not found.risks:
        return
    if not found.risks:
        yield "No risks: no data and no work is lost, and nothing runs again."
        yield ""
        return
    yield "**Risks**"
    yield ""
    groups = group_risks(found)
    yield from (f"- {_format_risk(it)}" for it in groups[:RISKS_MAX])
    if len(groups) > RISKS_MAX:
        yield f"- and {len(groups) - RISKS_MAX} more"
    yield ""


def _format_risk(risk: RiskGroup) -> str:
    keys = ", ".join(f"`{escape_cell(key)}`" for key in risk.keys[:KEYS_SHOWN_MAX])
    if len(risk.keys) > KEYS_SHOWN_MAX:
        keys += f" and {len(risk.keys) - KEYS_SHOWN_MAX} more"
    return f"**{risk.sort}** {keys + ': ' if keys else ''}{escape_cell(risk.sentence)}"


def _format_table(found: Review) -> Iterator[str]:
    if not found.objects:
        return
    yield "| object | action | units | cost before | cost after | where |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for it in found.objects[:ROWS_MAX]:
        cells = (
            it.key,
            it.turn.value,
            format_units(it),
            _format_cost(it.before),
            _format_cost_after(it),
            it.where,
        )
        yield "| " + " | ".join(escape_cell(text) for text in cells) + " |"
    if len(found.objects) > ROWS_MAX:
        yield f"\nand {count_noun(len(found.objects) - ROWS_MAX, 'more object')}"
    yield ""


def _format_cost(cost: Cost | None) -> str:
    if cost is None:
        return ""
    return format_cost(cost)


def _format_cost_after(it: ReviewedObject) -> str:
    return "; ".join(text for text in (_format_cost(it.after), it.standing) if text)


def _format_bill(found: Review) -> Iterator[str]:
    before = format_cost(found.bill.before) if found.bill.known_before else UNKNOWN
    yield (
        f"**Cost of everything, from nothing**: {before} before, "
        f"{format_cost(found.bill.after)} after:"
        f" {format_cost_change(found.bill)}."
    )
    yield from (f"\nBudget {escape_cell(text)}." for text in found.budgets)
    if found.budgets and not found.live:
        yield "\nWhat is left of a budget is in the store alone: `--live`."


def _format_notes(found: Review) -> Iterator[str]:
    yield ""
    prices = f" Prices: {escape_cell('; '.join(found.prices))}." if found.prices else ""
    since = ""
    if found.asked is not None:
        since = f", where it left {escape_cell(found.asked.shown)}, which has moved on"
    yield (
        f"{count_noun(found.unchanged, 'object')} unchanged."
        f" From {escape_cell(found.before.shown)} to "
        f"{escape_cell(found.after.shown)}{since}.{prices}"
    )
    if found.count(ReviewAction.DELETED):
        yield (
            "\nWhat left the repository is deleted by `apply --prune` and by a source that prunes;"
            " a plain `apply` leaves it."
        )
    for text in found.warnings:
        yield f"\nWarning: {escape_cell(text)}"


def _format_details(found: Review, room: int) -> str:
    """Returns the fields of each object that changes, as far as they fit."""
    blocks = [block for it in found.objects if (block := _format_block(it))]
    if not blocks:
        return ""
    opening = "\n\n<details><summary>Fields</summary>\n"
    closing = "\n</details>"
    made = opening
    left = room - len(opening) - len(closing) - 100
    for number, block in enumerate(blocks):
        if len(block) > left:
            made += f"\nand {count_noun(len(blocks) - number, 'more object')}\n"
            break
        made += block
        left -= len(block)
    return made + closing


def _format_block(it: ReviewedObject) -> str:
    if it.turn is not ReviewAction.CHANGED or not it.fields:
        return ""
    lines = [line for field in it.fields[:FIELDS_MAX] for line in _format_field(field)]
    if len(it.fields) > FIELDS_MAX:
        lines.append(f"  and {count_noun(len(it.fields) - FIELDS_MAX, 'more field')}")
    text = "\n".join(lines)
    longest = max((len(run) for run in _FENCES.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"\n`{escape_cell(it.key)}`\n\n{fence}diff\n{text}\n{fence}\n"


def _format_field(field: FieldChange) -> Iterator[str]:
    if field.difference:
        yield f"! {escape_line(field.path)}: {escape_line(field.difference)}"
        return
    old = line_text(field.before)
    new = line_text(field.after)
    if old:
        yield f"- {escape_line(field.path)}: {escape_line(old)}"
    if new:
        yield f"+ {escape_line(field.path)}: {escape_line(new)}"
