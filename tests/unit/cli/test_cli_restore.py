"""A backup put back with work under way, with the real controller and provider `local`."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.state_paths import LAST_BACKUP, RESTORED
from fleetctl.daemon.client import spawn
from tests.unit.cli.ending import end

DEADLINE_S = 90.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    made = tmp_path / "home"
    monkeypatch.setenv("FLEETCTL_HOME", str(made))
    monkeypatch.setenv("FLEETCTL_LOCAL_TIER", "process")  # tasks look at files of the test
    yield made
    end(made)


def run(*words: str, code: int = 0) -> str:
    out, talk = io.StringIO(), io.StringIO()
    assert run_guarded(list(words), Screen(out, talk)) == code, talk.getvalue()
    return out.getvalue() + talk.getvalue()


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def begun(folder: Path) -> list[str]:
    """A line for every time that a task's work began."""
    return sorted(path.read_text() for path in folder.glob("begun-*"))


def job(folder: Path) -> str:
    return json.dumps({
        "apiVersion": "fleetctl.dev/v1alpha1", "kind": "BatchJob", "metadata": {"name": "job"},
        "spec": {
            "parallelism": 2, "cache": {"policy": "Never"},
            "tasks": {"items": [{"n": n} for n in range(4)]},
            "template": {"script":
                f"echo begun >> {folder}/begun-$TASK_N\n"
                f"until [ -e {folder}/go-$TASK_N ]; do sleep 0.05; done\n"},
        },
    })  # fmt: skip


def test_work_that_went_on_after_the_backup_is_not_begun_again(home: Path, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(job(tmp_path))
    run("apply", "-f", str(tmp_path / "job.json"))
    until(lambda: len(begun(tmp_path)) == 2)
    assert "1 object" in run("backup", str(tmp_path / "copy"))
    assert json.loads((home / LAST_BACKUP).read_text())["file"] == str(tmp_path / "copy")
    (tmp_path / "go-0").touch()
    until(lambda: len(begun(tmp_path)) == 3)  # the next one has begun: the copy does not know it
    assert "no backup" not in run("restore", str(tmp_path / "copy"), "--yes", code=1)
    pid = spawn.find_holder_pid(home)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: spawn.find_holder_pid(home) is None)
    (tmp_path / "go-1").touch()  # it ends while nobody looks
    run("restore", str(tmp_path / "copy"), code=3)
    assert "is back: 1 object" in run("restore", str(tmp_path / "copy"), "--yes")
    spawn.start_controller(home)
    for number in (2, 3):
        (tmp_path / f"go-{number}").touch()
    run("wait", "job/job", "--for", "succeeded", "--timeout", f"{DEADLINE_S:.0f}s")
    assert begun(tmp_path) == ["begun\n"] * 4
    rows: list[dict[str, Any]] = json.loads(
        run("query", "select idx, attempt, state from attempts order by idx", "-o", "json")
    )
    assert rows == [{"idx": n, "attempt": 1, "state": "Succeeded"} for n in range(4)]
    assert not (home / RESTORED).exists()
