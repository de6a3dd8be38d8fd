"""`wait -f` means the objects that the files name, as `apply -f` and `delete -f` do."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.cli.main import guarded
from fleetctl.cli.output.render import Screen
from fleetctl.daemon.reach import spawn
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
    spawn.start(made)
    yield made
    end(made)


def run(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = guarded(list(words), Screen(out, talk))
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
