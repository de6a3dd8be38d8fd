"""Programs as people have them today, with the import line changed, print what they should.

The programs are in seeds/. The golden values were taken from the originals' own code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl import DaytonaInterpreter, FinalOutput
from fleetctl.interpreter.asking import rlm
from tests.interpreters import MACHINE_PARAMS, PLACE_PARAMS, PLACES, Place, make_repository

SEEDS = Path(__file__).parent / "seeds"
SOME_REPOSITORY = "https://github.com/your-org/your-repo"
VOLUME = "rlm-volume-dspy"
HANG_S = 300
# Nothing here is about a service that is late, and the machine may be busy.
PATIENCE = {"FLEETCTL_MODAL_CONNECT_S": "120", "FLEETCTL_DAYTONA_CONNECT_S": "120"}

FACTORIALS = (3628800, 39916800, 479001600, 6227020800, 87178291200)
GOLDEN = {
    "tasks": [
        "Task 0: FinalOutput({'total': 499500})",
        "Task 1: FinalOutput({'pi_approx': 3.141592653589793})",
        "Task 2: FinalOutput({'greeting': 'Hello from %s'})",
    ],
    "volume": [f"Chunk {number}: 3 items" for number in range(3)],
    "sweep": ["Best: lr=0.01, batch=64, loss=1.6024"],
    "sequential": [f"Task {number}: {value}" for number, value in enumerate(FACTORIALS)],
}
CHUNKS = ([2, 4, 6], [8, 10, 12], [14, 16, 18])
FOLDER = {"modal": "results", "daytona": "artifacts"}
GREETS = {"modal": "sandbox", "daytona": "Daytona"}


@pytest.fixture(params=PLACE_PARAMS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with PLACES[request.param](tmp_path) as place:
        yield place


def run(program: str, place: Place, url: str) -> list[str]:
    """What the program prints, line by line; parallel parts may end in any order."""
    text = (SEEDS / program).read_text(encoding="utf-8").replace(SOME_REPOSITORY, url)
    fields = {**os.environ, **place.variables, **PATIENCE, "FLEETCTL_PROVIDER": place.name}
    done = subprocess.run(
        [sys.executable, "-c", text], env=fields, capture_output=True, text=True, timeout=HANG_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("place", ["local"], indirect=True)
@pytest.mark.parametrize("manner", ["modal", "daytona"])
@pytest.mark.parametrize("block", sorted(GOLDEN))
def test_a_seed_program_prints_its_golden_lines_and_leaves_no_sandbox(
    manner: str, block: str, place: Place, tmp_path: Path
) -> None:
    assert_golden(manner, block, place, tmp_path)


@pytest.mark.only_all(
    reason="further programs of the seeds where they came from", of={*GOLDEN} - {"volume"}
)
@pytest.mark.parametrize("place", ["modal", "daytona"], indirect=True)
@pytest.mark.parametrize("block", sorted(GOLDEN))
def test_a_seed_program_prints_its_golden_lines_where_it_came_from(
    block: str, place: Place, tmp_path: Path
) -> None:
    assert_golden(place.name, block, place, tmp_path)


@pytest.mark.only_all(reason="a real Slurm of three nodes", of=("slurm",))
@pytest.mark.only_all(reason="further programs of the seeds on machines", of={*GOLDEN} - {"volume"})
@pytest.mark.parametrize("place", MACHINE_PARAMS, indirect=True)
@pytest.mark.parametrize("manner", ["modal", "daytona"])
@pytest.mark.parametrize("block", sorted(GOLDEN))
def test_a_seed_program_prints_its_golden_lines_on_machines(
    manner: str, block: str, place: Place, tmp_path: Path
) -> None:
    assert_golden(manner, block, place, tmp_path)


def assert_golden(manner: str, block: str, place: Place, tmp_path: Path) -> None:
    said = run(f"{manner}_{block}.py", place, place.serve(make_repository(tmp_path)))
    assert said == [line.replace("%s", GREETS[manner]) for line in GOLDEN[block]]
    assert place.sandboxes() == 0
    if block == "volume":
        for number, values in enumerate(CHUNKS):
            text = place.read_volume(VOLUME, f"{FOLDER[manner]}/chunk_{number}.json")
            assert json.loads(text) == values


def test_the_recursive_seed_block_asks_three_queries_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a loop of one step; tests/frameworks runs the block with dspy's."""
    code = (SEEDS / "daytona_recursive.py").read_text(encoding="utf-8")
    for name, value in {**place.variables, **PATIENCE}.items():
        monkeypatch.setenv(name, value)
    together = threading.Barrier(3)  # nobody is answered before all have asked

    def model(prompt: str) -> str:
        together.wait(timeout=60)
        return prompt.split(":")[0].upper()

    def one_step(runner: rlm.CodeRunner, _: object, *, query: str, **__: object) -> str:
        result = runner.executed("SUBMIT(answer=llm_query(query))", {"query": query}).value
        assert isinstance(result, FinalOutput)
        return str(result.answer)

    monkeypatch.setattr(rlm, "answer_query", one_step)
    monkeypatch.setattr(rlm, "check_installed", lambda: None)
    with DaytonaInterpreter(provider=place.name, sub_lm=model) as interpreter:
        result = interpreter.execute(code)
    assert result == FinalOutput(
        {"summaries": ["SUMMARIZE THIS CHUNK", "EXTRACT ERRORS FROM", "IDENTIFY PATTERNS IN"]}
    )
    assert place.sandboxes() == 0
