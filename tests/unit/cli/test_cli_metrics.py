"""`get metrics`, and `plot` of several objects: one curve of a stage over its restarts."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Metric, Resource, Run, RunState
from fleetctl.stores.sqlite.store import SqliteStore, open_store

STATUS = {"observedGeneration": 1, "phase": "Running", "total": 2}


@pytest.fixture(autouse=True)
def _stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three trainings `a` was killed after step 12 and goes on from 10, `b` diverged, and `c`
    has reported nothing.
    """
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    store = open_store(tmp_path / "home", SystemClock())
    with store.transaction():
        for name in "abc":
            row = Resource(f"u-{name}", "TrainingRun", name, 1, 0, "{}", "", {}, {}, 5.0)
            kept = store.resources.put(row, expected_version=None)
            status = json.dumps(STATUS)
            store.resources.put_status(row.uid, status, expected_version=kept.version)
        reported(store, "a", 1, RunState.LOST, {11: 4.0, 12: 3.0}, at_s=100.0)
        reported(store, "a", 2, RunState.RUNNING, {11: 2.0, 12: 1.5, 13: 1.25}, at_s=200.0)
        reported(store, "b", 1, RunState.RUNNING, {1: 5.0, 2: inf, 3: nan}, at_s=100.0)
    store.close()


def reported(
    store: SqliteStore,
    name: str,
    attempt: int,
    state: RunState,
    losses: dict[int, float],
    at_s: float,
) -> None:
    run = Run(f"r-{name}-{attempt}", f"u-{name}", 1, attempt, RunState.STARTING, "local",
              f"r-{name}-{attempt}", "t", '{"stage":"train"}', "p", at_s)  # fmt: skip
    store.runs.begin([run])
    found = [Metric(seq, step, "loss", value, at_s + step)
             for seq, (step, value) in enumerate(losses.items())]  # fmt: skip
    ended_at_s = at_s + 50 if state is RunState.LOST else None
    now = replace(run, state=state, started_at_s=at_s, ended_at_s=ended_at_s)
    assert store.runs.advance(now, metrics=found)


def told(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def test_each_metric_is_told_with_its_last_report_over_all_attempts() -> None:
    assert json.loads(told("get", "metrics", "tr/a", "-o", "json")[1]) == [
        {"index": 1, "stage": "train", "metric": "loss", "value": 1.25, "step": 13, "reports": 5,
         "attempt": 2, "at": "1970-01-01T00:03:33Z"}
    ]  # fmt: skip
    header, row = told("get", "metrics", "tr/a", "-o", "wide")[1].splitlines()
    assert header.split() == ["STAGE", "METRIC", "LAST", "STEP", "REPORTS", "REPORTED", "ATTEMPT"]
    assert row.split()[:5] == ["train", "loss", "1.25", "13", "5"]


def test_what_left_the_numbers_is_shown_as_such_and_is_null_in_json() -> None:
    assert told("get", "metrics", "tr/b")[1].splitlines()[1].split()[:3] == ["train", "loss", "NaN"]
    (row,) = json.loads(told("get", "metrics", "tr/b", "-o", "json")[1])
    assert (row["value"], row["step"], row["reports"]) == (None, 3, 3)
    drawn = told("plot", "tr/b", "--metric", "loss")[1]
    assert "2 reports without a finite number, from step 2" in drawn


def test_two_trainings_are_drawn_in_one_picture() -> None:
    code, drawn, _ = told("plot", "tr/a", "tr/b", "--metric", "loss")
    assert code == 0
    assert "loss over step" in drawn
    assert "* a  + b  R restart" in drawn and "restarts: a at step 11" in drawn
    over_time = told("plot", "tr/a", "--metric", "loss", "-x", "time")[1]
    assert "loss over time" in over_time and "last loss 1.25 after 1m53s" in over_time


def test_an_object_without_the_metric_is_named_below_the_picture_of_the_others() -> None:
    drawn = told("plot", "tr/a", "tr/b", "tr/c", "--metric", "loss")[1]
    assert "trainingrun/c has reported no `loss`" in drawn
    assert "reported no" not in told("plot", "tr/a", "tr/b", "--metric", "loss")[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("get", "metrics"), "`get metrics` takes one object"),
        (("get", "metrics", "tr/a", "-w"), "`get metrics` does not take `-w`"),
        (("get", "metrics", "tr/a", "-o", "yaml"), "`get metrics` has no format `yaml`"),
        (("plot", "tr/a", "tr/b", "--kind", "best"), "`--kind best` draws one sweep"),
        (("plot", "tr/a", "tr/b", "--metric", "los"), "have reported no metric `los`"),
        (("get", "metrics,jobs"), "cannot be listed together"),
    ],
)
def test_what_cannot_be_told_says_why(words: tuple[str, ...], why: str) -> None:
    code, _, talk = told(*words)
    assert code in (2, 4)
    assert why in talk
