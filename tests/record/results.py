"""What is kept of the last run of each part, in results.json beside this file."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs/reference/track-record.md"
CHANGED = " with changes"  # behind a commit whose work tree had others
# The code that a campaign of days tests: changes of other files do not restart it.
PRODUCT = ("fleetctl", "specs", "controllers", "pyproject.toml", "requirements")


@dataclass(frozen=True, slots=True)
class Result:
    """The last run of a part. cpu_s: CPU time of all processes that ended and were waited for.
    whole: False if no trial failed and trials are left.
    """

    part: str
    command: str
    count: str
    passed: bool
    commit: str
    date: str
    machine: str
    seconds: float
    cpu_s: float
    whole: bool = True


@dataclass(frozen=True, slots=True)
class OnlyThere:
    """Tests with one reason to run in `make test-all` alone. files: how many of each."""

    reason: str
    files: dict[str, int]


@dataclass(frozen=True, slots=True)
class Record:
    """earlier: results of the campaign's parts with other code than the last, oldest first: trials
    that are not repeated, as a part goes on with fresh seeds.
    """

    results: dict[str, Result]  # by part
    only_there: tuple[OnlyThere, ...]
    earlier: tuple[Result, ...] = ()

    def with_result(self, fresh: Result, *, kept: bool) -> Record:
        """Returns the record with the last run of a part. kept: the one before stays, among the
        earlier ones, where it tested another commit.
        """
        before, earlier = self.results.get(fresh.part), self.earlier
        if kept and before is not None and before.commit != fresh.commit:
            earlier = (*earlier, before)
        return Record({**self.results, fresh.part: fresh}, self.only_there, earlier)


def load_record() -> Record:
    kept = json.loads(FILE.read_text("utf-8"))
    return Record(
        {it["part"]: Result(**it) for it in kept["results"]},
        tuple(OnlyThere(**it) for it in kept["only_there"]),
        tuple(Result(**it) for it in kept.get("earlier", ())),
    )


def save_record(record: Record) -> None:
    kept = {
        "results": [asdict(it) for it in record.results.values()],
        "only_there": [asdict(it) for it in record.only_there],
        "earlier": [asdict(it) for it in record.earlier],
    }
    text = json.dumps(kept, indent=2) + "\n"
    beside = FILE.with_suffix(".new")
    beside.write_text(text, "utf-8")
    beside.replace(FILE)


def find_commit(paths: Sequence[str] = ()) -> str:
    """The commit that is checked out, or the last that changed one of `paths`, with CHANGED where
    files differ; "unknown" without git.
    """
    if paths:
        commit = _git("log", "-1", "--format=%h", "--abbrev=10", "--", *paths)
    else:
        commit = _git("rev-parse", "--short=10", "HEAD")
    if not commit:
        return "unknown"
    return commit + (CHANGED if _git("status", "--porcelain", "--", *(paths or _ours())) else "")


def is_same_code(commit: str, paths: Sequence[str] = ()) -> bool:
    """Returns whether `paths`, or all files but the record itself, are unchanged since `commit`."""
    if commit.endswith(CHANGED) or find_commit(paths).endswith(CHANGED):
        return False
    return _git("diff", "--name-only", commit, "HEAD", "--", *(paths or _ours())) == ""


def describe_machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GB, Python {platform.python_version()}"


def _ours() -> Sequence[str]:
    """All paths but those that a run writes."""
    written = (FILE, PAGE, ROOT / "tests/emulators/suite.passed")
    return [".", *(f":!{path.relative_to(ROOT)}" for path in written)]


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
