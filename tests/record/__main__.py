"""Runs what did not pass at this commit, and writes the page: `python -m tests.record [PART ...]`.

Exits with code 1 if a part failed. A part that needs a package registry is left out, with a line,
where none is reached.
"""

from __future__ import annotations

import argparse
import datetime
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

from tests.campaign import parts as campaign
from tests.campaign.__main__ import UNFINISHED
from tests.record.only_there import collect_only_there
from tests.record.page import load_rows, render_page
from tests.record.parts import Part, parts
from tests.record.results import (
    PAGE,
    ROOT,
    Record,
    Result,
    describe_machine,
    find_commit,
    is_same_code,
    load_record,
    save_record,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.record", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="only these; default all")
    parser.add_argument("--again", action="store_true", help="also what passed at this commit")
    parser.add_argument("--campaign", action="store_true", help="only the parts of `make campaign`")
    parser.add_argument("--minutes", type=float, help="of the campaign; then it goes on later")
    parser.add_argument("--processes", type=int, help="pieces of the campaign at once")
    arguments = parser.parse_args()
    table = [] if arguments.campaign else parts()
    names = [*(part.name for part in table), *campaign.PARTS]
    if unknown := set(arguments.parts) - set(names):
        known = ", ".join(names)
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {known}")
    chosen = arguments.parts or names
    whole = [part for part in table if part.name in chosen]
    failed = run_parts(whole, again=arguments.again) if whole else []
    played = [name for name in campaign.PARTS if name in chosen]
    if played and not play_campaign(played, arguments.minutes, arguments.processes):
        failed.append("campaign")
    save_page(load_record())
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def run_parts(chosen: list[Part], *, again: bool) -> list[str]:
    """Returns the names of the parts that failed."""
    record = replace(load_record(), only_there=collect_only_there())
    failed = []
    for part in chosen:
        if not again and has_passed(record.results.get(part.name), part):
            print(f"{part.name}: passed at this commit already", flush=True)
            continue
        if part.registry and not reaches_registry():
            print(f"{part.name}: left out, as no package registry was reached", flush=True)
            continue
        result = run_part(part)
        record = record.with_result(result)
        save(record)
        failed += [] if result.passed else [part.name]
    save(record)
    return failed


def play_campaign(names: list[str], minutes: float | None, processes: int | None) -> bool:
    """Goes on with parts of the campaign, which keeps its own state. Returns False if one has an
    open finding. The page is written also after a stop, with the pieces that ended.
    """
    options = [*(["--minutes", f"{minutes:g}"] if minutes else [])]
    options += ["--processes", str(processes)] if processes else []
    words = [sys.executable, "-m", "tests.campaign", *names, *options]
    try:
        return subprocess.run(words, cwd=ROOT, check=False).returncode in (0, UNFINISHED)
    finally:
        save_page(load_record())


def has_passed(result: Result | None, part: Part) -> bool:
    """Whether the same command passed with the code that is there now."""
    if result is None or not result.passed:
        return False
    return result.command == part.command and is_same_code(result.commit)


def run_part(part: Part) -> Result:
    print(f"== {part.name}: {part.command}", flush=True)
    commit, began_s, before_s = find_commit(), time.monotonic(), _children_s()
    process = subprocess.Popen(
        part.command.split(),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    output = []
    for line in process.stdout:
        print(line, end="", flush=True)
        output.append(line)
    code = process.wait()
    return Result(
        part=part.name,
        command=part.command,
        count=part.count("".join(output)),
        passed=code in part.passes,
        commit=commit,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine=describe_machine(),
        seconds=round(time.monotonic() - began_s, 1),
        cpu_s=round(_children_s() - before_s, 1),
    )


def save(record: Record) -> None:
    save_record(record)
    save_page(record)


def save_page(record: Record) -> None:
    PAGE.write_text(render_page(record, parts(), load_rows()), "utf-8")


def reaches_registry() -> bool:
    """Asks for one small package, as the parts would for theirs."""
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir"]
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [*words, "-d", directory, "wheel"], capture_output=True, check=False, cwd=directory
        )
    return done.returncode == 0


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
