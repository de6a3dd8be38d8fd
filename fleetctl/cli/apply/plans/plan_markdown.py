"""The plan as a comment on a pull request. Called by plan.py.

Begins with a hidden marker, so that a later run updates the comment instead of adding another.
"""

from __future__ import annotations

import re
from collections import Counter

from fleetctl.apply.cost.cost_text import format_cost, format_with_range
from fleetctl.apply.cost.plan_report import ObjectPlan, PlanAction, PlanReport
from fleetctl.common.text import escape_line, format_money
from fleetctl.controllers.planning.placement import HOUR_S

HEADER = "| object | action | units | est. cost | where |"
MARKER = "<!-- fleetctl-plan -->"
_CODE = re.compile(r"(`[^`|\\]+`)")
_MARKS = re.compile(r"[\\`\[\]]")
ROWS_MAX = 200  # a comment has 65,536 characters at most


def render_plan_comment(found: PlanReport) -> str:
    changing = [it for it in found.objects if it.verb is not PlanAction.KEEP]
    lines = [MARKER, f"### fleetctl plan: {_format_title(found)}", ""]
    if changing:
        lines += [
            "| object | action | units | est. cost | where |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [_format_row(it) for it in changing[:ROWS_MAX]]
        if len(changing) > ROWS_MAX:
            lines.append(f"\nand {len(changing) - ROWS_MAX} more objects")
        caps = {cap.sentence for it in changing if it.work for cap in it.work.caps}
        lines += [f"\nBudget {escape_cell(text)}." for text in sorted(caps)]
        lines += [
            "",
            f"In total {format_with_range(found.total)}{_format_standing_cost(found)}. "
            + _format_price_sources(found),
        ]
    return "\n".join(lines).rstrip()


def _format_title(found: PlanReport) -> str:
    if not found.changes:
        return "no changes"
    return format_with_range(found.now) + _format_standing_cost(found)


def _format_standing_cost(found: PlanReport) -> str:
    """Returns ` and $64.01/h`, for warm containers."""
    rates = [it.warm.usd_per_s for it in found.objects if it.warm is not None]
    known = [rate for rate in rates if rate is not None]
    if not rates:
        return ""
    return (
        f" and "
        f"{format_money(sum(known) * HOUR_S) if len(known) == len(rates) else 'an unknown price'}/h"
    )


def _format_row(planned: ObjectPlan) -> str:
    units = cost = where = ""
    if planned.work is not None:
        work = planned.work
        new = "unknown" if work.new is None else f"{work.new:,} new"
        parts = [f"{work.kept:,} kept" if work.kept else "", new]
        parts.append(f"**{work.again.units:,} to run again**" if work.again.units else "")
        parts.append(f"**{work.replaced:,} replaced**" if work.replaced else "")
        parts.append(f"**{work.cancelled:,} cancelled**" if work.cancelled else "")
        units = ", ".join(text for text in parts if text)
        cost = format_cost(work.now)
        taken: Counter[str] = Counter()
        for place in work.places:
            taken[place.judged.provider] += place.units
        where = ", ".join(f"{name} {count:,}" for name, count in taken.items() if count)
    if planned.warm is not None:
        cost = planned.warm.sentence
    cells = (planned.change.key, planned.verb.name.lower(), units, cost, where)
    return "| " + " | ".join(escape_cell(text) for text in cells) + " |"


def _format_price_sources(found: PlanReport) -> str:
    if found.sources:
        return f"Prices: {escape_cell('; '.join(found.sources))}."
    return ""


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
