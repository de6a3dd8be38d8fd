"""The page docs/reference/track-record.md, from the last runs and the state of the campaign."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.campaign import parts as campaign
from tests.campaign.progress import Progress, load_progress
from tests.record.parts import PYTHON, Part
from tests.record.results import Record, Result

NOTE = "<!-- Written by `make test-all`; run it, do not edit this page. -->"
HEAD = """# Track record

{note}

What `make test-all` found when it ran last, part by part. A part that passed is not run again at
the same commit; `make test-all AGAIN=1` runs all of them, `PARTS="lives mutants"` some. CPU is that
of all processes that a part started and waited for.

The last rows are those of `make campaign`, which plays their trials in pieces, side by side, and
goes on where it stopped (`make campaign MINUTES=30 PROCESSES=2`). Such a row counts over all
commits of the product since it began, so it is no proof of the newest commit alone: the count says
how many trials that one has, and the share of each is listed below. A trial has a fresh seed. A
finding ends no count; it is open until a test is named that failed with the fault. Seconds and CPU
seconds are those of all pieces together, which ran side by side.

| what | command | count | result | commit | date | machine | seconds | CPU seconds |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
SHARES = """
## Shares of the commits

The trials of the campaign by the commit of the product that they tried, oldest first. Rows that
began before 2026-11-29 took their seeds from 0 in each checkout, so that trials at two commits may
share a seed; since then no seed is used twice.

| what | count | findings | commit | from | to | seconds | CPU seconds |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
FINDINGS = """
## Findings of the campaign

| what | finding | commit | date | test that failed with the fault |
| --- | --- | --- | --- | --- |
"""
ONLY = """
## What runs there alone

| what | why not in `make test` |
| --- | --- |
"""
FILES_SHOWN = 6
FINDING_CHARS = 70


@dataclass(frozen=True, slots=True)
class Row:
    """A part of the campaign and how far it came."""

    part: campaign.Part
    progress: Progress


def load_rows() -> list[Row]:
    return [Row(part, load_progress(part.name)) for part in campaign.PARTS.values()]


def render_page(record: Record, parts: Sequence[Part], rows: Sequence[Row]) -> str:
    lines = [_row(part, record.results.get(part.name)) for part in parts]
    lines += map(_campaign_row, rows)
    lines += [*SHARES.splitlines(), *(line for row in rows for line in _share_rows(row))]
    if found := [line for row in rows for line in _finding_rows(row)]:
        lines += [*FINDINGS.splitlines(), *found]
    lines += [*ONLY.splitlines(), *(f"| {part.what} | {part.why} |" for part in parts if part.why)]
    lines += [f"| {row.part.what} | hours; `make test` plays a few of them |" for row in rows]
    if record.only_there:
        lines += ["", "The tests that are marked `only_all`:", ""]
        lines += ["| tests | why | where |", "| --- | --- | --- |"]
    for one in sorted(record.only_there, key=lambda it: -sum(it.files.values())):
        names = sorted(one.files, key=lambda it: -one.files[it])
        where = ", ".join(f"`{name}`" for name in names[:FILES_SHOWN])
        more = f" and {len(names) - FILES_SHOWN} files more" if len(names) > FILES_SHOWN else ""
        lines.append(f"| {sum(one.files.values())} | {one.reason} | {where}{more} |")
    return HEAD.format(note=NOTE) + "\n".join(lines) + "\n"


def _row(part: Part, result: Result | None) -> str:
    if result is None:
        return f"| {part.what} | `make test-all PARTS={part.name}` | | not run yet | | | | | |"
    return f"| {part.what} | `{result.command}` | {' | '.join(_cells(result))} |"


def _cells(result: Result) -> tuple[str, ...]:
    return (
        result.count,
        "passed" if result.passed else "**failed**",
        result.commit,
        result.date,
        result.machine,
        f"{result.seconds:,.0f}",
        f"{result.cpu_s:,.0f}",
    )


def _campaign_row(row: Row) -> str:
    part, progress = row.part, row.progress
    command = f"`{PYTHON} -m tests.campaign {part.name}`"
    shares = progress.shares
    if not shares:
        return f"| {part.what} | {command} | | not run yet | | | | | |"
    cells = (
        part.what,
        command,
        progress.describe_count(part),
        _outcome(row),
        _span(shares[0].commit, shares[-1].commit),
        _span(shares[0].first, shares[-1].last),
        shares[-1].machine,
        f"{sum(it.seconds for it in shares):,.0f}",
        f"{sum(it.cpu_s for it in shares):,.0f}",
    )
    return f"| {' | '.join(cells)} |"


def _outcome(row: Row) -> str:
    if opened := len(row.progress.open):
        return f"**{opened} open**"
    return "passed" if row.progress.done >= row.part.wanted else "goes on; no finding is open"


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def _share_rows(row: Row) -> Iterator[str]:
    for share in row.progress.shares:
        found = sum(it.commit == share.commit for it in row.progress.findings)
        yield (
            f"| {row.part.name} | {share.done:,} {row.part.unit} | {found} | {share.commit} | "
            f"{share.first} | {share.last} | {share.seconds:,.0f} | "
            f"{share.cpu_s:,.0f} |"
        )


def _finding_rows(row: Row) -> Iterator[str]:
    for it in row.progress.findings:
        text = " ".join(it.text.split()).replace("|", "\\|").replace("`", "'")
        test = f"`{it.test}`" if it.test else "**none yet**"
        yield f"| {row.part.name} | `{text[:FINDING_CHARS]}` | {it.commit} | {it.date} | {test} |"
