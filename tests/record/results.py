"""The last run of each part of `make test-all`, in results.json beside this file."""

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
PLAYED = ROOT / "tests/campaign/played"  # how far the campaign came, a file for each part
CHANGED = " with changes"  # behind a commit whose work tree had others
# The code that a campaign of days tests: its trials are counted by the commits of it.
PRODUCT = ("fleetctl", "specs", "controllers", "pyproject.toml", "requirements")


@dataclass(frozen=True, slots=True)
class Result:
    """The last run of a part. cpu_s: CPU time of all processes that ended and were waited for."""

    part: str
    command: str
    count: str
    passed: bool
    commit: str
    date: str
    machine: str
    seconds: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class OnlyThere:
    """Tests with one reason to run in `make test-all` alone. files: how many of each."""

    reason: str
    files: dict[str, int]


@dataclass(frozen=True, slots=True)
class Record:
    results: dict[str, Result]  # by part
    only_there: tuple[OnlyThere, ...]

    def with_result(self, fresh: Result) -> Record:
        """Returns the record with the last run of a part."""
        return Record({**self.results, fresh.part: fresh}, self.only_there)


def load_record() -> Record:
    kept = json.loads(FILE.read_text("utf-8"))
    return Record(
        {it["part"]: Result(**it) for it in kept["results"]},
        tuple(OnlyThere(**it) for it in kept["only_there"]),
    )


def save_record(record: Record) -> None:
    kept = {
        "results": [asdict(it) for it in record.results.values()],
        "only_there": [asdict(it) for it in record.only_there],
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
    written = (FILE, PAGE, PLAYED, ROOT / "tests/emulators/suite.passed")
    return [".", *(f":!{path.relative_to(ROOT)}" for path in written)]


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
