"""Fields and tables of kinds that run no work: the spend of an Endpoint, and a long Queue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.stores.sqlite.store import SqliteStore, open_store
from fleetctl.views.details import ROWS_MAX, DetailTable, list_details, list_tables
from fleetctl.views.kinds import Target
from fleetctl.views.store_reading import StoreReading, must_find
from tests.golden.cli.cli_world import NOW_S, FixedClock, _put

HOUR_S = 3600.0
WAITERS = 3_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = open_store(tmp_path, FixedClock())
    yield made
    made.close()


def describe(home: Path, kind: str, name: str) -> tuple[dict[str, str], dict[str, DetailTable]]:
    with StoreReading(home) as reading:
        seen = must_find(Target(KINDS[kind], name, DEFAULT_NAMESPACE), reading)
        fields = dict(list_details(seen, reading, NOW_S))
        return fields, {it.title: it for it in list_tables(seen, reading, NOW_S)}


def test_an_endpoint_shows_its_spend_an_hour_by_calls_and_by_containers(
    store: SqliteStore, tmp_path: Path
) -> None:
    with store.transaction():
        warm = {"phase": "Ready", "warm": {"containers": 2, "usdPerSecond": 0.002, "since": NOW_S}}
        _put(store, "Function", "qwen", age_s=HOUR_S, status=warm, spec={"port": 8000})
        servers = [
            {"url": "https://a", "function": "function/qwen", "state": "Ready", "inFlight": 3,
             "slots": 8},
            {"url": "http://10.0.0.7:8000", "state": "Ready", "inFlight": 0, "slots": 4},
        ]  # fmt: skip
        status = {
            "phase": "Ready", "servers": servers, "concurrency": 12, "inFlight": 3, "queue": 1,
            "calls": 7, "tries": 7, "lastMinute": {"requests": 6, "tokens": 1200, "usd": 0.05},
            "cost": {"actual": 1.5},
        }  # fmt: skip
        spec: dict[str, Any] = {"servers": [{"function": "qwen"}, {"url": "http://10.0.0.7:8000"}]}
        _put(store, "Endpoint", "small", age_s=HOUR_S, status=status, spec=spec)
        _put(store, "Endpoint", "new", age_s=HOUR_S, status={}, spec=spec)
    fields, tables = describe(tmp_path, "Endpoint", "small")
    assert fields["Slots"] == "12 at once, 3 taken, 1 request waiting"
    assert fields["Rate"] == "6 requests and 1,200 tokens in the last minute"
    assert fields["Cost"] == "$1.50"
    assert fields["Spend now"] == "$3.00/h for calls, $7.20/h for containers"
    first, second = tables["Servers"].rows
    assert [it.text for it in first.cells] == [
        "https://a", "function/qwen", "Ready", "3", "8", "$7.20",
    ]  # fmt: skip
    assert first.cells[1].target == Target(KINDS["Function"], "qwen", DEFAULT_NAMESPACE)
    assert second.cells[0].text == "http://10.0.0.7:8000"

    _, tables = describe(tmp_path, "Endpoint", "new")  # nobody has looked at its servers yet
    assert [[it.text for it in row.cells] for row in tables["Servers"].rows] == [
        ["-", "function/qwen", "$7.20"], ["http://10.0.0.7:8000", "-", "-"],
    ]  # fmt: skip


def test_a_queue_of_thousands_shows_the_first_and_counts_the_others(
    store: SqliteStore, tmp_path: Path
) -> None:
    asks = [{"provider": "local", "sandboxes": 1, "cpus": 1}]
    with store.transaction():
        spec = {"quotas": [{"resource": "sandboxes", "nominal": 1}]}
        _put(store, "Queue", "one", age_s=HOUR_S, status={"waiting": WAITERS}, spec=spec)
        for number in range(WAITERS):
            came_s = NOW_S + number
            queued = {"queue": "one", "priority": 0, "since": came_s, "waitingSince": came_s}
            status = {"phase": "Pending", "total": 2, "queued": {**queued, "asks": asks}}
            _put(store, "BatchJob", f"j{number}", age_s=60.0, status=status)
    begun_s = time.process_time()
    _, tables = describe(tmp_path, "Queue", "one")
    spent_s = time.process_time() - begun_s
    waiting = tables["Waiting"]
    assert len(waiting.rows) == ROWS_MAX
    assert [row.cells[1].text for row in waiting.rows[:2]] == ["batchjob/j0", "batchjob/j1"]
    assert waiting.note == f"and {WAITERS - ROWS_MAX:,} more"
    assert tables["Admitted"].note == "none"
    assert spent_s < 5.0, f"{spent_s:.2f} s of CPU"
