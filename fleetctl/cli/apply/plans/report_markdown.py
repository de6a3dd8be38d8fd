"""The report of a plan as a comment on a pull request: Markdown that GitHub and GitLab show alike.

Begins with a hidden marker, so that a later run updates the comment; adds no time, no name of a
machine and nothing random, so that equal plans cause no update. Text from users cannot end a cell,
a code block or the comment itself, and mentions no user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.apply.cost.estimate import NOT_KNOWN
from fleetctl.apply.plan.phrases import (
    RiskGroup,
    format_cost_change,
    format_object_cost,
    format_where,
    group_risks,
)
from fleetctl.apply.plan.plan_report import (
    ObjectPlan,
    PlanAction,
    PlanReport,
    RevisionComparison,
)
from fleetctl.common.text import and_more, count_noun, escape_line, format_money
from fleetctl.controllers.planning.placement import HOUR_S
from fleetctl.specs.values.changes import FieldChange, line_text

MARKER = "<!-- fleetctl-plan -->"
# A comment on GitHub may have 65,536; the rest is for the text that a wrapper writes around it.
CHARS_MAX = 60_000
ROWS_MAX = 200
RISKS_MAX = 50
WARNINGS_MAX = 50
KEYS_SHOWN_MAX = 20  # of a risk
FIELDS_MAX = 30  # per object
_FENCES = re.compile(r"`{3,}")
_CODE = re.compile(r"(`[^`|\\]+`)")
_MARKS = re.compile(r"[\\`\[\]]")


def render_plan_comment(found: PlanReport) -> str:
    paragraphs = (
        f"{MARKER}\n### fleetctl plan: {_format_title(found)}",
        *_format_risks(found),
        *_format_table(found),
        *_format_costs(found),
        *_format_notes(found),
    )
    head = "\n\n".join(paragraphs)
    return (head + _format_details(found, CHARS_MAX - len(head))).rstrip()


def _format_title(found: PlanReport) -> str:
    if not found.changes:
        return "no changes"
    counts = ", ".join(
        f"{found.count(it)} to {it}"
        for it in PlanAction
        if found.count(it) and it is not PlanAction.KEEP
    )
    if found.comparison is not None:
        return f"{counts}; {format_cost_change(found.comparison)}"
    return f"{counts}; {found.cost.with_range}{_format_standing_cost(found)}"


def _format_standing_cost(found: PlanReport) -> str:
    """Returns ` and $64.01/h`, for warm containers."""
    rates = [it.warm.usd_per_s for it in found.objects if it.warm is not None]
    if not rates:
        return ""
    known = [rate for rate in rates if rate is not None]
    sum_usd = format_money(sum(known) * HOUR_S)
    return f" and {sum_usd if len(known) == len(rates) else 'an unknown price'}/h"


def _format_risks(found: PlanReport) -> Iterator[str]:
    if found.failed:
        yield "> **Refused:** " + "; ".join(escape_cell(it) for it in found.failed)
    if found.risks:
        yield "**Risks**"
        lines = [f"- {_format_risk(it)}" for it in group_risks(found)]
        yield "\n".join(_limit_lines(lines, RISKS_MAX, "- and {} more"))
    elif found.changes:
        yield "No risks: no data and no work is lost, and nothing runs again."


def _format_risk(risk: RiskGroup) -> str:
    keys = and_more([f"`{escape_cell(key)}`" for key in risk.keys], most=KEYS_SHOWN_MAX)
    return f"**{risk.sort}** {keys + ': ' if keys else ''}{escape_cell(risk.sentence)}"


def _format_table(found: PlanReport) -> Iterator[str]:
    if not found.changes:
        return
    costs = ["est. cost"] if found.comparison is None else ["cost before", "cost after"]
    header = ["object", "action", "units", *costs, "where"]
    rows = [header, ["---"] * len(header)]
    for it in found.changes[:ROWS_MAX]:
        before = [] if found.comparison is None else ["" if it.before is None else str(it.before)]
        cells = (it.key, it.action, it.units, *before, format_object_cost(it), format_where(it))
        rows.append([*map(escape_cell, cells)])
    yield "\n".join(f"| {' | '.join(row)} |" for row in rows)
    if len(found.changes) > ROWS_MAX:
        yield f"and {count_noun(len(found.changes) - ROWS_MAX, 'more object')}"


def _format_costs(found: PlanReport) -> Iterator[str]:
    both = found.comparison
    if both is not None:
        before = str(both.cost) if both.known else NOT_KNOWN
        yield (
            f"**Cost of everything, from nothing**: {before} before, {found.cost} after:"
            f" {format_cost_change(both)}."
        )
    elif found.changes:
        yield f"In total {found.total.with_range}{_format_standing_cost(found)}."
    yield from (f"Budget {escape_cell(text)}." for text in found.budgets)
    if found.budgets and both is not None and not both.live:
        yield "What is left of a budget is in the store alone: `--live`."


def _format_notes(found: PlanReport) -> Iterator[str]:
    kept = found.count(PlanAction.KEEP)
    parts = [f"{count_noun(kept, 'object')} unchanged."] if kept else []
    if found.comparison is not None:
        parts.append(_format_revisions(found.comparison))
    if found.prices:
        parts.append(f"Prices: {escape_cell('; '.join(found.prices))}.")
    if parts:
        yield " ".join(parts)
    if found.comparison is not None and found.count(PlanAction.DESTROY):
        yield (
            "What left the repository is deleted by `apply --prune` and by a source that prunes;"
            " a plain `apply` leaves it."
        )
    warnings = [f"Warning: {escape_cell(text)}" for text in found.warnings]
    yield from _limit_lines(warnings, WARNINGS_MAX, "and {} more warnings")


def _format_revisions(both: RevisionComparison) -> str:
    since = ""
    if both.asked is not None:
        since = f", where it left {escape_cell(both.asked.shown)}, which has moved on"
    return f"From {escape_cell(both.before.shown)} to {escape_cell(both.after.shown)}{since}."


def _format_details(found: PlanReport, room: int) -> str:
    """Returns the fields of each object that changes, as far as they fit."""
    if found.comparison is None:
        return ""  # stored values are not for every reader of a repository
    blocks = [block for it in found.changes if (block := _format_block(it))]
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


def _format_block(it: ObjectPlan) -> str:
    if not it.fields:
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


def _limit_lines(lines: list[str], most: int, more: str) -> list[str]:
    """Returns the first lines, with one on the others. more: has `{}` for their number."""
    if len(lines) <= most:
        return lines
    return [*lines[:most], more.format(len(lines) - most)]


def escape_cell(text: str) -> str:
    """Returns text that ends no cell, starts no tag, link or image, and mentions no user by `@`;
    text in backticks stays as code.
    """
    text = escape_line(text)
    parts = _CODE.split(text) if "``" not in text else [text]
    made = (it if at % 2 else _escape_markdown(it) for at, it in enumerate(parts))
    return "".join(made).replace("|", "\\|")


def _escape_markdown(text: str) -> str:
    text = _MARKS.sub(r"\\\g<0>", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("@", "@&#8203;")
