"""`init`: examples with their files, and what an editor needs."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from fleetctl.cli.learn.init import list_examples
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.manifest import load_manifests, read_documents


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def test_the_examples_are_listed_with_a_line_each() -> None:
    code, out, said = fleetctl("init", "--example")
    assert (code, said) == (0, "hint: fleetctl init DIR --example NAME\n")
    assert [line.split()[0] for line in out.splitlines()[1:]] == list_examples()
    assert all(len(line.split()) > 3 for line in out.splitlines()[1:])


@pytest.mark.parametrize("name", list_examples())
def test_an_example_is_written_with_all_that_it_needs(name: str, tmp_path: Path) -> None:
    code, out, _ = fleetctl("init", str(tmp_path / "new"), "--example", name)
    assert code == 0
    manifest = tmp_path / "new" / f"{name}.yaml"
    assert out.splitlines()[0] == f"{manifest} written"
    assert load_manifests(read_documents([str(manifest)]))
    text = manifest.read_text()
    assert "specs/examples" not in text
    text = re.sub(r"^ +git:\n(?: {4}.*\n)*", "", text, flags=re.MULTILINE)  # there, not here
    for path in re.findall(r"^\s*path: ([a-z][\w/-]*)", text, re.MULTILINE):
        assert (tmp_path / "new" / path).is_dir(), path


def test_an_example_that_is_not_there_and_one_that_is_there_already(tmp_path: Path) -> None:
    code, _, said = fleetctl("init", str(tmp_path), "--example", "cartpol")
    assert code == 4 and "did you mean `cartpole`?" in said
    (tmp_path / "cartpole").mkdir()
    (tmp_path / "cartpole" / "sweep.yaml").write_text("mine")
    code, out, said = fleetctl("init", str(tmp_path), "--example", "cartpole")
    assert (code, out) == (3, "") and "is there already" in said
    assert not (tmp_path / "cartpole.yaml").exists()
    assert (tmp_path / "cartpole" / "sweep.yaml").read_text() == "mine"


def test_an_editor_is_told_the_schema_of_a_first_manifest(tmp_path: Path) -> None:
    fleetctl("init", str(tmp_path), "--kind", "sweep")
    first = (tmp_path / "sweep.yaml").read_text().splitlines()[0]
    named = Path(first.removeprefix("# yaml-language-server: $schema="))
    assert not named.is_absolute()
    schema = tmp_path / named
    assert schema.name == "sweep.json" and schema.is_file()
