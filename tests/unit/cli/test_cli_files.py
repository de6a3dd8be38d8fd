"""The manifests that a command line names: directories, files of others, nothing at all."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource
from fleetctl.stores.sqlite.store import open_store

VOLUME = "apiVersion: fleetctl.dev/v1alpha1\nkind: Volume\nmetadata: {name: NAME}\nspec: {}\n"
LABEL = {"fleetctl.dev/applyset": "nightly"}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    place = tmp_path / "files"
    place.mkdir()
    return place


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def test_files_of_other_tools_are_told_and_left_out(files: Path) -> None:
    (files / "package.json").write_text('{"name": "web"}')
    (files / "a.yaml").write_text(VOLUME.replace("NAME", "a"))
    code, out, said = fleetctl("validate", "-f", str(files))
    assert (code, out) == (0, "volume/a valid\n")
    assert said == "hint: left out, for nothing in it is `kind: ...`: package.json\n"


def test_directories_below_need_a_flag_which_the_error_names(files: Path) -> None:
    (files / "below").mkdir()
    (files / "below" / "a.yaml").write_text(VOLUME.replace("NAME", "a"))
    code, _, said = fleetctl("validate", "-f", str(files))
    assert code == 2 and "hint: -R also reads the directories below" in said
    assert fleetctl("validate", "-R", "-f", str(files))[:2] == (0, "volume/a valid\n")


@pytest.mark.parametrize("verb", ["validate", "diff", "plan"])
def test_a_program_that_the_source_lacks_is_warned_of(files: Path, verb: str) -> None:
    (files / "train.py").write_text("pass")
    job = "{command: [python, trian.py], source: {path: .}}, tasks: {completions: 1}"
    (files / "job.yaml").write_text(
        "apiVersion: fleetctl.dev/v1alpha1\nkind: BatchJob\nmetadata: {name: job}\n"
        f"spec: {{template: {job}}}\n"
    )
    _, _, said = fleetctl(verb, "-f", str(files / "job.yaml"))
    assert "`trian.py` is not among the files of source.path; did you mean `train.py`?" in said


def test_the_last_object_of_a_set_goes_with_an_empty_directory(files: Path) -> None:
    store = open_store(files.parent / "home", SystemClock())
    with store.transaction():
        row = Resource("u", "Volume", "old", 1, 0, "{}", "", LABEL, {}, 5.0)
        store.resources.put(row, expected_version=None)
    store.close()
    prune = ("diff", "-f", str(files), "--prune", "--applyset", "nightly")
    code, out, _ = fleetctl(*prune)
    assert code == 1 and "-labels:" in out
    code, _, said = fleetctl("diff", "-f", str(files))
    assert code == 2 and "holds no .yaml" in said


def test_an_address_that_does_not_answer_is_told_with_its_reason(files: Path) -> None:
    code, _, said = fleetctl("validate", "-f", "http://127.0.0.1:9/a.yaml")
    assert code == 2 and "the server cannot be reached" in said
    code, _, said = fleetctl("apply", "--watch", "-f", "https://example.com/a.yaml")
    assert code == 2 and "an address cannot be watched" in said
