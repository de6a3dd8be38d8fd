"""Screens of queues: how much is used, who waits where, why, and about how long."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Run, RunState
from fleetctl.stores.sqlite.store import SqliteStore, open_store
from tests.golden.cli.cli_world import NOW_S, FixedClock, _put

HOUR_S = 3600.0
ASKS = [{"provider": "local", "sandboxes": 1, "cpus": 8, "gpus": [["A100", 8]]}]


def waits(priority: int, since_s: float) -> dict[str, Any]:
    full = "queue/gpu: 16 of 16 gpu/A100 are in use, and the next run takes 8"
    return {
        "phase": "Pending", "reason": "QueueFull", "message": full, "total": 4,
        "queued": {
            "queue": "gpu", "priority": priority, "since": since_s, "waitingSince": since_s,
            "asks": ASKS,
        },
    }  # fmt: skip


def ran(store: SqliteStore, uid: str, index: int, seconds: float) -> None:
    name = f"fl-{index}"
    begun = Run(
        name, uid, index, 1, RunState.STARTING, "local", name, "t", "{}", "p", NOW_S - 9 * HOUR_S,
        queued='{"queue":"gpu","sandboxes":1,"cpus":8,"gpus":[["A100",8]]}',
    )  # fmt: skip
    store.runs.begin([begun])
    ended = {"state": RunState.SUCCEEDED, "started_at_s": NOW_S, "ended_at_s": NOW_S + seconds}
    store.runs.advance(Run(**{**{it: getattr(begun, it) for it in begun.__slots__}, **ended}))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    store = open_store(tmp_path / "home", FixedClock())
    with store.transaction():
        quotas = [{"resource": "gpu/A100", "nominal": 12, "borrowingLimit": 4}]
        stands = {
            "phase": "Ready", "reason": "Ready", "message": "", "running": 2, "waiting": 3,
            "quotas": [{"resource": "gpu/A100", "used": 16, "nominal": 12, "borrowed": 4}],
            "shares": {"default": [16]},
        }  # fmt: skip
        spec = {"quotas": quotas, "cohort": "lab"}
        _put(store, "Queue", "gpu", age_s=HOUR_S, status=stands, spec=spec)
        runs = {
            "phase": "Running",
            "active": 2,
            "gpu": "A100:8",
            "where": {"local": 2},
            "startTime": NOW_S - HOUR_S,
            "queued": {"queue": "gpu", "priority": 5, "since": 1.0},
        }
        uid = _put(store, "BatchJob", "runs", age_s=HOUR_S, status=runs)
        for index, seconds in enumerate((1700.0, 1800.0, 1900.0)):
            ran(store, uid, index, seconds)
        for name, priority, space in (("a", 0, "default"), ("b", 0, "vision"), ("c", 9, "default")):
            status = waits(priority, NOW_S - ord(name))
            _put(store, "BatchJob", name, age_s=60.0, status=status, namespace=space)
    store.close()
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(SystemClock, "now_s", lambda _self: NOW_S)
    return tmp_path / "home"


def shown(*words: str) -> str:
    out, talk = io.StringIO(), io.StringIO()
    screen = Screen(out, talk, out_is_terminal=False, talk_is_terminal=False)
    assert run_guarded(list(words), screen) == 0, talk.getvalue()
    return out.getvalue()


def test_a_list_of_queues_tells_what_is_used_and_how_many_wait(home: Path) -> None:
    assert shown("get", "queues") == (
        "NAME  STATUS  USED            BORROWED    RUNNING  WAITING  COHORT  AGE\n"
        "gpu   Ready   gpu/A100 16/12  gpu/A100 4  2        3        lab     60m\n"
    )


def test_a_waiting_job_tells_its_place_in_line_and_when_it_may_start(home: Path) -> None:
    lines = shown("describe", "job/a").splitlines()
    # 4 runs of c and 4 of b before it, of half an hour each, two at once.
    assert "Queue:       gpu, position 3 of 3, its first run in about 2h" in lines
    why = "QueueFull: queue/gpu: 16 of 16 gpu/A100 are in use, and the next run takes 8"
    assert f"Why:         {why}" in lines
    first = shown("describe", "job/c")
    assert "gpu, priority 9, position 1 of 3, its first run in about 15m" in first
    assert "Queue:       gpu, priority 5\n" in shown("describe", "job/runs")


def test_a_queue_tells_who_waits_in_which_order(home: Path) -> None:
    told = shown("describe", "queue/gpu")
    assert "gpu/A100:    16 of 12, 4 of it borrowed\n" in told
    admitted, waiting = told.split("Admitted:\n")[1].split("Waiting:\n")
    assert [re.split(r"  +", line.strip()) for line in admitted.splitlines()] == [
        ["OBJECT", "STATUS", "PRIORITY", "RUNS", "EACH ASKS", "SINCE", "WHERE"],
        ["batchjob/runs", "Running", "5", "2", "A100:8", "60m", "local 2"],
    ]
    full = "QueueFull: queue/gpu: 16 of 16 gpu/A100 are in use, and the next run takes 8"
    asks = ["4", "gpu/A100 8", "gpu/A100 32"]
    assert [re.split(r"  +", line.strip()) for line in waiting.splitlines()] == [
        [
            "#",
            "OBJECT",
            "PRIORITY",
            "RUNS LEFT",
            "EACH ASKS",
            "IN ALL",
            "SINCE",
            "STARTS IN",
            "WHY",
        ],
        ["1", "batchjob/c", "9", *asks, "99s", "about 15m", full],
        ["2", "batchjob/b -n vision", "0", *asks, "98s", "about 75m", full],
        ["3", "batchjob/a", "0", *asks, "97s", "about 2h", full],
    ]
