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

| what | command | count | result | commit | date | machine | seconds | CPU seconds |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
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
    lines = [*rows, *ONLY.splitlines(), *alone]
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
    cells = (
        part.what,
        f"`{result.command}`",
        result.count,
        "passed" if result.passed else "**failed**",
        result.commit,
        result.date,
        result.machine,
        f"{result.seconds:,.0f}",
        f"{result.cpu_s:,.0f}",
    )
    return f"| {' | '.join(cells)} |"
