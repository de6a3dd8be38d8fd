"""A review as a comment on a pull request: Markdown that GitHub and GitLab show alike.

Begins with the marker of every plan, so that a later run updates the comment; has no time, no name
of a machine and nothing random in it, so that nothing is updated where nothing changed. What people
wrote cannot end a cell, a code block or the comment itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.apply.cost.estimate import Cost
from fleetctl.apply.cost.words import UNKNOWN, figure
from fleetctl.apply.review.review import Review, Reviewed, Turn
from fleetctl.cli.apply.plans.markdown import MARKER, cell
from fleetctl.cli.apply.plans.review_words import KEYS_SHOWN_MAX, Group, delta, grouped, units
from fleetctl.common.text import plural, safe
from fleetctl.specs.values.changes import FieldChange, line_text

# Of a comment on GitHub 65,536; the rest is for what a wrapper writes around it.
CHARS_MAX = 60_000
ROWS_MAX = 200
RISKS_MAX = 50
FIELDS_MAX = 30  # of one object
_FENCES = re.compile(r"`{3,}")


def comment(found: Review) -> str:
    lines = [MARKER, f"### fleetctl plan: {_title(found)}", ""]
    lines += [*_failed(found), *_risks(found), *_table(found), *_bill(found), *_notes(found)]
    head = "\n".join(lines).rstrip()
    return (head + _details(found, CHARS_MAX - len(head))).rstrip()


def _title(found: Review) -> str:
    if not found.objects:
        return "no changes"
    words = ((Turn.CREATED, "to create"), (Turn.CHANGED, "to change"), (Turn.DELETED, "to delete"))
    counts = ", ".join(f"{found.count(it)} {word}" for it, word in words if found.count(it))
    return f"{counts}; {delta(found.bill)}"


def _failed(found: Review) -> Iterator[str]:
    if found.failed:
        yield "> **Refused:** " + "; ".join(cell(it) for it in found.failed)
        yield ""


def _risks(found: Review) -> Iterator[str]:
    if not found.objects and not found.risks:
        return
    if not found.risks:
        yield "No risks: no data and no work is lost, and nothing runs again."
        yield ""
        return
    yield "**Risks**"
    yield ""
    groups = grouped(found)
    yield from (f"- {_risk(it)}" for it in groups[:RISKS_MAX])
    if len(groups) > RISKS_MAX:
        yield f"- and {len(groups) - RISKS_MAX} more"
    yield ""


def _risk(risk: Group) -> str:
    keys = ", ".join(f"`{cell(key)}`" for key in risk.keys[:KEYS_SHOWN_MAX])
    if len(risk.keys) > KEYS_SHOWN_MAX:
        keys += f" and {len(risk.keys) - KEYS_SHOWN_MAX} more"
    return f"**{risk.sort}** {keys + ': ' if keys else ''}{cell(risk.sentence)}"


def _table(found: Review) -> Iterator[str]:
    if not found.objects:
        return
    yield "| object | action | units | cost before | cost after | where |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for it in found.objects[:ROWS_MAX]:
        cells = (it.key, it.turn.value, units(it), _cost(it.before), _after(it), it.where)
        yield "| " + " | ".join(cell(text) for text in cells) + " |"
    if len(found.objects) > ROWS_MAX:
        yield f"\nand {plural(len(found.objects) - ROWS_MAX, 'more object')}"
    yield ""


def _cost(cost: Cost | None) -> str:
    return "" if cost is None else figure(cost)


def _after(it: Reviewed) -> str:
    return "; ".join(text for text in (_cost(it.after), it.standing) if text)


def _bill(found: Review) -> Iterator[str]:
    before = figure(found.bill.before) if found.bill.known_before else UNKNOWN
    yield (
        f"**Cost of everything, from nothing**: {before} before, {figure(found.bill.after)} after:"
        f" {delta(found.bill)}."
    )
    yield from (f"\nBudget {cell(text)}." for text in found.budgets)
    if found.budgets and not found.live:
        yield "\nWhat is left of a budget only a store knows: `--live`."


def _notes(found: Review) -> Iterator[str]:
    yield ""
    prices = f" Prices: {cell('; '.join(found.prices))}." if found.prices else ""
    since = ""
    if found.asked is not None:
        since = f", where it left {cell(found.asked.shown)}, which has moved on"
    yield (
        f"{plural(found.unchanged, 'object')} unchanged."
        f" From {cell(found.before.shown)} to {cell(found.after.shown)}{since}.{prices}"
    )
    if found.count(Turn.DELETED):
        yield (
            "\nWhat left the repository is deleted by `apply --prune` and by a source that prunes;"
            " a plain `apply` leaves it."
        )
    for text in found.warnings:
        yield f"\nWarning: {cell(text)}"


def _details(found: Review, room: int) -> str:
    """The fields of each object that changes, as far as they fit."""
    blocks = [block for it in found.objects if (block := _block(it))]
    if not blocks:
        return ""
    opening, closing = "\n\n<details><summary>Fields</summary>\n", "\n</details>"
    made, left = opening, room - len(opening) - len(closing) - 100
    for number, block in enumerate(blocks):
        if len(block) > left:
            made += f"\nand {plural(len(blocks) - number, 'more object')}\n"
            break
        made += block
        left -= len(block)
    return made + closing


def _block(it: Reviewed) -> str:
    if it.turn is not Turn.CHANGED or not it.fields:
        return ""
    lines = [line for field in it.fields[:FIELDS_MAX] for line in _field(field)]
    if len(it.fields) > FIELDS_MAX:
        lines.append(f"  and {plural(len(it.fields) - FIELDS_MAX, 'more field')}")
    text = "\n".join(lines)
    longest = max((len(run) for run in _FENCES.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"\n`{cell(it.key)}`\n\n{fence}diff\n{text}\n{fence}\n"


def _field(field: FieldChange) -> Iterator[str]:
    if field.difference:
        yield f"! {safe(field.path)}: {safe(field.difference)}"
        return
    old, new = line_text(field.before), line_text(field.after)
    if old:
        yield f"- {safe(field.path)}: {safe(old)}"
    if new:
        yield f"+ {safe(field.path)}: {safe(new)}"
