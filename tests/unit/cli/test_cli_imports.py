"""Start-up time is a feature: what a command loads, asked in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.controllers.model import Resource
from fleetctl.stores.sqlite.store import open_store
from tests.cli_controller import controller

HEAVY = {
    "pydantic", "yaml", "rich", "asyncio", "uvloop", "dataclasses", "inspect", "subprocess",
    "importlib.metadata",
    "fleetctl.engine", "fleetctl.providers.local.local_provider", "fleetctl.manifest.loader",
    "fleetctl.stores.sqlite.store", "fleetctl.controllers.model", "fleetctl.specs.kinds.batchjob",
}  # fmt: skip
PROGRAM = """
import sys
from fleetctl.cli.main import main
code = main(sys.argv[1:])
print("loaded:", *sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""


class FixedClock:
    def now_s(self) -> float:
        return 1_800_000_000.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("imports") / "home"
    store = open_store(place, FixedClock())
    with store.transaction():
        row = Resource("u", "BatchJob", "x", 1, 0, "{}", "", {}, {}, 5.0)
        store.resources.put(row, expected_version=None)
        volume = Resource("v", "Volume", "data", 1, 0, "{}", "", {}, {}, 5.0)
        stored = store.resources.put(volume, expected_version=None)
        ready = '{"phase":"Ready","observedGeneration":1}'
        store.resources.put_status("v", ready, expected_version=stored.version)
    store.close()
    return place


def loaded(home: Path, *words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, "FLEETCTL_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rpartition("loaded:")[2].split())


@pytest.mark.parametrize(
    "command",
    ["--help", "get --help", "get jobs", "get all -o wide", "get job/x -o json", "get tasks job/x",
     "get jobs --field-selector status=Pending --sort-by name",
     "get jobs -o jsonpath={.items[*].metadata.name}", "get jobs -o csv",
     "get jobs -o custom-columns=N:.metadata.name",
     "get volumes", "describe job/x", "logs job/x", "logs job/x --build", "results job/x -o json",
     "events", "wait job/none --for=delete", "status", "version", "down",
     "explain sweep --recursive", "schema --kind Sweep", "api-resources -o wide",
     "completion bash", "__complete get job/", "__complete wait job/x --for s"],
)  # fmt: skip
def test_reading_loads_nothing_heavy(home: Path, command: str) -> None:
    assert loaded(home, *command.split()) & HEAVY == set()


def test_help_does_not_even_load_the_store_reader(home: Path) -> None:
    assert loaded(home, "--help") & {"sqlite3", "argparse", "json", "socket"} == set()


def test_applying_loads_neither_models_nor_the_store(home: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "a.yaml"
    manifest.write_text("kind: BatchJob\n")
    with controller(home, lambda _: b'{"ok":true,"results":[]}\n'):
        assert loaded(home, "apply", "-f", str(manifest)) & (HEAVY | {"sqlite3"}) == set()


def test_yaml_output_loads_yaml_and_nothing_else_that_is_heavy(home: Path) -> None:
    assert loaded(home, "get", "job/x", "-o", "yaml") & HEAVY <= {"yaml"}
