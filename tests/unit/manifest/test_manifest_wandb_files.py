"""A W&B sweep file means here what it means at W&B, whose YAML is of another version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.manifest.foreign import convert_text
from fleetctl.manifest.yaml.wandb import resolve_wandb_scalar

MANIFEST = """
apiVersion: fleetctl.dev/v1alpha1
kind: Sweep
metadata: {name: x}
spec: {searchFrom: {file: sweep.yaml}}
"""
BASE = "program: t.py\nmethod: grid\n"


def search(directory: Path, text: str) -> Any:
    (directory / "sweep.yaml").write_text(text)
    (manifest,) = load_manifests([Document("x.yaml", MANIFEST, str(directory))])
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
    assert resolve_wandb_scalar(text) == (
        text if not isinstance(found, bool | int | float | None) else found
    )
    assert type(resolve_wandb_scalar(text)) is type(found) or isinstance(
        resolve_wandb_scalar(text), str
    )


@pytest.mark.parametrize(("text", "value"), [("3e-5", 3e-5), ("1E5", 1e5), ("1.5e3", 1500.0)])
def test_an_exponent_without_a_point_is_a_number_as_at_the_service(text: str, value: float) -> None:
    assert resolve_wandb_scalar(text) == value


def test_values_of_a_sweep_file_are_those_of_wandb_and_of_a_manifest_ours(tmp_path: Path) -> None:
    values = "parameters: {a: {values: [yes, no, 1_000, 010, 0o17, 3e-5, 2020-01-01]}}\n"
    found = search(tmp_path, BASE + values).parameters["a"]["values"]
    assert found == [True, False, 1000, 8, "0o17", 3e-5, "2020-01-01"]
    inline = f"search: {{method: grid, program: t.py, {values.strip()}}}"
    own = MANIFEST.replace("searchFrom: {file: sweep.yaml}", inline)
    (manifest,) = load_manifests([Document("x.yaml", own, str(tmp_path))])
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


def test_aliases_and_merges_stand_for_what_their_anchors_hold(tmp_path: Path) -> None:
    text = BASE + (
        "parameters:\n"
        "  rate: &rate {distribution: q_uniform, min: &low 0.1, max: 0.9, q: 0.2}\n"
        "  decay: *rate\n"
        "  drop: {max: 0.7, <<: *rate}\n"
        "  warm: {<<: [{q: 0.3}, *rate]}\n"
        "  floor: {value: *low}\n"
    )
    found = search(tmp_path, text).parameters
    assert found == yaml.safe_load(text)["parameters"]
    assert found["drop"] == {"distribution": "q_uniform", "min": 0.1, "max": 0.7, "q": 0.2}
    assert (found["warm"]["q"], found["floor"]) == (0.3, {"value": 0.1})


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("{a: {values: *no}}", "no `&no` is before it"),
        ("{a: {values: &x [1, *x]}}", "`*x` is an alias of a value that holds it"),
        ("{a: {<<: 3, values: [1]}}", "`<<` merges mappings alone"),
    ],
)
def test_an_alias_that_stands_for_nothing_is_refused_where_it_is(
    tmp_path: Path, parameters: str, said: str
) -> None:
    with pytest.raises(ManifestErrors, match=re.escape(said)) as caught:
        search(tmp_path, BASE + f"parameters: {parameters}\n")
    assert str(caught.value).startswith("sweep.yaml:3:")


@pytest.mark.parametrize("width", [1, 10])
def test_a_file_that_repeats_itself_without_end_is_no_bomb(tmp_path: Path, width: int) -> None:
    """Wide, or deep: each level is an alias of the one before."""
    levels = ["  l0: &l0 {values: [1]}"]
    for at in range(1, 100):
        below = ", ".join(f"p{it}: *l{at - 1}" for it in range(width))
        levels.append(f"  l{at}: &l{at} {{parameters: {{{below}}}}}")
    with pytest.raises(ManifestErrors, match=r"one too many|nested too deep"):
        search(tmp_path, BASE + "parameters:\n" + "\n".join(levels) + "\n")


def test_convert_reads_a_sweep_file_as_searchfrom_does() -> None:
    text = BASE + "parameters: {a: &a {values: [yes, 1_000, 010, 3e-5]}, b: *a}\n"
    (made,) = convert_text("wandb", text, file="sweep.yaml", name="x").manifests
    values = {"values": [True, 1000, 8, 3e-5]}
    assert made["spec"]["search"]["parameters"] == {"a": values, "b": values}
