"""What `fleetctl init` writes runs on this machine as it is, through the real command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.cli.learn.init import FIRST
from fleetctl.views.kinds import kind_of
from tests.docs.fleet import Fleet

# The work in each first manifest, and the number of its results.
WORK = {
    "batchjob": {"batchjob/first-job": 3},
    "sweep": {"sweep/first-sweep": 8},
    "trainingrun": {"trainingrun/first-run": 2},
    "schedule": {},  # at three in the night
    "queue": {"batchjob/nightly": 3, "batchjob/paper": 1},
    "function": {"batchjob/embed": 240},
    "budget": {"batchjob/thumbnails": 4},
}


@pytest.mark.parametrize("kind", FIRST)
def test_a_first_manifest_is_valid_and_runs_at_once(
    fleet: Fleet, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "new" / f"{kind}.yaml"
    assert fleet.ok("init", str(place.parent), "--kind", kind) == f"{place} written\n"
    fleet.ok("apply", "-f", str(place), "--wait")
    assert {key: len(fleet.results(key)) for key in WORK[kind]} == WORK[kind]
    assert kind_of(kind).name in place.read_text()


def test_the_first_results_are_those_that_the_comments_promise(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.ok("init", str(tmp_path))
    fleet.ok("apply", "-f", str(tmp_path / "batchjob.yaml"), "--wait")
    counted = [row["result"]["letters"] for row in fleet.results("job/first-job")]
    assert counted == [5, 10, 15]
    assert "counting glass" in fleet.ok("logs", "job/first-job", "--index", "1")


def test_a_file_that_is_there_is_never_written_over(fleet: Fleet, tmp_path: Path) -> None:
    mine = tmp_path / "batchjob.yaml"
    mine.write_text("mine\n")
    said = fleet.run("init", str(tmp_path))
    assert (said.code, said.out) == (3, "") and "is there already" in said.talk
    assert mine.read_text() == "mine\n"
    assert fleet.run("init", str(mine)).code == 2
    assert fleet.run("init", str(tmp_path), "--kind", "job").code == 2
