"""Stages as every screen calls them: by their names."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.controllers.model import Resource, Run, RunState, SavedCheckpoint
from fleetctl.stores.sqlite.store import open_store

SPEC = {"template": {"script": "x"}, "nodes": 3, "checkpoint": {"path": "/ckpt/run"}}


class FixedClock:
    def now_s(self) -> float:
        return 1_800_000_000.0


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TrainingRun `x` whose second stage, `train`, runs or has failed on three nodes."""
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    for name, state in (("failed", RunState.FAILED), ("running", RunState.RUNNING)):
        put(tmp_path, name, state)


def put(home: Path, name: str, state: RunState) -> None:
    failed = state is RunState.FAILED
    status = {
        "phase": "Failed" if failed else "Running", "total": 2, "succeeded": 1, "stage": "",
        "failed": int(failed), "failedIndexes": "1" if failed else "", "observedGeneration": 1,
        "nodes": [{"state": "Running"}] * 3,
    }  # fmt: skip
    store = open_store(home, FixedClock())
    with store.transaction():
        row = Resource(name, "TrainingRun", name, 1, 0, json.dumps(SPEC), "", {}, {}, 5.0)
        version = store.resources.put(row, expected_version=None).version
        store.resources.put_status(name, json.dumps(status), expected_version=version)
        params = json.dumps({"stage": "train"})
        run = Run(f"r-{name}", name, 1, 1, RunState.STARTING, "local", "s", "t", params, "p", 6.0)
        store.runs.begin([run])
        ended_at_s = 8.5 if failed else None
        store.runs.advance(replace(run, state=state, started_at_s=6.0, ended_at_s=ended_at_s))
    store.close()


def shown(*words: str) -> str:
    out, talk = io.StringIO(), io.StringIO()
    run_guarded(list(words), Screen(out, talk))
    return out.getvalue() + talk.getvalue()


def test_describe_calls_a_failed_stage_by_its_name_and_so_does_the_next_command() -> None:
    lines = shown("describe", "tr/failed").splitlines()
    assert "Failed:      stage train" in lines
    assert any(line.startswith("  stage train: Failed after 1 attempt") for line in lines)
    assert "Logs:        fleetctl logs trainingrun/failed --stage train" in lines


def test_a_directory_in_which_no_checkpoint_appears_is_named() -> None:
    assert "Checkpoint:  no complete one found in /ckpt/run" in shown("describe", "tr/running")
    assert shown("get", "checkpoints", "tr/running").splitlines() == [
        "no checkpoint of trainingrun/running was seen yet",
        "hint: it looks for complete ones in /ckpt/run itself",
    ]


def test_checkpoints_that_keep_has_removed_are_counted_and_not_listed(tmp_path: Path) -> None:
    spec = {**SPEC, "checkpoint": {"path": "/ckpt/run", "keep": {"last": 2, "every": 4}}}
    store = open_store(tmp_path, FixedClock())
    with store.transaction():
        row = Resource("k", "TrainingRun", "kept", 1, 0, json.dumps(spec), "", {}, {}, 5.0)
        store.resources.put(row, expected_version=None)
        run = Run("r-k", "k", 1, 1, RunState.STARTING, "local", "s", "t", "{}", "p", 6.0)
        store.runs.begin([run])
        saved = [SavedCheckpoint(step, f"/ckpt/run/{step}", 7.0, 10, 0.1) for step in range(1, 8)]
        store.runs.advance(replace(run, state=RunState.RUNNING, started_at_s=6.0), saved=saved)
    store.close()
    lines = shown("get", "checkpoints", "tr/kept").splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["4", "6", "7"]
    assert lines[-1] == "4 more were removed by `keep`"
    bare = shown("get", "checkpoints", "tr/kept", "--no-headers").splitlines()
    assert [line.split() for line in bare] == [line.split() for line in lines[1:]]


def test_no_stage_is_a_dash_in_a_list() -> None:
    assert shown("get", "tr/failed", "--no-headers").split()[:4] == ["failed", "Failed", "1/2", "-"]


def test_a_node_that_there_is_not_is_told_with_those_there_are() -> None:
    for words in (("exec", "tr/running", "--node", "7", "--", "true"),
                  ("logs", "tr/running", "--node", "7")):  # fmt: skip
        assert shown(*words).splitlines() == [
            "error: stage train of trainingrun/running has no node 7",
            "hint: it has nodes 0 to 2",
        ]
    assert (
        run_guarded(["logs", "tr/running", "--node", "7"], Screen(io.StringIO(), io.StringIO()))
        == 4
    )


def test_a_node_that_has_not_begun_is_no_mistake() -> None:
    assert "has started no node 2; running" in shown("logs", "tr/running", "--node", "2")
