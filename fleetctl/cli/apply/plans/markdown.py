"""The plan as a comment on a pull request. Called by plan.py.

Begins with a hidden marker, so that a later run updates the comment instead of adding another.
"""

from __future__ import annotations

import re
from collections import Counter

from fleetctl.apply.cost.report import ObjectPlan, Report, Verb
from fleetctl.apply.cost.words import figure, ranged
from fleetctl.common.text import safe, usd
from fleetctl.controllers.planning.placement import HOUR_S

HEADER = "| object | action | units | est. cost | where |"
MARKER = "<!-- fleetctl-plan -->"
_CODE = re.compile(r"(`[^`|\\]+`)")
_MARKS = re.compile(r"[\\`\[\]]")
ROWS_MAX = 200  # a comment has 65,536 characters at most


def comment(found: Report) -> str:
    changing = [it for it in found.objects if it.verb is not Verb.KEEP]
    lines = [MARKER, f"### fleetctl plan: {_title(found)}", ""]
    if changing:
        lines += [
            "| object | action | units | est. cost | where |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [_row(it) for it in changing[:ROWS_MAX]]
        if len(changing) > ROWS_MAX:
            lines.append(f"\nand {len(changing) - ROWS_MAX} more objects")
        caps = {cap.sentence for it in changing if it.work for cap in it.work.caps}
        lines += [f"\nBudget {cell(text)}." for text in sorted(caps)]
        lines += ["", f"In total {ranged(found.total)}{_standing(found)}. " + _sources(found)]
    return "\n".join(lines).rstrip()


def _title(found: Report) -> str:
    if not found.changes:
        return "no changes"
    return ranged(found.now) + _standing(found)


def _standing(found: Report) -> str:
    """` and $64.01/h`, of what stays warm."""
    rates = [it.warm.usd_per_s for it in found.objects if it.warm is not None]
    known = [rate for rate in rates if rate is not None]
    if not rates:
        return ""
    return f" and {usd(sum(known) * HOUR_S) if len(known) == len(rates) else 'an unknown price'}/h"


def _row(planned: ObjectPlan) -> str:
    units = cost = where = ""
    if planned.work is not None:
        work = planned.work
        new = "unknown" if work.new is None else f"{work.new:,} new"
        parts = [f"{work.kept:,} kept" if work.kept else "", new]
        parts.append(f"**{work.again.units:,} to run again**" if work.again.units else "")
        parts.append(f"**{work.replaced:,} replaced**" if work.replaced else "")
        parts.append(f"**{work.cancelled:,} cancelled**" if work.cancelled else "")
        units = ", ".join(text for text in parts if text)
        cost = figure(work.now)
        taken: Counter[str] = Counter()
        for place in work.places:
            taken[place.judged.provider] += place.units
        where = ", ".join(f"{name} {count:,}" for name, count in taken.items() if count)
    if planned.warm is not None:
        cost = planned.warm.sentence
    cells = (planned.change.key, planned.verb.name.lower(), units, cost, where)
    return "| " + " | ".join(cell(text) for text in cells) + " |"


def _sources(found: Report) -> str:
    return f"Prices: {cell('; '.join(found.sources))}." if found.sources else ""


def cell(text: str) -> str:
    """Text that ends no cell, starts no tag, link or image, and calls nobody by `@`; what stands in
    backticks stays as code.
    """
    text = safe(text)
    parts = _CODE.split(text) if "``" not in text else [text]
    made = (it if at % 2 else _plain(it) for at, it in enumerate(parts))
    return "".join(made).replace("|", "\\|")


def _plain(text: str) -> str:
    text = _MARKS.sub(r"\\\g<0>", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("@", "@&#8203;")
