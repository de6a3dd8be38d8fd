"""The playing of mutants: copies of the tree, the named test in them, and the verdict."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutant import ASSERTION, ROOT, Mutant

# A test of this set takes seconds. A mutant that makes one hang is not caught by it: the test
# would end by its deadline, and its message would name a wait and no fault.
TEST_SECONDS_MAX = 300
BASELINE_SECONDS_MAX = 1800
TAIL_LINES = 5  # of what pytest printed, where it ran nothing


@dataclass(frozen=True, slots=True)
class Verdict:
    """why: empty where the mutant is caught."""

    mutant: Mutant
    why: str
    seconds: float

    @property
    def caught(self) -> bool:
        return not self.why


@dataclass(frozen=True, slots=True)
class Outcome:
    """failures: the first line of each, with the name of its exception. broken: why a test could
    not be run to its end.
    """

    passed: int
    failures: tuple[str, ...]
    broken: str

    @property
    def clean(self) -> bool:
        return not self.failures and not self.broken


@contextmanager
def copied_tree() -> Iterator[Path]:
    """A copy of the working tree, as git lists it: the checkout is never touched."""
    with tempfile.TemporaryDirectory(prefix="fleetctl-mutants-") as directory:
        tree = Path(directory, "tree")
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if os.path.lexists(ROOT / name):
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
        yield tree


def linked_tree(tree: Path, name: str) -> Path:
    """A tree beside it whose files are links to the same ones; one a job."""
    beside = tree.with_name(name)
    shutil.copytree(tree, beside, symlinks=True, copy_function=os.link)
    return beside


def run_tests(tree: Path, tests: Sequence[str], *, seconds_max: float) -> Outcome:
    report = tree.with_name(f"{tree.name}.xml")
    report.unlink(missing_ok=True)
    environment = os.environ | {"PYTHONPATH": str(tree), "FLEETCTL_HOME": str(tree / ".fleetctl")}
    command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *tests]
    process = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Outcome(0, (), f"did not end within {seconds_max:.0f} s")
    outcome = _read_report(report) if report.exists() else Outcome(0, (), "")
    if outcome == Outcome(0, (), ""):
        tail = " ".join(output.splitlines()[-TAIL_LINES:])
        return Outcome(0, (), f"no test was run: {tail}")
    return outcome


def _read_report(report: Path) -> Outcome:
    passed, failures, broken, skipped = 0, [], [], []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        failure, error = case.find("failure"), case.find("error")
        if error is not None:
            broken.append(f"error of {case.get('name')}: {error.get('message')}")
        elif failure is not None:
            failures.append(_first_line(failure.get("message", "")))
        elif case.find("skipped") is not None:
            skipped.append(f"{case.get('name')} was skipped")
        else:
            passed += 1
    if not passed and not failures:
        broken += skipped  # where others ran, this machine lacks what one of them needs
    return Outcome(passed, tuple(failures), "; ".join(broken))


def _first_line(message: str) -> str:
    return message.splitlines()[0] if message.strip() else ""


def play_mutant(mutant: Mutant, *, tree: Path, original: Path) -> Verdict:
    """Its test in `tree` with the patch; afterwards the tree is as before."""
    began_s = time.monotonic()
    texts = mutant.apply(tree)
    try:
        for file, text in texts.items():
            (tree / file).unlink()  # it is a link to the file of other trees
            (tree / file).write_text(text)
        outcome = run_tests(tree, [mutant.test], seconds_max=TEST_SECONDS_MAX)
    finally:
        for file in texts:
            (tree / file).unlink()
            os.link(original / file, tree / file)
    return Verdict(mutant, judge_outcome(mutant, outcome), time.monotonic() - began_s)


def judge_outcome(mutant: Mutant, outcome: Outcome) -> str:
    """Why the mutant is not caught; empty where it is."""
    if outcome.broken:
        return outcome.broken
    if not outcome.failures:
        return "the test passes with the patch"
    for message in outcome.failures:
        if not fails_by(message, mutant.fails_by):
            return f"the test fails by another exception than {mutant.fails_by}: {message}"
    return ""


def fails_by(message: str, exception: str) -> bool:
    """The message of a failure, as pytest reports it, is that of this exception.

    pytest leaves out the name of an AssertionError of a bare `assert`.
    """
    if exception == ASSERTION and message.startswith(("assert ", "Failed: ")):
        return True
    return message.partition(":")[0].rpartition(".")[2] == exception
