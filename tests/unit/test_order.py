"""Tests on several workers: each once, long ones first, and together what shares something."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.order import LONGEST, ROOT, TOGETHER, group_of, in_turns

NOTES = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(5))
def test_it(number, worker_id):
    with Path(__file__).with_name("told").open("a") as told:
        print(Path(__file__).name, worker_id, file=told)
"""


def test_what_takes_longest_comes_first_and_what_computes_between() -> None:
    first, second = (f"tests/{path}::test" for path in LONGEST[0:3:2])
    computing = [f"tests/simulation/test_a.py::test[{number}]" for number in range(3)]
    assert list(in_turns(["tests/unit/x.py::test", *computing, second, first])) == [
        first,
        *computing[:2],
        second,
        computing[2],
        "tests/unit/x.py::test",
    ]


@pytest.mark.parametrize("path", [[], ["simulation/a.py"], ["unit/x.py"], ["servers/x.py", "y.py"]])
def test_nothing_is_left_out_and_nothing_comes_twice(path: list[str]) -> None:
    nodeids = [f"tests/{one}::test[{number}]" for one in path for number in range(3)]
    assert sorted(in_turns(nodeids)) == nodeids


def test_what_is_said_of_paths_is_said_of_some_that_are_there() -> None:
    assert [path for path in (*LONGEST, *TOGETHER) if not (ROOT / path).exists()] == []


def test_files_share_a_worker_where_they_share_more_and_computing_ones_share_nothing() -> None:
    assert group_of("tests/servers/test_x.py::test[a::b]") == "servers/test_x.py"
    assert group_of("tests/unit/interpreter/test_x.py::test") == "unit/interpreter"
    examples = (f"tests/docs/test_{name}.py::test" for name in ("examples", "starters"))
    assert {*map(group_of, examples)} == {"docs/examples"}
    assert len({group_of(f"tests/simulation/test_x.py::test[{n}]") for n in range(5)}) == 5


def test_two_workers_never_share_a_file(tmp_path: Path) -> None:
    """The plugin and pytest as they are installed."""
    conftest = ROOT / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text("utf-8"))
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(NOTES)
    words = ["-q", "-n", "2", "--dist", "loadgroup", f"--rootdir={tmp_path}", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "-p", "no:cacheprovider"],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
    )
    assert "20 passed" in done.stdout, done.stdout + done.stderr
    workers = defaultdict(set)
    for line in (tmp_path / "told").read_text().splitlines():
        file, worker = line.split()
        workers[file].add(worker)
    assert [len(one) for one in workers.values()] == [1, 1, 1, 1]
    assert len(set.union(*workers.values())) == 2
