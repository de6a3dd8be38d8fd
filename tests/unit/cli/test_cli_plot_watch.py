"""`plot -w` on a real terminal: a picture in place of the one before, until the sweep is over."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.stores.sqlite.store import SqliteStore, open_store
from tests.unit.cli.terminals import Terminal

METRIC = {"name": "loss", "goal": "minimize"}


def stands(store: SqliteStore, phase: str, trials: int) -> None:
    status = {"phase": phase, "observedGeneration": 1, "total": 3, "succeeded": trials,
              "active": 0, "failed": 0, "method": "grid", "metric": METRIC}  # fmt: skip
    row = store.resources.get("Sweep", "x")
    assert row is not None
    with store.transaction():
        store.resources.put_status("u", json.dumps(status), expected_version=row.version)


def trial(store: SqliteStore, index: int, loss: float) -> None:
    now_s = SystemClock().now_s()
    run = Run(f"r{index}", "u", index, 1, RunState.STARTING, "local", f"r{index}", "t",
              json.dumps({"lr": 0.1 / (index + 1)}), f"p{index}", now_s)  # fmt: skip
    ended = replace(run, state=RunState.SUCCEEDED, started_at_s=now_s, ended_at_s=now_s + 1)
    with store.transaction():
        store.runs.begin([run])
        assert store.runs.advance(ended, result=json.dumps({"loss": loss}))


def test_each_trial_redraws_the_picture_and_the_end_leaves_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    store = open_store(home, SystemClock())
    with store.transaction():
        row = Resource("u", "Sweep", "x", 1, 0, "{}", "", {}, {}, SystemClock().now_s())
        store.resources.put(row, expected_version=None)
    trial(store, 0, 3.0)
    stands(store, "Running", 1)
    environ = {**os.environ, "FLEETCTL_HOME": str(home), "TERM": "xterm", "LANG": "C.UTF-8"}
    argv = [sys.executable, "-m", "fleetctl.cli.main", "plot", "sweep/x", "-w", "--kind", "best"]
    with Terminal(argv, environ, tmp_path) as terminal:
        terminal.shows("best loss 3 (trial 0)")
        trial(store, 1, 2.0)
        stands(store, "Running", 2)
        second = terminal.shows("best loss 2 (trial 1)")
        assert "\x1b[1A" in second and "best so far" in second
        trial(store, 2, 1.0)
        stands(store, "Succeeded", 3)
        code, last = terminal.ends()
    store.close()
    assert code == 0
    assert "best loss 1 (trial 2)" in last
    assert "\x1b[?25h" in last  # the cursor is there again


def test_without_a_terminal_it_is_refused(tmp_path: Path) -> None:
    import io

    from fleetctl.cli.main import run_guarded
    from fleetctl.cli.output.screen import Screen

    talk = io.StringIO()
    assert run_guarded(["plot", "sweep/x", "-w"], Screen(io.StringIO(), talk)) == 2
    assert "redraws on a terminal" in talk.getvalue()
