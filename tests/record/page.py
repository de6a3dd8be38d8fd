"""The page docs/reference/track-record.md, from what is kept of the runs."""

from __future__ import annotations

from tests.record.parts import Part
from tests.record.results import Record, Result

NOTE = "<!-- Written by `make test-all`; run it, do not edit this page. -->"
HEAD = """# Track record

{note}

What `make test-all` found when it ran last, part by part. A part that passed is not run again at
the same commit; `make test-all AGAIN=1` runs all of them, `PARTS="lives mutants"` some. CPU is that
of all processes that a part started and waited for.

The last rows are those of `make campaign`. Each goes on where it stopped until the product's code
changes; it has the last commit of that code, and the seconds of all its runs.
`make campaign MINUTES=30` gives each of them half an hour. A change of the product begins a row
anew, with seeds that no earlier commit had; what earlier commits came to is listed below.

| what | command | count | result | commit | date | machine | seconds | CPU seconds |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
EARLIER = """
## Earlier commits of the campaign

Other code than today's: no proof of it, and not counted above.

| what | count | result | commit | date | machine | seconds | CPU seconds |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
ONLY = """
## What runs there alone

| what | why not in `make test` |
| --- | --- |
"""
FILES_SHOWN = 6


def render_page(record: Record, parts: list[Part]) -> str:
    rows = [_row(part, record.results.get(part.name)) for part in parts]
    alone = [f"| {part.what} | {part.why} |" for part in parts if part.why]
    lines = [*rows, *_earlier_lines(record, parts), *ONLY.splitlines(), *alone]
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
        _outcome(result),
        result.commit,
        result.date,
        result.machine,
        f"{result.seconds:,.0f}",
        f"{result.cpu_s:,.0f}",
    )


def _earlier_lines(record: Record, parts: list[Part]) -> list[str]:
    names = {part.name: part.what for part in parts}
    rows = [
        f"| {names[it.part]} | {' | '.join(_cells(it))} |"
        for it in record.earlier
        if it.part in names
    ]
    return [*EARLIER.splitlines(), *rows] if rows else []


def _outcome(result: Result) -> str:
    if not result.passed:
        return "**failed**"
    return "passed" if result.whole else "nothing found so far"
