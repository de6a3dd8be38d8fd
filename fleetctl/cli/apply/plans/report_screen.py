"""The report of a plan as text: for a terminal, and as the comment on a pull request that GitHub
and GitLab show.

Begins with a hidden marker, so that a later run updates the comment; adds no time, no name of a
machine and nothing random, so that equal plans cause no update. Text from users cannot end a
cell, a code block or the comment itself, and mentions no user.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from fleetctl.apply.cost.cost_parts import PlannedPlacement, WarmCost
from fleetctl.apply.cost.estimate import NOT_KNOWN, BudgetCap, format_hourly
from fleetctl.apply.plan.document import (
    RiskGroup,
    format_cost_change,
    format_object_cost,
    format_where,
    group_risks,
)
from fleetctl.apply.plan.plan_report import (
    AGAIN,
    KEPT,
    NEW,
    REPLACED,
    ObjectPlan,
    PlanAction,
    PlannedWork,
    PlanReport,
    RevisionComparison,
)
from fleetctl.cli.output.screen import Screen
from fleetctl.common.text import and_more, count_noun, escape_line, format_duration, format_money
from fleetctl.controllers.planning.placement import HOUR_S
from fleetctl.specs.values.changes import FieldChange, line_text, value_text

SIGNS = {
    PlanAction.CREATE: ("+", "create"),
    PlanAction.UPDATE: ("~", "update in place"),
    PlanAction.REPLACE: ("-/+", "replace running work"),
    PlanAction.DESTROY: ("x", "destroy"),
}
ALWAYS_SHOWN = (KEPT, NEW, REPLACED)
FIELDS_SHOWN_MAX = 20
KEYS_SHOWN_MAX = 3  # of a risk
# Printed once for all lines that follow, and as wide as the widest of them.
HEADING = {word: f"  {word:<8}" for word in ("Cost", "Time", "Budget", "")}

MARKER = "<!-- fleetctl-plan -->"
# A comment on GitHub may have 65,536; the rest is for the text that a wrapper writes around it.
CHARS_MAX = 60_000
ROWS_MAX = 200
RISKS_MAX = 50
WARNINGS_MAX = 50
COMMENT_KEYS_MAX = 20  # of a risk
FIELDS_MAX = 30  # per object
_FENCES = re.compile(r"`{3,}")
_CODE = re.compile(r"(`[^`|\\]+`)")
_MARKS = re.compile(r"[\\`\[\]]")


def print_plan(
    found: PlanReport,
    screen: Screen,
    *,
    saved: str,
) -> None:
    screen.data(_format_headline(found))
    if found.changes:
        screen.data("")
        rows = [row for it in found.changes for row in _build_object_rows(it, found.comparison)]
        for line in screen.table_lines((), rows):
            screen.data(screen.colour_sign(line, sign=line.strip()[:1]))
    if found.comparison is None:
        _print_apply(found, screen)
    else:
        _print_comparison(found, found.comparison, screen)
    screen.data("")
    screen.data(_format_counts(found, saved))


def _print_apply(found: PlanReport, screen: Screen) -> None:
    for it in found.changes:
        if it.work is not None and it.work.places:
            _print_placement(it, it.work, screen)
    if any(it.work is not None or it.warm is not None for it in found.changes):
        screen.data("")
        screen.table((), _build_cost_rows(found))
        screen.table((), _build_warm_rows(found))
        screen.table((), _build_time_rows(found))
        screen.table((), _build_budget_rows(found))


def _print_comparison(found: PlanReport, both: RevisionComparison, screen: Screen) -> None:
    risks = [
        [f"  {it.sort}", and_more(it.keys, most=KEYS_SHOWN_MAX), it.sentence]
        for it in group_risks(found)
    ]
    if risks:
        screen.data("")
        screen.table((), [[*map(escape_line, row)] for row in risks])
    screen.data("")
    before = str(both.cost) if both.known else NOT_KNOWN
    change = format_cost_change(both)
    sides = f"{before} before, {found.cost} after, from nothing: {change}"
    screen.data(f"{HEADING['Cost']}{sides}")
    screen.table((), _build_warm_rows(found))
    screen.table((), _with_heading("Budget", [[escape_line(text)] for text in found.budgets]))


def _format_headline(found: PlanReport) -> str:
    if (both := found.comparison) is not None:
        since = f", where it left {both.asked.shown}" if both.asked is not None else ""
        return escape_line(f"From {both.before.shown} to {both.after.shown}{since}")
    prices = f"   (prices: {'; '.join(found.prices)})" if found.prices else ""
    return f"Plan for {count_noun(len(found.objects), 'object')}{escape_line(prices)}"


def _build_object_rows(plan: ObjectPlan, both: RevisionComparison | None) -> Iterator[list[str]]:
    """Yields a line for the object, one for each field that changes, and one for its units."""
    sign, word = SIGNS[plan.action]
    about = "; ".join(text for text in (plan.about, *plan.notes) if text)
    yield [f"  {sign} {escape_line(plan.key)}", word, escape_line(about)]
    for field in plan.fields[:FIELDS_SHOWN_MAX]:
        yield [f"      {escape_line(_format_path(field))}", escape_line(_format_change(field))]
    if len(plan.fields) > FIELDS_SHOWN_MAX:
        yield [f"      and {len(plan.fields) - FIELDS_SHOWN_MAX} more fields"]
    if plan.work is None:
        return
    if both is not None:
        texts = (plan.units, escape_line(format_where(plan)))
        yield [f"      {plan.work.unit}s", "; ".join(text for text in texts if text)]
    else:
        yield [f"      {plan.work.unit}s", _format_units(plan.work)]


def _format_path(field: FieldChange) -> str:
    if field.difference:
        return field.path  # the value behind a name, not the text of the spec
    outside = field.path.startswith(("labels", "annotations"))
    if outside:
        return f"metadata.{field.path}"
    return f"spec.{field.path}"


def _format_change(field: FieldChange) -> str:
    if field.difference:
        return field.difference
    old = value_text(field.before)
    new = value_text(field.after)
    if not old and not new:
        return "changed; `fleetctl diff` shows its lines"
    return f"{old or '(long)'} -> {new or '(long)'}"


def _format_units(work: PlannedWork) -> str:
    """Returns `48 kept, 24 new, 0 replaced`: always these three, other counts where above zero."""
    text = ", ".join(work.format_counts(always=ALWAYS_SHOWN))
    if work.again.units:
        text = text.replace(AGAIN, f"{AGAIN}{_format_rerun_time(work)}", 1)
    if work.lost_usd:
        text += f" (about {format_money(work.lost_usd)} already spent on what stops)"
    return text


def _format_rerun_time(work: PlannedWork) -> str:
    """Returns the time and cost of finished work that is repeated."""
    cost = f", {format_money(work.again.usd)}" if work.again.usd else ""
    return f" (had taken {format_duration(work.again.work_s)}{cost})"


def _print_placement(
    planned: ObjectPlan,
    work: PlannedWork,
    screen: Screen,
) -> None:
    screen.data("")
    unknown = f"{NOT_KNOWN} {work.unit}s"
    units = unknown if work.to_run is None else count_noun(work.to_run, work.unit)
    title = f"  PLACEMENT of {escape_line(planned.key)} ({units})"
    header = [title, "GPU", "$/H", "SLOTS", work.unit.upper() + "S", "EST. COST", "WHY"]
    gangs = any(place.nodes for place in work.places)
    if gangs:
        header.insert(1, "NODES")
    rows = []
    ranks = Counter[str]()
    for place in work.places:
        ranks[place.name] += 1
        row = _build_placement_row(ranks[place.name], place)
        if gangs:
            row.insert(1, place.nodes or "1")
        rows.append(row)
    screen.table(header, rows)


def _build_placement_row(rank: int, place: PlannedPlacement) -> list[str]:
    """Returns the cells of a provider; a unit with a name is named instead of a count of one."""
    judged = place.judged
    mark = str(rank) if judged.fits else "-"
    where = f"  {mark} {escape_line(judged.provider)}"
    name = escape_line(place.name)
    if not judged.fits:
        return [where, "-", "-", "-", name or "-", "-", escape_line(judged.why)]
    return [
        where,
        escape_line(place.gpu) or "-",
        format_hourly(place.least_usd_per_s, judged.usd_per_s),
        f"{place.slots:,}",
        name or f"{place.units:,}",
        str(place.cost) if place.units else "-",
        escape_line(judged.why),
    ]


def _build_cost_rows(found: PlanReport) -> Iterator[list[str]]:
    works = [it.work for it in found.changes if it.work is not None]
    if not works:
        return
    unpriced = sum(work.unpriced for work in works)
    why = f" ({count_noun(unpriced, 'past run')} without a known price)" if unpriced else ""
    rates = [work.rate_usd_per_s for work in works]
    rates += [it.warm.usd_per_s for it in found.changes if it.warm is not None]
    known = [rate for rate in rates if rate is not None]
    rate = f"{format_money(sum(known) * HOUR_S)}/h" if len(known) == len(rates) else NOT_KNOWN
    yield [
        f"{HEADING['Cost']}this apply {found.cost.with_range}",
        f"in total {found.total.with_range}{why}",
        f"rate at most {rate}",
    ]


def _build_warm_rows(found: PlanReport) -> Iterator[list[str]]:
    """Yields the costs by the hour, which do not depend on running work."""
    headed = found.comparison is not None or any(it.work is not None for it in found.changes)
    rows = [[escape_line(it.key), it.warm.sentence] for it in found.changes if it.warm is not None]
    return _with_heading("" if headed else "Cost", rows)


def _build_time_rows(found: PlanReport) -> Iterator[list[str]]:
    rows = [
        [escape_line(it.key), _format_time(it.work), it.work.lasts.basis]
        for it in found.changes
        if it.work is not None and it.work.lasts is not None
    ]
    return _with_heading("Time", rows)


def _build_budget_rows(found: PlanReport) -> Iterator[list[str]]:
    works = [(it.key, it.work) for it in found.changes if it.work is not None]
    capped = [(key, cap.sentence) for key, work in works for cap in work.caps]
    warm = [(it.key, it.warm) for it in found.changes if it.warm is not None]
    capped += [(key, _describe_drain(cap, it)) for key, it in warm for cap in it.caps]
    return _with_heading("Budget", [[*map(escape_line, row)] for row in capped])


def _with_heading(word: str, rows: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Yields the rows, the first with a heading."""
    for number, (first, *rest) in enumerate(rows):
        yield [HEADING["" if number else word] + first, *rest]


def _describe_drain(cap: BudgetCap, warm: WarmCost) -> str:
    """Returns how long a budget lasts for warm containers. They do not end when the budget does."""
    left_usd = max(0.0, cap.max_usd - cap.used_usd)
    lasts = (
        f", which pays {format_duration(left_usd / warm.usd_per_s)} of it" if warm.usd_per_s else ""
    )
    left = f"{format_money(left_usd)} of {format_money(cap.max_usd)} left{lasts}"
    beyond = "warm containers stay beyond it" if warm.idle_s is None else "then none is started"
    return f"{cap.owner}: {left}; {beyond}"


def _format_time(work: PlannedWork) -> str:
    if work.first_s is None:
        if work.whole_s is None:
            return NOT_KNOWN
        return f"at most {format_duration(work.whole_s)}"
    done = f", all done ~{format_duration(work.whole_s)}" if work.whole_s is not None else ""
    return f"first result ~{format_duration(work.first_s)}{done}"


def _format_counts(found: PlanReport, saved: str) -> str:
    changed = ", ".join(f"{found.count(action)} to {action}" for action in SIGNS)
    kept = found.count(PlanAction.KEEP)
    rest = f", {kept} unchanged" if kept else ""
    if found.comparison is not None:
        return f"Plan: {changed}{rest}"
    kept_in = f"Saved: {escape_line(saved)}" if saved else "Saved: no (use --out)"
    return f"Plan: {changed}{rest}. {kept_in}"


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
    keys = and_more([f"`{escape_cell(key)}`" for key in risk.keys], most=COMMENT_KEYS_MAX)
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
        yield "Only the store knows the rest of a budget: `--live`."


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
            "Objects that left the repository are deleted by `apply --prune` and by a source that"
            " prunes; a plain `apply` leaves them."
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
