"""Run what did not pass at this commit, and write the page: `python -m tests.record [PART ...]`.

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

from tests.record.only_there import collect_only_there
from tests.record.page import render_page
from tests.record.parts import UNFINISHED, Part, parts
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

LIVES = 100_000  # five hours of CPU


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.record", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="only these; default all")
    parser.add_argument("--again", action="store_true", help="also what passed at this commit")
    parser.add_argument("--lives", type=int, default=LIVES, help=f"default {LIVES:,}")
    parser.add_argument("--campaign", action="store_true", help="only the parts of `make campaign`")
    parser.add_argument("--minutes", type=float, help="of each part of the campaign; then go on")
    arguments = parser.parse_args()
    table = parts(arguments.lives, arguments.minutes)
    if unknown := set(arguments.parts) - {part.name for part in table}:
        known = ", ".join(part.name for part in table)
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {known}")
    default = [it.name for it in table if it.paths or not arguments.campaign]
    chosen = [part for part in table if part.name in (arguments.parts or default)]
    record = replace(load_record(), only_there=collect_only_there())
    failed = []
    for part in chosen:
        if not arguments.again and has_passed(record.results.get(part.name), part):
            print(f"{part.name}: passed at this commit already", flush=True)
            continue
        if part.registry and not reaches_registry():
            print(f"{part.name}: left out, as no package registry was reached", flush=True)
            continue
        result = run_part(part)
        record = record.with_result(result, kept=bool(part.paths))
        save(record, table)
        failed += [] if result.passed else [part.name]
    save(record, table)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def has_passed(result: Result | None, part: Part) -> bool:
    """Whether the same command passed with the code that is there now, and has no more to do."""
    if result is None or not result.passed or not result.whole:
        return False
    return result.command == part.command and is_same_code(result.commit, part.paths)


def run_part(part: Part) -> Result:
    print(f"== {part.name}: {part.command}", flush=True)
    commit, began_s, before_s = find_commit(part.paths), time.monotonic(), _children_s()
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
    spent = part.spent("".join(output)) or (
        time.monotonic() - began_s,
        _children_s() - before_s,
    )
    return Result(
        part=part.name,
        command=part.command,
        count=part.count("".join(output)),
        passed=code in (*part.passes, UNFINISHED),
        commit=commit,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine=describe_machine(),
        seconds=round(spent[0], 1),
        cpu_s=round(spent[1], 1),
        whole=code != UNFINISHED,
    )


def save(record: Record, table: list[Part]) -> None:
    save_record(record)
    PAGE.write_text(render_page(record, table), "utf-8")


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
