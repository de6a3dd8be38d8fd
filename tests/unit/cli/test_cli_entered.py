"""Whether the task that a command has entered is still the one that runs there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from fleetctl.cli.targets.task import TaskAccess, has_ended
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.stores.sqlite.store import open_store
from fleetctl.views.store_reading import open_reading


@pytest.mark.parametrize("ends", ["task", "attempt", "object", "store"])
def test_a_task_has_ended_with_its_attempt_its_object_or_its_store(
    tmp_path: Path, ends: str
) -> None:
    home = tmp_path / "home"
    store = open_store(home, SystemClock())
    first = Run(
        "run-0", "u", 0, 1, RunState.STARTING, "local", "run-0", "h", "{}", "p", 6.0,
    )  # fmt: skip
    with store.transaction():
        row = Resource("u", "BatchJob", "x", 1, 0, "{}", "", {}, {}, 5.0)
        store.resources.put(row, expected_version=None)
        store.runs.begin([first])
    with open_reading(home) as reading:
        seen = reading.by_uid("u")
        task = None if seen is None else reading.task(seen, 0)
    assert task is not None
    found = TaskAccess(cast(Any, None), cast(Any, None), "task 0 of batchjob/x", "u", task.run)
    assert not has_ended(found, home)
    with store.transaction():
        if ends in ("task", "attempt"):
            ended = replace(first, state=RunState.FAILED, reason="x", ended_at_s=9.0)
            assert store.runs.advance(ended)
        if ends == "attempt":
            store.runs.begin([replace(first, name="run-1", sandbox="run-1", attempt=2)])
        if ends == "object":
            store.resources.delete("u")
    store.close()
    if ends == "store":
        home.rename(tmp_path / "moved")
    assert has_ended(found, home)
