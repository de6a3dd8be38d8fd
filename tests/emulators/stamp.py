"""Leaves the emulators' own suite out where neither they nor the pinned packages have changed.

The file `suite.passed` holds the hash of both at which the whole suite passed last. It is part of
the repository, so that a fresh clone decides as a developer's machine does: where the hash is
another one, or the file is not there, the suite runs, and writes the file when all of it passed.
--all and paths within tests/emulators run it in any case. Registered by tests/conftest.py.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SUITE = HERE / "suite"
STAMP = HERE / "suite.passed"
# What the suite is made of beyond this directory: every pinned package, and helpers of all tests.
BESIDE = ("requirements/dev.txt", "tests/living.py", "tests/needs.py", "pyproject.toml")
_NOT_SOURCE = {"__pycache__", "node_modules", STAMP.name}


def hash_sources(root: Path = ROOT) -> str:
    """SHA-256 of the names and bytes of all files that decide what the suite finds.

    README files and versions of Python are not among them.
    """
    directory = root / HERE.relative_to(ROOT)
    files = [path for path in directory.rglob("*") if _is_source(path, directory)]
    names = [path.relative_to(root).as_posix() for path in files]
    found = hashlib.sha256()
    for name in sorted([*names, *BESIDE]):
        data = (root / name).read_bytes()
        if name == "pyproject.toml":
            data = _extras_of(data)
        found.update(f"{name} {len(data)}\n".encode() + data)
    return found.hexdigest()


def has_passed() -> bool:
    """Returns whether the suite passed with exactly these sources."""
    return STAMP.is_file() and STAMP.read_text("utf-8").split() == [hash_sources()]


def _is_source(path: Path, directory: Path) -> bool:
    parts = path.relative_to(directory).parts
    hidden = any(part.startswith(".") or part in _NOT_SOURCE for part in parts)
    return path.is_file() and not hidden and path.suffix not in (".md", ".pyc")


def _extras_of(data: bytes) -> bytes:
    """The part of pyproject.toml with the ranges of the SDKs."""
    head, _, rest = data.partition(b"[project.optional-dependencies]")
    assert head and rest, "pyproject.toml has optional dependencies"
    return rest.partition(b"\n[")[0]


def _is_named(config: pytest.Config) -> bool:
    """Returns whether the command line asks for the suite or a part of it."""
    paths = [Path(arg.partition("::")[0]).resolve() for arg in config.args]
    return config.getoption("--all") or any(path.is_relative_to(HERE) for path in paths)


class SuiteStamp:
    """A plugin of pytest, which leaves the suite out, reports that, and writes the stamp."""

    def __init__(self, config: pytest.Config) -> None:
        self._left_out = not _is_named(config) and has_passed()
        self._passed: set[str] = set()  # files of the suite

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if self._left_out and collection_path == SUITE else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.add(report.nodeid.partition("::")[0])

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        config = session.config
        if hasattr(config, "workerinput") or exitstatus != 0 or self._is_partial(config):
            return
        files = {path.relative_to(ROOT).as_posix() for path in SUITE.glob("test_*.py")}
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        skipped = [report.nodeid for report in reporter.getreports("skipped")] if reporter else []
        if files <= self._passed and not any(it.partition("::")[0] in files for it in skipped):
            STAMP.write_text(f"{hash_sources()}\n", "utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        covered = [Path(arg).resolve() for arg in terminalreporter.config.args]
        if self._left_out and any(SUITE.is_relative_to(path) for path in covered):
            terminalreporter.write_line(
                "the emulators' own suite was left out: it passed with these emulators and pinned "
                "packages (tests/emulators/suite.passed); `make emulators` runs it"
            )

    @staticmethod
    def _is_partial(config: pytest.Config) -> bool:
        option = config.option
        chosen = option.keyword or option.markexpr or option.deselect or option.collectonly
        return bool(chosen) or any("::" in arg for arg in config.args)
