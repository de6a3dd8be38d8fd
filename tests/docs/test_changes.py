"""Changing a live spec, with a real controller: consent, prune, saved plans, watched files."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.fleet import BIN, HANG_S, Fleet

SLEEP = "import time; time.sleep(600)"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("changes") / "home")
    yield made
    made.close()


def job(name: str, work: str = "pass", **spec: Any) -> str:
    desired = {"template": {"python": work}, **spec}
    about = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": "BatchJob", "metadata": {"name": name}}
    return json.dumps({**about, "spec": desired}) + "\n"


def many(*documents: str) -> str:
    return "---\n".join(documents)


def waits_for(holds: Callable[[], bool]) -> None:
    """Against a hang alone; every turn asks again."""
    until_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def running(status: dict[str, Any]) -> int:
    return int(status.get("active", 0) - status.get("starting", 0))


def names(fleet: Fleet) -> list[str]:
    return fleet.ok("get", "jobs", "-o", "name").split()


def test_running_work_is_replaced_only_with_consent(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(job("long", SLEEP, completions=2, parallelism=2))
    fleet.ok("apply", "-f", str(path))
    waits_for(lambda: running(fleet.json("get", "job/long")["status"]) == 2)
    before = fleet.ok("get", "attempts", "job/long", "-o", "name")
    path.write_text(job("long", SLEEP + "  # other", completions=2, parallelism=2))
    refused = fleet.run("apply", "-f", str(path))
    assert refused.code == 3
    assert "2 running tasks would be replaced" in refused.talk
    assert "--yes" in refused.talk and "--rollout=FinishRunning" in refused.talk
    assert fleet.ok("get", "attempts", "job/long", "-o", "name") == before
    kept = fleet.ok("apply", "-f", str(path), "--rollout=FinishRunning", "--dry-run=server")
    assert "2 running on" in kept and "(server dry run)" in kept
    assert "2 replaced" in fleet.ok("apply", "-f", str(path), "--yes")
    waits_for(lambda: len(fleet.ok("get", "attempts", "job/long", "-o", "name").split()) == 4)
    fleet.ok("delete", "job/long")


def test_a_plan_is_applied_as_shown_or_refused(fleet: Fleet, tmp_path: Path) -> None:
    path, plan = tmp_path / "a.yaml", str(tmp_path / "a.plan")
    path.write_text(job("planned", suspend=True))
    made = fleet.run("plan", "-f", str(path), "--out", plan, "--detailed-exitcode")
    assert made.code == 2
    assert Path(plan).stat().st_mode & 0o077 == 0
    assert "batchjob/planned created" in fleet.ok("apply", plan)
    again = fleet.run("apply", "--plan", plan)
    assert (again.code, "batchjob/planned changed since" in again.talk) == (5, True)
    fleet.ok("plan", "-f", str(path), "--out", plan)
    path.write_text(job("planned", suspend=True, parallelism=3))
    moved = fleet.run("apply", plan)
    assert (moved.code, "has changed" in moved.talk) == (5, True)
    fleet.ok("delete", "job/planned")


def test_a_set_loses_what_its_files_lost_and_no_more_than_the_guard_lets(
    fleet: Fleet, tmp_path: Path
) -> None:
    for name in ("p", "q", "r"):
        (tmp_path / f"{name}.yaml").write_text(job(name, suspend=True))
    fleet.ok("apply", "-f", "-", stdin=job("stranger", suspend=True))
    applied = ("apply", "-f", str(tmp_path), "--applyset", "night", "--prune")
    fleet.ok(*applied)
    (tmp_path / "q.yaml").write_text("kind: [")
    assert fleet.run(*applied).code == 2
    (tmp_path / "q.yaml").unlink()
    assert "batchjob/q pruned" in fleet.ok(*applied)
    (tmp_path / "p.yaml").unlink()
    assert "batchjob/p pruned" in fleet.ok(*applied)
    for name in ("s", "t", "u"):
        (tmp_path / f"{name}.yaml").write_text(job(name, suspend=True))
    fleet.ok(*applied)
    for name in ("s", "t", "u"):
        (tmp_path / f"{name}.yaml").unlink()
    refused = fleet.run(*applied)
    assert (refused.code, "--max-prune 3" in refused.talk) == (3, True)
    fleet.ok(*applied, "--max-prune", "80%")
    waits_for(lambda: set(names(fleet)) == {"batchjob/stranger", "batchjob/r"})
    fleet.ok("delete", "job/stranger", "job/r")


def test_data_goes_only_with_consent(fleet: Fleet) -> None:
    desired = {"deletionPolicy": "Delete"}
    about = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": "Volume", "metadata": {"name": "dear"}}
    fleet.ok("apply", "-f", "-", stdin=json.dumps({**about, "spec": desired}))
    refused = fleet.run("delete", "volume/dear")
    assert (refused.code, "--yes" in refused.talk) == (3, True)
    assert "volume/dear" in fleet.ok("get", "volumes", "-o", "name")
    assert fleet.ok("delete", "volume/dear", "--yes") == "volume/dear deleted\n"


class Watching:
    """`apply --watch` as a process of its own; what it said so far."""

    def __init__(self, fleet: Fleet, *words: str) -> None:
        self.process = subprocess.Popen(
            [str(BIN / "fleetctl"), "apply", "--watch", *words],
            env=fleet.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.lines = self.process.stdout

    def until(self, part: str) -> str:
        for line in self.lines:
            if part in line:
                return line
        raise AssertionError(f"it ended without `{part}`")


@contextmanager
def watching(fleet: Fleet, *words: str) -> Iterator[Watching]:
    made = Watching(fleet, *words)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def test_a_saved_file_is_applied_again_and_a_broken_one_keeps_the_old_state(
    fleet: Fleet, tmp_path: Path
) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(many(job("w", suspend=True), job("w-two", suspend=True)))
    with watching(fleet, "-f", str(path)) as watch:
        watch.until("watching")
        path.write_text(many(job("w", suspend=True, parallelism=3), job("w-two", suspend=True)))
        assert watch.until("configured").startswith("batchjob/w configured  parallelism unset -> 3")
        # As vim and most others save: a new file takes the name of the old one.
        beside = tmp_path / ".w.yaml.swp"
        beside.write_text(job("w", suspend=True, parallelism=4))
        beside.rename(path)
        assert "parallelism 3 -> 4" in watch.until("configured")
        path.write_text("kind: [")
        watch.until("error: ")
        assert watch.until("old state") == "nothing was applied; the old state stays\n"
        path.unlink()
        watch.until("there is no file")
        path.write_text(job("w", suspend=True, parallelism=5))
        assert "parallelism 4 -> 5" in watch.until("configured")
        # Its document is gone since the second save; without --prune it stays.
        assert "batchjob/w-two" in names(fleet)
        watch.process.send_signal(signal.SIGINT)
        watch.until("detached; batchjob/w, batchjob/w-two go on")
        assert watch.process.wait() == 130
    fleet.ok("delete", "job/w", "job/w-two")


def test_files_of_values_and_what_an_overlay_is_made_of_are_watched(
    fleet: Fleet, tmp_path: Path
) -> None:
    head = "apiVersion: fleetctl.dev/v1alpha1\n"
    declared = f"{head}kind: Variables\nvariables:\n  width: {{type: integer}}\n---\n"
    base, values = tmp_path / "base" / "job.yaml", tmp_path / "values" / "prod.yaml"
    path = tmp_path / "prod" / "overlay.yaml"
    for one in (base, values, path):
        one.parent.mkdir()
    refers = job("v", suspend=True, parallelism="${{ width }}")
    base.write_text(declared + refers)
    values.write_text("width: many\n")
    path.write_text(f"{head}kind: Overlay\nbase: ../base\nlabels: {{env: prod}}\n")
    with watching(fleet, "-f", str(path), "--values", str(values)) as watch:
        assert "prod.yaml:1:8: width is `many`" in watch.until("error: ")
        values.write_text("width: 2\n")
        watch.until("batchjob/v created")
        values.write_text("width: 3\n")
        assert "parallelism 2 -> 3" in watch.until("configured")
        base.write_text(declared + refers.replace("${{ width }}", "${{ wdith }}"))
        assert "no variable `wdith` is declared" in watch.until("error: ")
        base.write_text(
            declared + job("v", suspend=True, parallelism="${{ width }}", maxFailedIndexes=1)
        )
        assert "maxFailedIndexes" in watch.until("configured")
    fleet.ok("delete", "-f", str(path), "--set", "width=1")


def test_a_watched_directory_prunes_a_removed_file_only_when_told(
    fleet: Fleet, tmp_path: Path
) -> None:
    for name in ("x", "y"):
        (tmp_path / f"{name}.yaml").write_text(job(name, suspend=True))
    with watching(fleet, "-f", str(tmp_path), "--applyset", "w", "--prune") as watch:
        watch.until("watching")
        (tmp_path / "z.yaml").write_text(job("z", suspend=True))
        watch.until("batchjob/z created")
        (tmp_path / "y.yaml").unlink()
        watch.until("batchjob/y pruned")
    fleet.ok("delete", "job/x", "job/z")
