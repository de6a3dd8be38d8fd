"""Collects the tests that are marked `only_all`, by their reasons."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.record.results import ROOT, OnlyThere
from tests.selection import ALL, reason_of


class ReasonCollector:
    """A plugin of pytest that counts the tests of each reason and file."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if (reason := reason_of(item)) is not None:
                self.counts[reason][item.nodeid.partition("::")[0]] += 1


def collect_only_there() -> tuple[OnlyThere, ...]:
    """In a process of its own: what tests import stays out of this one."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        words = [sys.executable, "-m", __name__, file.name]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        counts = json.loads(Path(file.name).read_text("utf-8"))
    return tuple(OnlyThere(reason, files) for reason, files in counts.items())


def main(path: str) -> None:
    collector = ReasonCollector()
    with contextlib.redirect_stdout(sys.stderr):
        code = pytest.main(["--collect-only", "-qqq", ALL], plugins=[collector])
    if code != pytest.ExitCode.OK:
        sys.exit(f"the tests cannot be collected: {code}")
    Path(path).write_text(json.dumps(collector.counts), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
