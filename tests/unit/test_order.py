"""Tests on several workers: each once, long ones first, and together what shares something."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.order import ROOT, TOGETHER, group_of, in_turns
from tests.workers.__main__ import keep_failed

MOUNTS = """
from tests.workers.__main__ import mount_memory

with mount_memory() as base:
    if base is not None:
        base.mkdir()
        assert base.exists()
    print(base, flush=True)
    input()
"""
NOTES = """
from pathlib import Path
import pytest

# Ids that pytest escapes.
@pytest.mark.parametrize("number", range(5), ids=lambda it: chr(92) + chr(1) + str(it))
def test_it(number, worker_id):
    with Path(__file__).with_name("told").open("a") as told:
        print(Path(__file__).name, worker_id, file=told)
"""
# Beside the conftest.py of all tests: the files whose tests a worker collects.
COLLECTED = """
import os
from pathlib import Path

def pytest_itemcollected(item):
    with Path(__file__).with_name("collected").open("a") as collected:
        print(item.path.name, os.environ.get("PYTEST_XDIST_WORKER", "first"), file=collected)
"""


def test_what_takes_longest_comes_first_and_what_computes_between() -> None:
    first, second, short = (f"tests/{path}::test" for path in ("servers/a.py", "docs/b.py", "c.py"))
    walls = {"servers/a.py": 40.0, "docs/b.py": 20.0, "c.py": 1.0}
    computing = [f"tests/simulation/test_a.py::test[{number}]" for number in range(3)]
    assert list(in_turns([short, *computing, second, first], walls)) == [
        first,
        *computing[:2],
        second,
        computing[2],
        short,
    ]


def test_a_new_file_that_is_no_unit_test_is_taken_for_a_long_one() -> None:
    short, new = "tests/unit/a.py::test", "tests/servers/new.py::test"
    assert list(in_turns([short, new], {"unit/a.py": 2.0})) == [new, short]


@pytest.mark.parametrize("path", [[], ["simulation/a.py"], ["unit/x.py"], ["servers/x.py", "y.py"]])
def test_nothing_is_left_out_and_nothing_comes_twice(path: list[str]) -> None:
    nodeids = [f"tests/{one}::test[{number}]" for one in path for number in range(3)]
    assert sorted(in_turns(nodeids)) == nodeids


def test_what_is_said_of_paths_is_said_of_some_that_are_there() -> None:
    assert [path for path in TOGETHER if not (ROOT / path).exists()] == []


def test_files_share_a_worker_where_they_share_more_and_computing_ones_share_nothing() -> None:
    assert group_of("tests/servers/test_x.py::test[a::b]") == "servers/test_x.py"
    assert group_of("tests/unit/interpreter/test_x.py::test") == "unit/interpreter"
    examples = (f"tests/docs/test_{name}.py::test" for name in ("examples", "starters"))
    assert {*map(group_of, examples)} == {"docs/examples"}
    assert len({group_of(f"tests/simulation/test_x.py::test[{n}]") for n in range(5)}) == 5


def test_two_workers_never_share_a_file_and_collect_only_what_they_run(tmp_path: Path) -> None:
    """The plugins and pytest as they are installed."""
    output = _run_workers("2", tmp_path)
    assert "20 passed" in output, output
    ran = _read_pairs(tmp_path / "told")
    assert sorted(file for file, _ in {*ran}) == [f"test_{name}.py" for name in "abcd"]
    assert {worker for _, worker in ran} == {"gw0", "gw1"}
    first = {(f"test_{name}.py", "first") for name in "abcd"}
    assert {*_read_pairs(tmp_path / "collected")} == first | {*ran}


def test_workers_report_a_file_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "test_e.py").write_text("import nothing_of_that_name")
    output = _run_workers("1", tmp_path)
    assert "No module named 'nothing_of_that_name'" in output
    assert "1 error" in output, output


def _run_workers(count: str, directory: Path) -> str:
    conftest = (ROOT / "conftest.py").read_text("utf-8")
    (directory / "conftest.py").write_text(f"{conftest}\n{COLLECTED}")
    for name in "abcd":
        (directory / f"test_{name}.py").write_text(NOTES)
    words = [count, "--dist", "loadgroup", f"--rootdir={directory}", str(directory)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.workers", *words, "-p", "no:cacheprovider"],
        cwd=ROOT.parent,
        env={it: os.environ[it] for it in os.environ if not it.startswith("PYTEST_XDIST")},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def _read_pairs(path: Path) -> list[tuple[str, str]]:
    """Returns the file and the worker of each line."""
    pairs = [line.split() for line in path.read_text().splitlines()]
    return [(file, worker) for file, worker in pairs]


def test_the_memory_that_files_are_in_is_seen_by_the_run_alone_and_ends_with_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MOUNTS],
        cwd=ROOT.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        base = Path(run.stdout.readline().strip())  # `None` without the right or the memory
        assert not base.exists()
        run.communicate("\n")
    assert run.returncode == 0
    assert base == Path("None") or not base.parent.exists()


def test_files_of_a_test_that_failed_are_copied_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = tmp_path / "memory" / "popen-gw0" / "test_it0"
    failed.mkdir(parents=True)
    (failed / "controller.log").write_text("why")
    (failed.parent / "test_itcurrent").symlink_to(failed)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    keep_failed(tmp_path / "memory")
    kept = Path(capsys.readouterr().out.rpartition(": ")[2].strip())
    assert [str(it.relative_to(kept)) for it in kept.rglob("*")] == [
        "test_it0",
        "test_it0/controller.log",
    ]
