"""`fleetctl results --to`: a file for each task that submitted something, and no other."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from tests.golden.cli.cli_world import build


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    return run_guarded(list(words), Screen(out, talk)), out.getvalue(), talk.getvalue()


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    build(tmp_path / "home")


def test_each_result_is_a_file_with_the_index_for_its_name(tmp_path: Path) -> None:
    out = tmp_path / "some" / "out"
    code, said, talk = fleetctl("results", "job/resize", "--to", str(out))
    assert code == 0, talk
    rows = json.loads(fleetctl("results", "job/resize", "-o", "json")[1])
    wanted = {f"{row['index']}.json": row["result"] for row in rows if row["result"] is not None}
    assert wanted and said == f"wrote {len(wanted)} results to {out}\n"
    assert {path.name: json.loads(path.read_text()) for path in out.iterdir()} == wanted

    (out / "other.txt").write_text("kept")
    (out / next(iter(wanted))).write_text("old")
    assert fleetctl("results", "job/resize", "--to", str(out))[0] == 0
    assert json.loads((out / next(iter(wanted))).read_text()) == wanted[next(iter(wanted))]
    assert (out / "other.txt").read_text() == "kept"


def test_a_place_that_cannot_be_is_an_error_and_two_forms_at_once_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert fleetctl("results", "job/resize", "--to", str(tmp_path / "file"))[0] == 1
    assert fleetctl("results", "job/resize", "--to", "out", "-o", "csv")[0] == 2
