"""The emulators as a package: nothing of fleetctl is in them, each says what it is made from, and
their own suite runs when they or the pinned packages have changed.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.common.program import tree_of
from tests.emulators import stamp

PACKAGES = sorted(it.parent for it in stamp.HERE.glob("*/__init__.py") if it.parent != stamp.SUITE)
HEADINGS = ("## What is emulated", "## From which facts", "## What is not")
OWN = ("tests.emulators", "tests.living", "tests.needs")
CONFTEST = """
from tests.emulators.stamp import SuiteStamp

def pytest_addoption(parser):
    parser.addoption("--all", action="store_true")

def pytest_configure(config):
    config.pluginmanager.register(SuiteStamp(config))
"""
PROJECT = """
[project]
name = "x"
[project.optional-dependencies]
modal = ["modal>=1"]
[tool.pytest.ini_options]
"""
FILES = {
    "pyproject.toml": PROJECT,
    "requirements/dev.txt": "modal==1.6.4\n",
    "tests/__init__.py": "",
    "tests/conftest.py": CONFTEST,
    "tests/living.py": "",
    "tests/needs.py": "",
    "tests/test_product.py": "def test_it(): ...\n",
    "tests/emulators/__init__.py": "",
    "tests/emulators/cloud.py": "ANSWER = 1\n",
    "tests/emulators/suite/test_a.py": "def test_a(): ...\n",
    "tests/emulators/suite/test_b.py": "def test_b(): ...\n",
}
FAILS = "def test_b(): assert False\n"
IS_SKIPPED = "import pytest\ndef test_b(): pytest.skip('no node')\n"
LEFT_OUT = "the emulators' own suite was left out"
BOTH, PRODUCT = "3 passed", "1 passed"


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module)


def test_they_import_nothing_of_what_they_test() -> None:
    found = {
        (path.name, name)
        for path in stamp.HERE.rglob("*.py")
        for name in imports_of(path)
        if name.startswith(("fleetctl", "specs", "controllers"))
        or (name.startswith("tests.") and not name.startswith(OWN))
    }
    assert found == set()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda it: it.name)
def test_each_says_what_it_is_made_from_and_what_it_leaves_out(package: Path) -> None:
    if package.name == "driving":
        return  # helps tests, and emulates nothing
    text = (package / "README.md").read_text("utf-8")
    assert [heading for heading in HEADINGS if f"{heading}\n" not in text] == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copy(stamp.__file__, tmp_path / "tests/emulators/stamp.py")
    return tmp_path


def run(project: Path, *options: str) -> str:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_a_suite_that_passed_is_left_out_until_something_of_it_changes(project: Path) -> None:
    assert BOTH in run(project, "-k", "test_")  # perhaps a part of it
    first = run(project, "tests")
    assert BOTH in first and LEFT_OUT not in first
    second = run(project, "tests")
    assert PRODUCT in second and LEFT_OUT in second
    assert BOTH in run(project, "tests", "--all")
    assert PRODUCT in run(project, "tests/emulators/suite/test_b.py")
    assert LEFT_OUT not in run(project, "tests/test_product.py")
    (project / "tests/emulators/suite/test_b.py").write_text(FAILS)
    assert "1 failed, 2 passed" in run(project, "tests")
    (project / "tests/emulators/suite/test_b.py").write_text(IS_SKIPPED)
    for _ in range(2):
        assert "2 passed, 1 skipped" in run(project, "tests")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tests/emulators/cloud.py", "ANSWER = 2\n"),
        ("tests/emulators/new.py", ""),
        ("tests/emulators/suite/test_b.py", "def test_b(): assert True\n"),
        ("requirements/dev.txt", "modal==1.6.5\n"),
        ("pyproject.toml", PROJECT.replace("modal>=1", "modal>=1.6")),
    ],
)
def test_another_emulator_test_or_package_is_another_suite(
    project: Path, file: str, text: str
) -> None:
    before = stamp.hash_sources(project)
    (project / "tests/emulators/README.md").write_text("What it is.\n")
    (project / "pyproject.toml").write_text(PROJECT + "addopts = '-q'\n")
    assert stamp.hash_sources(project) == before
    (project / file).write_text(text)
    assert stamp.hash_sources(project) != before
