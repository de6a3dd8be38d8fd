"""dspy's own RLM, and the fleet-rlm package, drive interpreters of every provider that runs here.
`make test-frameworks` installs them into environments of their own and names their Pythons in
$FLEETCTL_TEST_DSPY and $FLEETCTL_TEST_FLEET_RLM.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.guest.ship.library import read_library
from tests.interpreters import PLACE_PARAMS, PLACES, Place

SCRIPTS = Path(__file__).parent / "scripts"
BLOCK = Path(__file__).parents[1] / "docs/seeds/daytona_recursive.py"
DSPY, FLEET_RLM = (os.environ[f"FLEETCTL_TEST_{name}"] for name in ("DSPY", "FLEET_RLM"))
HANG_S = 600
PATIENCE = {"FLEETCTL_MODAL_CONNECT_S": "120", "FLEETCTL_DAYTONA_CONNECT_S": "120"}


@pytest.fixture(params=PLACE_PARAMS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with PLACES[request.param](tmp_path) as place:
        yield place
        assert place.sandboxes() == 0


def run(python: str, script: str, place: Place) -> Any:
    env = {**os.environ, **place.variables, **PATIENCE, "FLEETCTL_PROVIDER": place.name}
    env["MLFLOW_TRACKING_URI"] = f"file://{place.variables['FLEETCTL_HOME']}/mlruns"
    done = subprocess.run(
        [python, str(SCRIPTS / script), str(BLOCK)],
        env=env,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_dspys_loop_runs_on_our_interpreters_and_in_their_recursive_queries(place: Place) -> None:
    told = run(DSPY, "dspy_rlm.py", place)
    for answer, (failed, asked, tool, wrong_type, final) in told["driven"]:
        assert (answer, final) == (3004, "FINAL: {'answer': 3004}")
        assert tool == "A B\n"
        assert failed.startswith("[Error] 3000") and "ZeroDivisionError" in failed
        assert asked.replace("[[ ## answer ## ]]", "").split() == ["1", "['\\n2',", "'\\n3']"]
        assert wrong_type.startswith("[Type Error] answer: expected int")
    summaries = ["SUMMARIZE THIS CHUNK", "EXTRACT ERRORS FROM", "IDENTIFY PATTERNS IN"]
    assert told["seed"] == [{"summaries": summaries}, [True] * 3]
    # The deepest query is not told of what it cannot have.
    deepest = 'RLM_QUERY("DEEPEST")'
    assert told["nested"] == [[{"a": f"{deepest}\n\n{deepest}"}, [True, False]]] * 2
    first, last = told["own_model"]
    assert first == "by a sub-agent\n"
    answer, usage = told["spent"]
    assert answer == "Q\n"
    assert usage == [
        {"depth": 1, "calls": 2, "tokens": 84, "usd": 0.0003, "unpriced": 0, "sandboxes": 0}
    ]
    assert "last" in last and "3 calls of the language model are used" in last


def test_a_task_whose_image_has_dspy_asks_its_endpoint_recursively(tmp_path: Path) -> None:
    for name, text in read_library(models=True).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [DSPY, str(SCRIPTS / "dspy_in_task.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["batch"] == [["A", "B"], 4]
    # Two loops, of which the last asks what would be below it as a plain question.
    assert told["nested"] == ["SO\n\nDEEP", 3]
    assert told["spent"][0].startswith("2/2 failed: prompt[0]: ")
    assert told["spent"][1] == 2
    assert told["too_few"] == [
        "0 calls of the language model are used and 2 more are asked for; max_llm_calls allows 1"
        " here",
        0,
    ]
    said, asked = told["tokens"]
    assert "0 tokens are used and" in said and "max_llm_tokens allows 100 here" in said
    assert asked == 0
    assert told["enough"] == ["A", 2]
    said, asked = told["unpriced"]
    assert "its price is unknown" in said and "its Endpoint needs `prices`" in said
    assert asked == 0
    assert told["late"][0] == "rlm_timeout: no answer within the seconds that it gives"
    assert told["left"] == 0
    assert told["models"] == ["tiny"]


def test_fleet_rlms_engine_and_its_child_agents_run_on_our_interpreters(place: Place) -> None:
    told = run(FLEET_RLM, "fleet_rlm_engine.py", place)
    assert told["route"] == "rlm"
    assert told["answer"] == "['FINDINGS OF one', 'FINDINGS OF two']"
    assert told["interpreters"] == 3
