"""A W&B sweep file means here what it means at W&B, whose YAML is of another version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.manifest import Document, ManifestErrors, load
from fleetctl.manifest.yaml.wandb import resolve

MANIFEST = """
apiVersion: fleetctl.dev/v1alpha1
kind: Sweep
metadata: {name: x}
spec: {searchFrom: {file: sweep.yaml}}
"""
BASE = "program: t.py\nmethod: grid\n"


def search(directory: Path, text: str) -> Any:
    (directory / "sweep.yaml").write_text(text)
    (manifest,) = load([Document("x.yaml", MANIFEST, str(directory))])
    return manifest.spec.search


@pytest.mark.parametrize(
    "text",
    [
        "yes", "No", "on", "OFF", "y", "true", "~", "null", "1_000", "1_000.5", "1:30", "1:30.5",
        "010", "08", "0o17", "0x1F", "0b101", "+4", "-.5", "1.5e+3", "2020-01-01", "abc",
    ],
)  # fmt: skip
def test_a_plain_scalar_is_what_pyyaml_makes_of_it(text: str) -> None:
    found = yaml.safe_load(f"[{text}]")[0]
    assert resolve(text) == (text if not isinstance(found, bool | int | float | None) else found)
    assert type(resolve(text)) is type(found) or isinstance(resolve(text), str)


@pytest.mark.parametrize(("text", "value"), [("3e-5", 3e-5), ("1E5", 1e5), ("1.5e3", 1500.0)])
def test_an_exponent_without_a_point_is_a_number_as_at_the_service(text: str, value: float) -> None:
    assert resolve(text) == value


def test_values_of_a_sweep_file_are_those_of_wandb_and_of_a_manifest_ours(tmp_path: Path) -> None:
    values = "parameters: {a: {values: [yes, no, 1_000, 010, 0o17, 3e-5, 2020-01-01]}}\n"
    found = search(tmp_path, BASE + values).parameters["a"]["values"]
    assert found == [True, False, 1000, 8, "0o17", 3e-5, "2020-01-01"]
    inline = f"search: {{method: grid, program: t.py, {values.strip()}}}"
    own = MANIFEST.replace("searchFrom: {file: sweep.yaml}", inline)
    (manifest,) = load([Document("x.yaml", own, str(tmp_path))])
    ours = manifest.spec.search.parameters["a"]["values"]  # type: ignore[attr-defined]
    assert ours == ["yes", "no", "1_000", 10, 15, 3e-5, "2020-01-01"]


def test_a_tag_of_a_scalar_is_obeyed_and_any_other_is_refused(tmp_path: Path) -> None:
    found = search(tmp_path, BASE + "parameters: {a: {values: [!!float 3, !!str 3, !!int '4']}}\n")
    assert [repr(it) for it in found.parameters["a"]["values"]] == ["3.0", "'3'", "4"]
    with pytest.raises(ManifestErrors, match="is a tag"):
        search(tmp_path, BASE + "parameters: {a: {value: !!python/none x}}\n")


def test_a_whole_cap_may_have_a_point_and_a_word_of_the_command_may_be_a_number(
    tmp_path: Path,
) -> None:
    text = BASE + "run_cap: 3.0\ncommand: [python, t.py, --epochs, 3, 0.5, true]\n"
    found = search(tmp_path, text + "parameters: {a: {values: [1]}}\n")
    assert found.run_cap == 3
    assert found.command == ("python", "t.py", "--epochs", "3", "0.5", "True")
    with pytest.raises(ManifestErrors, match="run_cap"):
        search(tmp_path, BASE + "run_cap: 3.5\nparameters: {a: {values: [1]}}\n")
