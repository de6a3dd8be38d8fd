"""Tests that a machine cannot run, or that `make test-all` alone runs: left out with one line each,
which names the command that brings them, and never where everything was asked for.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import EVERYTHING, PACKAGES, VARIABLE, install_command

TESTS = Path(__file__).parents[1]
CONFTEST = """
import pytest
from tests import needs, selection
from tests.needs import PACKAGES

PACKAGES["no-such-program"] = "its-package"

def pytest_addoption(parser):
    parser.addoption("--all", action="store_true")
    parser.addoption("--rest", action="store_true")

def pytest_configure(config):
    config.pluginmanager.register(selection)
    config.pluginmanager.register(needs)
"""
CASES = """
import pytest
from tests.needs import require

@pytest.mark.needs("no-such-program")
def test_that_is_marked(): ...

def test_that_finds_out():
    require("bash", "no-such-program")

@pytest.mark.needs("bash")
def test_that_runs_here(): ...

def test_of_another_kernel():
    pytest.skip("this kernel mounts nothing")

@pytest.mark.only_all(reason="on every backend")
@pytest.mark.parametrize("number", range(3))
def test_that_is_dear(number): ...

@pytest.mark.only_all(reason="by a registry")
def test_that_is_far(): ...

@pytest.fixture(params=["near", "far", "farther"])
def backend(request): ...

@pytest.mark.only_all(reason="on every backend", of=("far", "farther"))
def test_on(backend): ...
"""
LEFT_OUT = "6 tests run in `make test-all` only: 5 on every backend; 1 by a registry"


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_cases.py").write_text(CASES)
    return tmp_path


def run(cases: Path, *options: str, variables: dict[str, str] | None = None) -> str:
    words = [sys.executable, "-m", "pytest", "-q", f"--rootdir={cases}", str(cases), *options]
    words += ["-p", "no:cacheprovider"]
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", **(variables or {})}
    return subprocess.run(words, cwd=TESTS.parent, env=env, capture_output=True, text=True).stdout


def test_one_line_has_the_command_for_all_that_is_missing(cases: Path) -> None:
    out = run(cases, "-p", "no:xdist")
    command = f"{install_command([])} its-package"
    assert f"2 tests were skipped for want of no-such-program: {command}\n" in out
    assert "1 tests were skipped: 1 as this kernel mounts nothing\n" in out
    assert f"{LEFT_OUT}\n" in out
    assert "2 passed, 3 skipped, 6 deselected" in out


def test_workers_report_the_same(cases: Path) -> None:
    out = run(cases, "-n", "1")
    assert "2 tests were skipped for want of no-such-program: " in out
    assert f"{LEFT_OUT}\n" in out


def test_where_all_is_to_be_there_a_test_that_lacks_something_fails(cases: Path) -> None:
    out = run(cases, "--all", "-p", "no:xdist", variables={VARIABLE: EVERYTHING})
    assert "1 failed, 8 passed, " in out and "1 error" in out and "for want of" not in out
    assert "only:" not in out


def test_what_is_left_out_runs_alone_where_that_is_asked_for(cases: Path) -> None:
    out = run(cases, "--rest", "-p", "no:xdist")
    assert "6 passed, 5 deselected" in out and "only:" not in out


def test_without_apt_the_installation_fails_with_the_command(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.needs"]
    env = {"PATH": str(tmp_path)}
    done = subprocess.run(words, cwd=TESTS.parent, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"is not there; install: {install_command(PACKAGES)}\n" in done.stderr


def test_each_program_of_the_table_is_one_that_some_test_needs() -> None:
    texts = [path.read_text("utf-8") for path in TESTS.rglob("*.py") if path.name != "needs.py"]
    asks = re.compile(r"(?:needs|require)\(")
    lines = [line for text in texts for line in text.splitlines() if asks.search(line)]
    assert {name for name in PACKAGES if not any(f'"{name}"' in line for line in lines)} == set()
