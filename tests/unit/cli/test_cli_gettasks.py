"""`get tasks`: what has begun, what is still to come, and what nobody wants any more."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.stores.base import EventRow
from fleetctl.stores.sqlite.store import open_store


class FixedClock:
    def now_s(self) -> float:
        return 1_800_000_000.0


def world(place: Path, kind: str, status: dict[str, Any], begun: list[int]) -> None:
    """One object `x` with a finished run of each index."""
    store = open_store(place, FixedClock())
    with store.transaction():
        row = Resource("u", kind, "x", 1, 0, "{}", "", {}, {}, 5.0)
        stored = store.resources.put(row, expected_version=None)
        said = json.dumps({"observedGeneration": 1, "phase": "Running", **status})
        store.resources.put_status("u", said, expected_version=stored.version)
    for index in begun:
        name = f"r-{index}"
        run = Run(name, "u", index, 1, RunState.STARTING, "local", name, "t", "{}", "p", 6.0)
        done = replace(run, state=RunState.SUCCEEDED, started_at_s=6.0, ended_at_s=8.5)
        with store.transaction():
            store.runs.begin([run])
            store.runs.advance(done)
    store.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def tasks(*words: str) -> list[dict[str, Any]]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(["get", "tasks", *words, "-o", "json"], Screen(out, talk))
    assert code == 0, talk.getvalue()
    found: list[dict[str, Any]] = json.loads(out.getvalue())["items"]
    return found


def states(found: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(it["metadata"]["index"], it["status"]["phase"]) for it in found]


def test_queued_tasks_fill_the_gaps_between_those_that_have_begun(place: Path) -> None:
    world(place, "BatchJob", {"total": 5}, [1, 3])
    assert states(tasks("job/x")) == [(1, "Succeeded"), (3, "Succeeded")]
    assert states(tasks("job/x", "--queued")) == [
        (0, "Queued"),
        (1, "Succeeded"),
        (2, "Queued"),
        (3, "Succeeded"),
        (4, "Queued"),
    ]


def test_of_what_is_over_nothing_is_queued(place: Path) -> None:
    world(place, "BatchJob", {"total": 2, "phase": "Failed"}, [0])
    assert states(tasks("job/x", "--queued")) == [(0, "Succeeded"), (1, "Cancelled")]


def test_trials_to_come_get_the_next_numbers(place: Path) -> None:
    """An edited grid numbers its new points after those that it had."""
    world(place, "Sweep", {"total": 3, "unwantedIndexes": "0-1"}, [0, 1, 3])
    assert [it["metadata"]["index"] for it in tasks("sweep/x", "--queued")] == [0, 1, 3, 4, 5]


def test_a_task_that_is_no_longer_wanted_says_so(place: Path) -> None:
    world(place, "BatchJob", {"total": 2, "unwantedIndexes": "2"}, [0, 1, 2])
    assert [it["status"].get("wanted", True) for it in tasks("job/x")] == [True, True, False]
    left = tasks("job/x", "--field-selector", "wanted=false")
    assert [it["metadata"]["index"] for it in left] == [2]
    out = io.StringIO()
    run_guarded(["get", "tasks", "job/x"], Screen(out, io.StringIO()))
    assert "NoLongerWanted" in out.getvalue().splitlines()[3]


def test_a_task_tells_for_how_long_it_ran_and_can_be_sorted_by_it(place: Path) -> None:
    world(place, "BatchJob", {"total": 2}, [0])
    found = tasks("job/x", "--queued", "--sort-by", "duration")
    assert [it["status"].get("durationSeconds") for it in found] == [None, 2.5]


def test_the_hint_of_a_failed_task_and_of_an_event_is_a_field_and_is_shown(place: Path) -> None:
    world(place, "BatchJob", {"total": 1, "phase": "Failed", "failed": 1, "failedIndexes": "0"}, [])
    said, hint = "ModuleNotFoundError: No module named 'numpy'", "add `image: {pip: [numpy]}`"
    store = open_store(place, FixedClock())
    with store.transaction():
        run = Run("r-0", "u", 0, 1, RunState.STARTING, "local", "r-0", "t", "{}", "p", 6.0)
        store.runs.begin([run])
        failed = replace(run, state=RunState.FAILED, ended_at_s=8.5, message=said, hint=hint)
        store.runs.advance(failed)
        store.events.record([EventRow("u", 9.0, "Warning", "Refused", "no disk", hint="free some")])
    store.close()
    (task,) = tasks("job/x")
    assert (task["status"]["message"], task["status"]["hint"]) == (said, hint)
    out = io.StringIO()
    assert run_guarded(["describe", "job/x"], Screen(out, io.StringIO())) == 0
    assert f"{said}; hint: {hint}" in out.getvalue()
    assert "no disk; hint: free some" in out.getvalue()
    out = io.StringIO()
    asked = ["query", "SELECT message, hint FROM attempts", "-o", "json"]
    assert run_guarded(asked, Screen(out, io.StringIO())) == 0
    assert json.loads(out.getvalue()) == [{"message": said, "hint": hint}]
