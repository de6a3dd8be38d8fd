"""What runs on this machine see of the tests. One in a namespace has a /tmp of its own: it sees no
file that a test keeps there, and where this checkout lies there, neither our Python nor our files.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# Of the environment that the tests run in; it has the standard library alone.
PYTHON = os.path.realpath(sys.executable)


def show_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are processes without a namespace, and see all files of this machine."""
    monkeypatch.setenv("FLEETCTL_LOCAL_TIER", "process")


def show_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs see this checkout and its Python, wherever it lies."""
    if Path(sys.prefix).resolve().is_relative_to("/tmp"):
        show_files(monkeypatch)


def program(path: Path) -> list[str]:
    """The words that run a file of the standard library alone, in a namespace too."""
    return [PYTHON, "-c", path.read_text("utf-8")]
