"""The CLI's view: what it shows, what it costs, and what it never does to the files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from stores_disks import on_a_read_only_disk

from fleetctl.common import state_paths as places
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import LIVE_STATES, Metric, Resource, Run, RunState
from fleetctl.stores.base import EventRow
from fleetctl.stores.queries import LAST_LIVE_STATE, STATES
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.sqlite.store import SqliteStore, open_store


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Iterator[SqliteStore]:
    opened = open_store(home, SystemClock())
    yield opened
    opened.close()


def job(name: str = "chunks", **changes: object) -> Resource:
    made = Resource(f"u-{name}", "BatchJob", name, 1, 0, '{"a":1}', "{}", {}, {}, 5.0)
    return replace(made, **changes)  # type: ignore[arg-type]


def run(index: int, attempt: int, state: RunState, uid: str = "u-chunks") -> Run:
    name = f"fl-{uid}-{index}-{attempt}"
    return Run(name, uid, index, attempt, state, "local", name, "hash", '{"x":1}', "p", 6.0)


def fill(store: SqliteStore) -> None:
    with store.transaction():
        store.resources.put(job(labels={"team": "rlm"}), expected_version=None)
        store.resources.put(job("other", kind="Sweep"), expected_version=None)
        store.runs.begin([run(0, 1, RunState.FAILED), run(0, 2, RunState.SUCCEEDED)])
        store.runs.begin([run(1, 1, RunState.RUNNING), run(2, 1, RunState.FAILED)])
        store.runs.advance(
            run(0, 2, RunState.SUCCEEDED),
            from_states=frozenset({RunState.SUCCEEDED}),
            result='{"n":1}',
            metrics=[Metric(0, 1, "loss", 0.5, 7.0), Metric(1, 2, "loss", float("nan"), 8.0)],
        )
        store.events.record([EventRow("u-chunks", 1.0, "Normal", "Started", "index `0`")])
        store.events.record([EventRow("u-other", 2.0, "Warning", "Waiting", "no room")])


def test_without_a_store_every_answer_is_empty_and_nothing_is_made(home: Path) -> None:
    with Reader(home) as reader:
        assert reader.resources() == []
        assert reader.resource("BatchJob", "chunks") is None
        assert list(reader.runs("u")) == list(reader.tasks("u")) == list(reader.metrics("r")) == []
        assert reader.live_runs() == {}
        assert reader.events() == reader.events("u") == []
        assert reader.run("r") is None
    assert not home.exists()


def test_a_reader_that_waits_sees_the_store_when_it_is_founded(home: Path) -> None:
    with Reader(home) as reader:
        before = reader.data_version()
        opened = open_store(home, SystemClock())
        fill(opened)
        assert [row.name for row in reader.resources()] == ["chunks", "other"]
        assert reader.data_version() != before
        opened.close()


def test_resources_are_listed_without_their_specs(home: Path, store: SqliteStore) -> None:
    fill(store)
    with Reader(home) as reader:
        [row] = reader.resources("BatchJob")
        assert (row.name, row.labels, row.status, row.spec) == (
            "chunks",
            {"team": "rlm"},
            "{}",
            None,
        )
        assert [row.kind for row in reader.resources()] == ["BatchJob", "Sweep"]
        whole = reader.resource("BatchJob", "chunks")
        assert whole is not None and whole.spec == '{"a":1}'


def test_the_living_resource_of_a_name_is_shown_before_one_that_is_being_deleted(
    home: Path, store: SqliteStore
) -> None:
    with store.transaction():
        store.resources.put(job(), expected_version=None)
        store.resources.put(job(deleted_at_s=9.0), expected_version=1)
    with Reader(home) as reader:
        row = reader.resource("BatchJob", "chunks")
        assert row is not None and row.deleted_at_s == 9.0
        with store.transaction():
            store.resources.put(job(uid="second"), expected_version=None)
        row = reader.resource("BatchJob", "chunks")
        assert row is not None and row.uid == "second"


def test_runs_are_filtered_by_state_and_index(home: Path, store: SqliteStore) -> None:
    fill(store)
    with Reader(home) as reader:
        assert [(r.index, r.attempt) for r in reader.runs("u-chunks")] == [
            (0, 1), (0, 2), (1, 1), (2, 1),
        ]  # fmt: skip
        assert [r.index for r in reader.runs("u-chunks", states={"Failed"})] == [0, 2]
        assert [r.attempt for r in reader.runs("u-chunks", index=0)] == [1, 2]
        assert list(reader.runs("u-chunks", states=set())) == []


def test_a_task_is_its_newest_attempt(home: Path, store: SqliteStore) -> None:
    fill(store)
    with Reader(home) as reader:
        tasks = [
            (t.run.index, t.run.state, t.attempts, t.result)
            for t in reader.tasks("u-chunks", results=True)
        ]
        assert tasks == [
            (0, "Succeeded", 2, '{"n":1}'),
            (1, "Running", 1, None),
            (2, "Failed", 1, None),
        ]
        # Index 0 failed once and succeeded then: it is no failed task.
        assert [t.run.index for t in reader.tasks("u-chunks", states=["Failed"])] == [2]
        assert [t.result for t in reader.tasks("u-chunks", index=0)] == [None]


def test_a_run_shows_every_column_that_the_writer_stored(home: Path, store: SqliteStore) -> None:
    stored = replace(
        run(3, 1, RunState.FAILED), sandbox="another", handle="h", started_at_s=7.0, ended_at_s=8.0,
        exit_code=2, reason="ExitCode:2", message="no such file", sandbox_open=True,
    )  # fmt: skip
    with store.transaction():
        store.resources.put(job(), expected_version=None)
        store.runs.begin([stored])
    with Reader(home) as reader:
        row = reader.run(stored.name)
    assert row is not None
    for column, value in row._asdict().items():
        assert value == getattr(stored, column), column


def test_metrics_events_and_live_counts_are_shown(home: Path, store: SqliteStore) -> None:
    fill(store)
    with Reader(home) as reader:
        metrics = list(reader.metrics("fl-u-chunks-0-2"))
        assert [(m.step, m.value) for m in metrics] == [(1, 0.5), (2, None)]
        assert reader.live_runs() == {"u-chunks": 1}
        assert [e.reason for e in reader.events()] == ["Started", "Waiting"]
        assert [e.message for e in reader.events("u-other")] == ["no room"]
        assert [e.reason for e in reader.events(limit=1)] == ["Waiting"]


def test_data_version_moves_with_the_store_and_only_then(home: Path, store: SqliteStore) -> None:
    fill(store)
    with Reader(home) as reader:
        first = reader.data_version()
        assert reader.data_version() == first
        with store.transaction():
            store.resources.put_status("u-chunks", '{"x":1}', expected_version=1)
        second = reader.data_version()
        assert second != first
        with store.transaction():
            store.events.record([EventRow("u-chunks", 9.0, "Normal", "A", "b")])
        assert reader.data_version() != second


def test_reading_after_a_crash_leaves_log_and_database_as_they_are(home: Path) -> None:
    _crash_after_writing(home)
    files = [home / places.STATE_DB, home / f"{places.STATE_DB}-wal"]
    before = [file.read_bytes() for file in files]
    assert before[1]
    with Reader(home) as reader:
        assert [row.name for row in reader.resources()] == ["chunks"]
    assert [file.read_bytes() for file in files] == before


def _crash_after_writing(home: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        "from fleetctl.controllers.model import Resource\n"
        "from fleetctl.common.clock import SystemClock\n"
        "from fleetctl.stores.sqlite.store import open_store\n"
        "store = open_store(Path(sys.argv[1]), SystemClock())\n"
        "with store.transaction():\n"
        "    job = Resource('u', 'BatchJob', 'chunks', 1, 0, '{}', '{}', {}, {}, 5.0)\n"
        "    store.resources.put(job, expected_version=None)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(home)], check=False)


def test_a_spec_of_megabytes_costs_a_list_nothing(home: Path, store: SqliteStore) -> None:
    with store.transaction():
        for n in range(5):
            store.resources.put(job(f"big-{n}", spec="x" * 10_000_000), expected_version=None)
    store.close()
    program = (
        "import sys; from pathlib import Path\n"
        "from fleetctl.stores.read.reader import Reader\n"
        "assert len(Reader(Path(sys.argv[1])).resources()) == 5\n"
        "print(next(l for l in open('/proc/self/io') if l.startswith('rchar')).split()[1])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(home)], check=True, capture_output=True, text=True
    )
    # 50 MB of specs; the process itself reads some MB of Python.
    assert int(ran.stdout) < 10_000_000


def test_reading_imports_no_model_and_nothing_heavy() -> None:
    program = (
        "import json, sys; from pathlib import Path\n"
        "from fleetctl.stores.read.reader import Reader\n"
        "Reader(Path('/nonexistent')).resources()\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    heavy = {
        "dataclasses",
        "asyncio",
        "pydantic",
        "yaml",
        "rich",
        "ctypes",
        "subprocess",
        "logging",
    }
    assert heavy.isdisjoint(json.loads(ran.stdout))
    assert "fleetctl.controllers.model" not in json.loads(ran.stdout)


def test_a_store_on_a_read_only_disk_can_be_read(home: Path, store: SqliteStore) -> None:
    fill(store)
    store.close()
    program = (
        "import sys; from pathlib import Path\n"
        "from fleetctl.stores.read.reader import Reader\n"
        "print([row.name for row in Reader(Path(sys.argv[1])).resources()])\n"
    )
    ran = on_a_read_only_disk(home, [sys.executable, "-c", program, str(home)])
    assert ran.stdout.strip() == "['chunks', 'other']", ran.stderr
    assert not (home / f"{places.STATE_DB}-shm").exists()


def test_the_words_for_states_are_those_of_the_model() -> None:
    assert set(STATES) == {state.value for state in RunState}
    assert {state.value for state in LIVE_STATES} == set(STATES[: LAST_LIVE_STATE + 1])


def test_names_are_those_of_living_ones_that_begin_so(store: SqliteStore, home: Path) -> None:
    with store.transaction():
        for name in ("b", "ab", "a_x", "a%x", "ac"):
            store.resources.put(job(name), expected_version=None)
        store.resources.put(job("a-gone", deleted_at_s=6.0), expected_version=None)
        store.resources.put(job("a-sweep", kind="Sweep"), expected_version=None)
    with Reader(home) as reader:
        assert reader.names("BatchJob", "a", limit=9) == ["a%x", "a_x", "ab", "ac"]
        assert reader.names("BatchJob", "a", limit=2) == ["a%x", "a_x"]
        assert reader.names("BatchJob", "a%", limit=9) == ["a%x"]
        assert reader.names("BatchJob", "", limit=9) == ["a%x", "a_x", "ab", "ac", "b"]


def test_a_home_may_be_called_anything(tmp_path: Path) -> None:
    home = tmp_path / "50%25 of it? #1 ü"
    opened = open_store(home, SystemClock())
    fill(opened)
    opened.close()
    with Reader(home) as reader:
        assert [row.name for row in reader.resources()] == ["chunks", "other"]
    assert [one.name for one in tmp_path.iterdir()] == [home.name]
