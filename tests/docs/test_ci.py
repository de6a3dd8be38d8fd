"""What people copy into their CI does what its page says: a workflow's steps and the script, run by
a shell as a runner does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
import yaml

from tests.docs.fleet import EXAMPLES, Fleet

CI = EXAMPLES / "ci"
GRID = EXAMPLES / "sweep-grid.yaml"
TEXT = GRID.read_text("utf-8")
KEPT = {"plan.md", "results.csv", "best.txt"}
BEST = "batch_size=64 lr=0.01"


@pytest.fixture
def runner(empty: Fleet, tmp_path: Path) -> Iterator[Fleet]:
    """It is new, and its steps begin in a directory of their own."""
    before = dict(empty.env)
    empty.env["GITHUB_STEP_SUMMARY"] = str(tmp_path / "summary.md")
    yield empty
    empty.env.clear()
    empty.env.update(before)


def step(fleet: Fleet, place: Path, text: str) -> int:
    return fleet.shell(f"cd {quote(str(place))} && set -e\n{text}").code


def test_the_steps_of_the_workflow_plan_run_tell_and_leave_nothing(
    runner: Fleet, tmp_path: Path
) -> None:
    workflow: dict[Any, Any] = yaml.safe_load((CI / "github-actions.yml").read_text("utf-8"))
    assert set(workflow[True]) == {"pull_request", "push", "workflow_dispatch"}  # `on`
    steps = {it["name"]: it for it in workflow["jobs"]["sweep"]["steps"] if "name" in it}
    assert [*steps] == ["Install", "Plan", "Run", "Results", "End"]
    runner.env |= workflow["env"] | {"MANIFEST": str(GRID), "SWEEP": "sweep/grid"}
    del steps["Install"]
    codes = {name: step(runner, tmp_path, it["run"]) for name, it in steps.items()}
    assert codes == {"Plan": 0, "Run": 0, "Results": 0, "End": 0}
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert "| sweep/grid | create | 4 new |" in summary and BEST in summary
    assert len((tmp_path / "results.csv").read_text("utf-8").splitlines()) == 5
    assert runner.json("status")["pid"] is None
    assert runner.ok("get", "all", "-o", "name") == ""
    # On a pull request nothing runs; whatever has run is ended, however it went.
    assert "pull_request" in steps["Run"]["if"]
    assert steps["End"]["if"] == steps["Results"]["if"]
    assert steps["End"]["if"].startswith("always() && steps.run.")


@pytest.mark.parametrize(
    ("manifest", "code", "left"),
    [
        (TEXT, 0, KEPT),
        (TEXT.replace("random.seed(42)", "raise SystemExit(3)"), 1, KEPT),
        (TEXT.replace("kind: Sweep", "kind: Swoop"), 2, {"plan.md"}),
    ],
    ids=["succeeds", "fails", "wrong"],
)
def test_the_script_ends_as_the_sweep_does_and_leaves_nothing(
    runner: Fleet, tmp_path: Path, manifest: str, code: int, left: set[str]
) -> None:
    place, out = tmp_path / "lr.yaml", tmp_path / "out"
    place.write_text(manifest)
    out.mkdir()
    answer = runner.shell(f"sh {CI / 'sweep.sh'} {place} sweep/grid 5 {out}")
    assert answer.code == code, answer
    assert {it.name for it in out.iterdir()} == left
    assert runner.ok("get", "all", "-o", "name") == ""
    if code == 0:
        assert BEST in (out / "best.txt").read_text("utf-8")
    assert ("has no value of loss yet" in answer.talk) == (code == 1)
