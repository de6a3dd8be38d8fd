"""A bare W&B sweep file on the command line: the same object as a Sweep around it."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen

SWEEP = """\
program: train.py
method: grid
metric: {name: loss, goal: minimize}
parameters:
  lr: {values: [1e-4, 0.1]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    (place / "train.py").write_text("pass\n")
    (place / "sweep.yaml").write_text(SWEEP)
    return place


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def around(spec: str) -> str:
    return (
        "kind: Sweep\nname: sweep\nsearchFrom: sweep.yaml\n"
        f"template: {{source: {{path: .}}{spec.partition('|')[0]}}}\n{spec.partition('|')[2]}"
    )


@pytest.mark.parametrize(
    ("flags", "spec"),
    [
        ([], ""),
        (["--gpu", "A100", "--parallelism", "4"], ", resources: {gpu: A100}|parallelism: 4\n"),
        (["--on", "local", "--retries", "2"], "|placement: local\nbackoffLimitPerIndex: 2\n"),
        (["--env", "A=1", "--pip", "six"], ', env: {A: "1"}, image: {pip: [six]}|'),
        (["--trials", "1", "--budget", "5"], "|trials: 1\nbudget: {maxCost: 5}\n"),
        (["--set", "template.timeoutSeconds=60"], ", timeoutSeconds: 60|"),
    ],
)
def test_it_is_the_sweep_that_a_manifest_around_it_describes(
    project: Path, flags: list[str], spec: str
) -> None:
    code, bare, _ = fleetctl("diff", "-f", "sweep.yaml", "--allow-missing", *flags)
    assert code == 1
    (project / "around.yaml").write_text(around(spec))
    assert bare == fleetctl("diff", "-f", "around.yaml", "--allow-missing")[1]


def test_it_is_read_from_stdin_as_from_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Piped:
        buffer = io.BytesIO(SWEEP.encode())

    monkeypatch.setattr(sys, "stdin", Piped)
    piped = fleetctl("diff", "-f", "-", "--parallelism", "4")
    assert piped == fleetctl("diff", "-f", "sweep.yaml", "--parallelism", "4")
    assert piped[0] == 1


def test_its_name_is_that_in_the_file_or_of_the_flag(project: Path) -> None:
    (project / "sweep.yaml").write_text(SWEEP + "name: My LR\n")
    assert fleetctl("validate", "-f", "sweep.yaml")[1] == "sweep/my-lr valid\n"
    assert fleetctl("validate", "-f", "sweep.yaml", "--name", "x")[1] == "sweep/x valid\n"


def test_the_program_is_looked_for_here_and_beside_the_file(project: Path) -> None:
    (project / "conf").mkdir()
    (project / "sweep.yaml").rename(project / "conf" / "sweep.yaml")
    said = fleetctl("diff", "-f", "conf/sweep.yaml")[1]
    assert "+    source:\n+      path: ..\n" in said
    (project / "train.py").rename(project / "conf" / "train.py")
    assert "+    source:\n+      path: .\n" in fleetctl("diff", "-f", "conf/sweep.yaml")[1]


def test_a_mistake_in_it_stands_at_its_line(project: Path) -> None:
    (project / "sweep.yaml").write_text(SWEEP.replace("grid", "gird"))
    code, _, said = fleetctl("validate", "-f", "sweep.yaml")
    assert code == 2 and said.startswith("error: sweep.yaml:2:9: method is `gird`")
    (project / "sweep.yaml").write_text(SWEEP + "  yes: {values: [1]}\n")
    assert fleetctl("validate", "-f", "sweep.yaml")[2].startswith("error: sweep.yaml:6:3: ")


def test_a_mistake_in_a_flag_names_the_flag(project: Path) -> None:
    (project / "job.yaml").write_text("kind: BatchJob\nname: x\nparallelism: -1\ncommand: [a]\n")
    code, _, said = fleetctl("validate", "-f", "sweep.yaml", "-f", "job.yaml", "--gpu", "a:b")
    assert code == 2
    assert "error: --gpu is `a:b`" in said
    assert "job.yaml:3:14: parallelism is `-1`" in said


def test_flags_without_such_a_file_are_refused(project: Path) -> None:
    (project / "job.yaml").write_text("kind: BatchJob\nname: x\ncommand: [a]\n")
    code, _, said = fleetctl("validate", "-f", "job.yaml", "--gpu", "A100")
    assert code == 2
    assert "--gpu goes with a bare W&B sweep file, and there is none here" in said
    assert "--set template.resources.gpu=A100" in said


def test_in_a_directory_it_makes_no_object_and_a_hint_says_how(project: Path) -> None:
    (project / "job.yaml").write_text("kind: BatchJob\nname: x\ncommand: [a]\n")
    code, out, said = fleetctl("validate", "-f", ".")
    assert (code, out) == (0, "batchjob/x valid\n")
    assert "hint: a W&B sweep runs where it is named itself: `-f sweep.yaml`" in said
    (project / "job.yaml").write_text(around(""))
    code, out, said = fleetctl("validate", "-f", ".")
    assert (code, out) == (0, "sweep/sweep valid\n")
    assert "named itself" not in said


def test_beside_a_manifest_that_names_it_both_readings_are_told(project: Path) -> None:
    (project / "lr.yaml").write_text(around(""))
    code, _, said = fleetctl("validate", "-f", "lr.yaml", "-f", "sweep.yaml")
    assert code == 2
    assert "`sweep.yaml` could be a Sweep of its own, or the search of the one in lr.yaml" in said


def test_its_object_is_deleted_by_the_file_without_the_flags(project: Path) -> None:
    (project / "sweep.yaml").write_text(SWEEP.replace("grid", "random"))
    assert fleetctl("validate", "-f", "sweep.yaml", "--trials", "2")[0] == 0
    code, _, said = fleetctl("delete", "-f", "sweep.yaml")
    assert code == 4 and "there is no Sweep `sweep`" in said
