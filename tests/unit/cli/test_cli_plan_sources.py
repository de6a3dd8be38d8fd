"""What `plan` and `validate` say of sources and packages before anything is stored, and files that
verbs write beside a program.
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.tracking.written_files import WrittenFiles
from tests.unit.providers.test_pip_index import Index

JOB = """\
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {{name: job}}
spec: {{tasks: {{completions: 1}}, template: {{{more}, script: sh run.sh}}}}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    made = tmp_path / "project"
    made.mkdir()
    (made / "run.sh").write_text("echo 1")
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    made = Index(tmp_path / "index")
    yield made
    made.close()


def said(*words: str) -> tuple[int, str]:
    """(exit code, what is written to both streams)."""
    out, err = io.StringIO(), io.StringIO()
    code = run_guarded([*words], Screen(out, err))
    return code, out.getvalue() + err.getvalue()


def test_plan_v_lists_what_is_no_part_of_the_program(here: Path) -> None:
    (here / "job.yaml").write_text(JOB.format(more="source: {path: .}"))
    assert "not compared" not in said("plan", "-f", "job.yaml")[1]
    code, text = said("plan", "-v", "-f", "job.yaml")
    assert code == 0 and text.count("not compared: job.yaml;") == 1


@pytest.mark.parametrize("verb", ["validate", "plan"])
def test_links_that_lead_out_are_named(here: Path, verb: str) -> None:
    (here / "data").symlink_to("/nowhere/else")
    (here / "job.yaml").write_text(JOB.format(more="source: {path: .}"))
    code, text = said(verb, "-f", "job.yaml")
    assert code == 0 and "leads out of it" in text and "data" in text


@pytest.mark.parametrize(("package", "code"), [("fleetctl-greeting", 0), ("torhc==1.0", 2)])
def test_plan_resolve_asks_for_the_packages(
    here: Path, index: Index, package: str, code: int
) -> None:
    image = f'image: {{pip: ["{package}"], pipIndex: {{url: "{index.url}"}}}}'
    (here / "job.yaml").write_text(JOB.format(more=image))
    found, text = said("plan", "--resolve", "-f", "job.yaml")
    assert found == code
    assert ("image.pip cannot be installed" in text and "torhc" in text) == bool(code)


def test_what_a_shell_makes_of_a_report_is_remembered(here: Path, tmp_path: Path) -> None:
    (here / "job.yaml").write_text(JOB.format(more="source: {path: .}"))
    argv = [sys.executable, "-m", "fleetctl", "plan", "-f", "job.yaml"]
    with (here / "comment.md").open("w") as file:
        subprocess.run(argv, stdout=file, check=True)
    known = WrittenFiles(tmp_path / "home").below(str(here))
    assert [*known] == (["comment.md"] if sys.platform == "linux" else [])
    assert "comment.md" in said("plan", "-v", "-f", "job.yaml")[1]
