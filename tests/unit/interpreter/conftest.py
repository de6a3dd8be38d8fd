"""Interpreters of both manners on every provider that runs here, shut down when a test ends."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl import DaytonaInterpreter, Interpreter
from fleetctl.interpreter.interpreter import BaseInterpreter
from fleetctl.stores import interpreters
from tests.interpreters import PLACE_PARAMS, PLACES, Place

Make = Callable[..., Any]
HERE = Path(__file__).parent
# A program does the same everywhere: all is asked of `local` and of one cloud. Of the other
# providers, those that show the seam of their sessions; a real Slurm takes seconds for each.
ON_ALL = ("test_golden.py", "test_lifecycle.py", "test_run_sessions.py")
ON_TWO = pytest.mark.only_all(reason="interpreters on the other providers", of=("modal", "ssh"))
OF_SLURM = pytest.mark.only_all(reason="a real Slurm of three nodes", of=("slurm",))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.name not in ON_ALL:
            item.add_marker(ON_TWO)
        if item.path.parent == HERE:
            item.add_marker(OF_SLURM)


@pytest.fixture
def _records(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A program keeps its one home's records open to its end. Each test here has a home of its own,
    and hundreds of them leave a process no descriptor.
    """
    opened: dict[Any, sqlite3.Connection] = {}
    programs: dict[Path, tuple[str, int]] = {}
    monkeypatch.setattr(interpreters, "_open_files", opened)
    monkeypatch.setattr(interpreters, "_programs", programs)
    yield
    for connection in opened.values():
        connection.close()
    for _, handle in programs.values():
        os.close(handle)


@pytest.fixture(params=PLACE_PARAMS)
def place(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    _records: None,
) -> Iterator[Place]:
    with PLACES[request.param](tmp_path) as place:
        for name, value in place.variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("FLEETCTL_PROVIDER", raising=False)
        for sort in ("MODAL", "DAYTONA"):
            # Nothing here is about a service that is late, and the machine may be busy.
            monkeypatch.setenv(f"FLEETCTL_{sort}_CONNECT_S", "120")
        if place.name == "modal":
            monkeypatch.setattr("fleetctl.providers.modal.runs.modal_driver.ENDING_S", 60.0)
        yield place
        assert place.sandboxes() == 0


@pytest.fixture
def make(place: Place) -> Iterator[Make]:
    """Make an interpreter in the manner of Modal's; `kind=` for another one."""
    made: list[BaseInterpreter] = []

    def make(kind: type[BaseInterpreter] = Interpreter, **options: Any) -> BaseInterpreter:
        made.append(kind(provider=place.name, **options))  # type: ignore[call-arg]
        return made[-1]

    yield make
    for interpreter in made:
        interpreter.shutdown()


@pytest.fixture
def modal(make: Make) -> Interpreter:
    return make()


@pytest.fixture
def daytona(make: Make) -> DaytonaInterpreter:
    return make(DaytonaInterpreter)
