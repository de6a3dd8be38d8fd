"""`wait -f` means the objects that the files name, as `apply -f` and `delete -f` do; and what its
exit code says.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource
from fleetctl.daemon.client import spawn
from fleetctl.stores.sqlite.store import open_store
from tests.unit.cli.ending import end

JOB = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {{name: {name}}}
spec: {{completions: 1, suspend: {suspend}, template: {{script: "true"}}}}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    made = tmp_path / "home"
    monkeypatch.setenv("FLEETCTL_HOME", str(made))
    spawn.start_controller(made)
    yield made
    end(made)


def run(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


@pytest.mark.usefixtures("home")
def test_wait_f_waits_for_what_the_files_name_and_for_nothing_else(tmp_path: Path) -> None:
    ends, stands = tmp_path / "ends.yaml", tmp_path / "stands.yaml"
    ends.write_text(JOB.format(name="ends", suspend="false"))
    stands.write_text(JOB.format(name="stands", suspend="true"))
    assert run("apply", "-f", str(ends), "-f", str(stands))[0] == 0
    code, out, talk = run("wait", "-f", str(ends), "--timeout", "400s")
    assert code == 0 and "batchjob/ends" in out and "stands" not in out, talk
    code, _, talk = run("wait", "-f", str(stands), "--timeout", "0.1s")
    assert code == 124 and "batchjob/stands" in talk
    code, _, talk = run("wait", "-f", str(ends), "-f", str(stands), "--timeout", "0.1s")
    assert code == 124 and "batchjob/stands" in talk and "batchjob/ends" not in talk


@pytest.mark.parametrize(
    ("phase", "goal", "code"),
    [
        ("Succeeded", "succeeded", 0),
        ("Failed", "finished", 0),
        ("Failed", "succeeded", 1),
        ("Succeeded", "failed", 1),
    ],
)
def test_a_goal_that_can_no_longer_be_met_is_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, goal: str, code: int
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    status = json.dumps({"observedGeneration": 1, "phase": phase})
    store = open_store(tmp_path, SystemClock())
    with store.transaction():
        row = Resource("u", "BatchJob", "a", 1, 0, "{}", status, {}, {}, 1.0)
        store.resources.put(row, expected_version=None)
    store.close()
    assert run("wait", "job/a", f"--for={goal}")[0] == code
