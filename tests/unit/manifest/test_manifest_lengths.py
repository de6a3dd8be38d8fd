"""Texts that are too long for a program's argument, and names that are one variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.controllers.depends.results import check_results
from fleetctl.controllers.trials.winner import MissingInput
from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.specs.blocks.depends import FromResults

HEAD = "apiVersion: fleetctl.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n"
LONG = "x" * (128 * 1024)
FITS = "x" * (128 * 1024 - 1)


def problems(kind: str, spec: str, directory: str = "/") -> list[str]:
    try:
        load_manifests([Document("x.yaml", HEAD.format(kind=kind, spec=spec), directory)])
    except ManifestErrors as error:
        return [f"{it} {it.hint}" for it in error.problems]
    return []


@pytest.mark.parametrize(
    ("kind", "spec", "where"),
    [
        ("BatchJob", "{template: {script: TEXT}}", "spec.template.script"),
        ("BatchJob", "{template: {command: [echo, TEXT]}}", "spec.template.command[1]"),
        (
            "BatchJob",
            "{template: {script: x, services: [{name: a, script: TEXT}]}}",
            "spec.template.services[0].script",
        ),
        (
            "TrainingRun",
            "{template: {script: x}, stages: [{name: a, script: TEXT}]}",
            "spec.stages[0].script",
        ),
    ],
)
def test_a_text_that_no_program_can_be_begun_with_is_refused(
    kind: str, spec: str, where: str
) -> None:
    [found] = problems(kind, spec.replace("TEXT", LONG))
    assert f"{where} has 131,072 bytes, and " in found and "file of the source" in found
    assert problems(kind, spec.replace("TEXT", FITS)) == []


def test_a_long_variable_is_refused() -> None:
    [found] = problems("BatchJob", f"{{template: {{script: x, env: {{A: {FITS}}}}}}}")
    assert "spec.template.env.A has 131,073 bytes, and a variable takes 131,071" in found


@pytest.mark.parametrize(
    ("command", "refused"),
    [("", True), ("command: [x, '${args_json_file}'], ", False), ("command: [x], ", False)],
)
def test_a_long_value_of_a_search_is_refused_where_it_becomes_an_argument(
    command: str, refused: bool
) -> None:
    values = f"parameters: {{text: {{values: [a, {LONG}]}}}}"
    found = problems("Sweep", f"{{search: {{program: a.py, {command}method: grid, {values}}}}}")
    assert [it.count("spec.search.parameters.text.values[1] has") for it in found] == [1] * refused


def test_columns_of_a_file_that_are_one_variable_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a-b,a_b\n1,2\n")
    spec = "{template: {script: x}, tasks: {fromFile: rows.csv}}"
    [found] = problems("BatchJob", spec, str(tmp_path))
    assert "is the variable `TASK_A_B`, and so is `a-b`" in found


def test_fields_of_a_result_that_are_one_variable_are_no_parameters() -> None:
    given = FromResults.model_validate({"job": "a"})
    found = check_results(given, "batchjob/a", [(3, '{"a-b": 1, "a_b": 2}')])
    assert isinstance(found, MissingInput) and found.for_good
    assert "task 3 of batchjob/a has `a-b` and `a_b`, which are one variable" in found.message
