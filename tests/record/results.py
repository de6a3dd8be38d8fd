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


@dataclass(frozen=True, slots=True)
class Result:
    """The last run of a part. cpu_s: of all processes that ended and were waited for."""

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


def find_commit() -> str:
    """The commit that is checked out, with CHANGED where files differ; "unknown" without git."""
    commit = _git("rev-parse", "--short=10", "HEAD")
    if commit is None:
        return "unknown"
    return commit + (CHANGED if _git("status", "--porcelain", "--", *_ours()) else "")


def is_same_code(commit: str) -> bool:
    """Whether nothing but the record itself has changed since that commit."""
    if commit.endswith(CHANGED) or find_commit().endswith(CHANGED):
        return False
    return _git("diff", "--name-only", commit, "HEAD", "--", *_ours()) == ""


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
