"""`--set` and `--values` on the command line: which verbs take them, and what a field still is."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from fleetctl.cli.apply.overrides import with_fields
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.manifest import Document, load_manifests
from fleetctl.specs.kinds.registry import dump_spec
from tests.docs.fleet import EXAMPLES
from tests.docs.screens import ROOT

JOB = """apiVersion: fleetctl.dev/v1alpha1
kind: Variables
variables:
  width: {type: integer, default: 2}
---
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: x}
spec:
  parallelism: ${{ width }}
  template: {script: "echo $${{ HOME }}"}
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    place = tmp_path / "files"
    place.mkdir()
    (place / "x.yaml").write_text(JOB)
    monkeypatch.chdir(place)
    return place


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def rendered(*words: str) -> dict[str, object]:
    code, out, said = fleetctl("render", *words)
    assert (code, said) == (0, "")
    spec: dict[str, object] = yaml.safe_load(out)["spec"]
    return spec


def test_a_file_of_values_beside_the_manifests_is_not_one_of_them(files: Path) -> None:
    (files / "prod.yaml").write_text("width: 5\n")
    code, out, said = fleetctl("validate", "-f", ".", "--values", "prod.yaml")
    assert (code, out, said) == (0, "batchjob/x valid\n", "")
    assert rendered("-f", ".", "--values", "prod.yaml")["parallelism"] == 5
    assert rendered("-f", ".", "--values", "prod.yaml", "--set", "width=6")["parallelism"] == 6


def test_a_name_of_a_variable_is_one_and_spec_before_it_makes_a_field_of_it(files: Path) -> None:
    text = JOB.replace("width:", "suspend:").replace("width }}", "suspend }}")
    (files / "x.yaml").write_text(text)
    assert rendered("-f", ".", "--set", "suspend=9")["parallelism"] == 9
    spec = rendered("-f", ".", "--set", "spec.suspend=true", "--set", "suspend=9")
    assert (spec["suspend"], spec["parallelism"]) == (True, 9)
    code, _, said = fleetctl("render", "-f", ".", "--set", "suspnd=9")
    assert (code, "did you mean `suspend`?" in said) == (2, True)


def test_a_changed_field_reaches_what_an_overlay_is_made_of(files: Path) -> None:
    head = "apiVersion: fleetctl.dev/v1alpha1\nkind: Overlay\nbase: ../x.yaml\n"
    (files / "prod").mkdir()
    (files / "prod" / "overlay.yaml").write_text(head + "variables: {width: 3}\n")
    spec = rendered("-f", "prod", "--set", "template.resources.cpu=2")
    assert spec["parallelism"] == 3
    assert spec["template"] == {"script": "echo ${{ HOME }}", "resources": {"cpu": 2}}


@pytest.mark.parametrize(("value", "text"), [("200", "200"), ('"1e3"', "1e3"), ("on", "on")])
@pytest.mark.usefixtures("files")
def test_a_variable_of_the_program_is_a_text_whatever_it_looks_like(value: str, text: str) -> None:
    spec = rendered("-f", ".", "--set", f"template.env.N={value}")
    assert spec["template"]["env"] == {"N": text}


def test_what_is_rendered_is_the_same_when_it_is_applied(files: Path) -> None:
    (files / "y.yaml").write_text(fleetctl("render", "-f", "x.yaml")[1])
    plans = [
        json.loads(fleetctl("plan", "-f", name, "-o", "json")[1]) for name in ("x.yaml", "y.yaml")
    ]
    assert plans[0]["objects"] == plans[1]["objects"]
    assert plans[0]["objects"] != []


def test_a_saved_plan_keeps_the_values_it_was_made_with_and_their_file(files: Path) -> None:
    from fleetctl.cli.apply.plans.plan_file import load_plan
    from fleetctl.common.errors import Conflict
    from fleetctl.manifest import load_manifests as manifests

    (files / "prod.yaml").write_text("width: 5\n")
    words = ("--values", "prod.yaml", "--out", "p.plan")
    assert fleetctl("plan", "-f", "x.yaml", *words)[0] == 0
    (found,) = manifests(load_plan("p.plan").documents)
    assert found.spec.model_dump()["parallelism"] == 5
    assert fleetctl("plan", "-f", "x.yaml", "--set", "width=7", "--out", "q.plan")[0] == 0
    (found,) = manifests(load_plan("q.plan").documents)
    assert found.spec.model_dump()["parallelism"] == 7
    (files / "prod.yaml").write_text("width: 6\n")
    with pytest.raises(Conflict, match=r"`prod.yaml` has changed"):
        load_plan("p.plan")
    (files / "prod.yaml").unlink()
    (files / "prod.yaml").mkdir()
    with pytest.raises(Conflict, match=r"`prod.yaml` cannot be read any more"):
        load_plan("p.plan")
    code, _, said = fleetctl("apply", "q.plan", "--values", "prod.yaml")
    assert (code, "a saved plan is applied as it was made" in said) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("apply", "--dry-run"), ("plan",), ("diff",), ("validate",), ("render",),
        ("delete",), ("wait",),
    ],
)  # fmt: skip
def test_every_verb_that_takes_files_tells_of_a_value_that_does_not_fit(
    files: Path, words: tuple[str, ...]
) -> None:
    (files / "prod.yaml").write_text("\nwidth: many\n")
    code, _, said = fleetctl(*words, "-f", "x.yaml", "--values", "prod.yaml")
    assert (code, said) == (2, "error: prod.yaml:2:8: width is `many`; it must be a whole number\n")
    code, _, said = fleetctl(*words, "-f", "x.yaml", "--set", "width")
    assert (code, "is not" in said) == (2, True)


def test_the_page_shows_the_example_files_as_they_are() -> None:
    page = (ROOT / "docs/how-to/one-file-for-many-environments.md").read_text()
    for name in ("base/greet.yaml", "prod/overlay.yaml"):
        assert (EXAMPLES / "environments" / name).read_text() in page


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("200", "200"),
        ("true", "true"),
        ("0o17", "0o17"),
        ('"200"', "200"),
        ("", ""),
        ("a=b", "a=b"),
    ],
)
def test_a_variable_of_the_process_is_the_text_that_was_typed(given: str, value: str) -> None:
    text = (
        "apiVersion: fleetctl.dev/v1alpha1\nkind: BatchJob\nmetadata: {name: x}\n"
        "spec: {template: {script: x, env: {A: b}}}\n"
    )
    documents = with_fields([Document("x.yaml", text, "/")], [f"template.env.STEPS={given}"])
    (manifest,) = load_manifests(documents)
    assert json.loads(dump_spec(manifest.spec))["template"]["env"] == {"A": "b", "STEPS": value}
