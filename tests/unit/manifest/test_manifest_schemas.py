from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fleetctl.manifest.document.short import expand_document, shorten_manifest
from fleetctl.manifest.schemas import DIRECTORY, DOCUMENTS, path_of, schema_of, text_of
from fleetctl.manifest.yaml.reader import read_yaml
from fleetctl.specs.kinds.registry import KINDS

ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = sorted(
    path
    for folder in ("specs/examples", "fleetctl/cli/learn/starters")
    for path in (ROOT / folder).rglob("*.yaml")
)


@pytest.mark.parametrize("kind", list(DOCUMENTS))
def test_the_schema_of_a_kind_is_up_to_date(kind: str) -> None:
    written = path_of(kind).read_text(encoding="utf-8")
    assert written == text_of(kind), "run `python -m fleetctl.manifest.schemas`"


def test_there_is_a_schema_for_each_kind_and_no_other() -> None:
    assert {it.name for it in DIRECTORY.iterdir()} == {path_of(kind).name for kind in DOCUMENTS}


@pytest.mark.parametrize("kind", list(DOCUMENTS))
def test_every_reference_inside_a_schema_leads_somewhere(kind: str) -> None:
    schema = schema_of(kind)
    references = set(_references(schema))
    assert references or not schema["$defs"]
    assert references == {f"#/$defs/{name}" for name in schema["$defs"]}


@pytest.mark.parametrize("kind", list(DOCUMENTS))
def test_every_field_of_a_schema_says_what_it_is(kind: str) -> None:
    schema = schema_of(kind)
    silent = [
        f"{name}.{field}"
        for name, definition in schema["$defs"].items()
        for field, shape in _properties(definition).items()
        if not shape.get("description")
    ]
    assert silent == []
    assert "title" not in json.dumps(schema["$defs"])


def test_short_forms_and_search_files_are_in_the_schema() -> None:
    definitions = schema_of("Sweep")["$defs"]
    for name in ("Gpu", "Image"):
        assert definitions[name]["anyOf"][0]["type"] == "string"
    assert {"search", "searchFrom"} <= set(definitions["SweepSpec"]["properties"])
    assert "run_cap" in definitions["Search"]["properties"]
    env = definitions["Template"]["properties"]["env"]["anyOf"]
    assert [it["type"] for it in env] == ["object", "array"]


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [found for it in schema for found in _references(it)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [found for it in schema.values() for found in _references(it)]


def _properties(definition: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in definition:
        definition = definition["anyOf"][1]
    found: dict[str, Any] = definition.get("properties", {})
    return found


def in_both_forms() -> list[tuple[str, dict[str, Any]]]:
    """All examples and starters, each in the full form, in the short one, and as it is written."""
    found = []
    for path in MANIFESTS:
        for root in read_yaml(str(path), path.read_text(encoding="utf-8")).roots:
            value = root.value
            if not isinstance(value, dict) or value.get("kind") not in KINDS or "${{" in str(value):
                continue
            full = expand_document(deepcopy(value)).value
            found += [(f"{path.name}: {form['kind']}", form) for form in (
                value, full, shorten_manifest(deepcopy(full)))]  # fmt: skip
    return found


@pytest.fixture(scope="module")
def validators() -> dict[str, Draft202012Validator]:
    return {kind: Draft202012Validator(schema_of(kind)) for kind in KINDS}


def test_examples_and_starters_are_valid_in_both_forms(
    validators: dict[str, Draft202012Validator],
) -> None:
    found = in_both_forms()
    assert len(found) > 150
    wrong = {
        name: error.message
        for name, value in found
        for error in validators[value["kind"]].iter_errors(value)
    }
    assert wrong == {}


def test_a_planted_mistake_is_refused_in_both_forms(
    validators: dict[str, Draft202012Validator],
) -> None:
    for name, value in in_both_forms():
        check = validators[value["kind"]]
        assert not check.is_valid({**value, "plantedMistake": 1}), name
        assert not check.is_valid({**value, "kind": "Other"}), name
        if "spec" in value:
            assert not check.is_valid({**value, "spec": {**value["spec"], "planted": 1}}), name
        else:
            first = next((key for key in value if key not in ("kind", "name")), "name")
            assert not check.is_valid({**value, first: {"plantedMistake": 1}}), (name, first)


@pytest.mark.parametrize(
    "wrong",
    [
        {"command": ["a"]},
        {"name": "x", "command": ["a"], "spec": {}},
        {"name": "x", "command": ["a"], "placement": 5},
        {"name": "x", "command": ["a"], "volumes": ["data"]},
        {"name": "x", "command": ["a"], "secrets": [{"env": "A", "b": 1}]},
        {"name": "x", "command": ["a"], "tasks": 3},
        {"name": "x", "command": ["a"], "schedule": {"cron": "0 3 * * *"}},
    ],
)
def test_wrong_short_files_are_refused(
    wrong: dict[str, Any], validators: dict[str, Draft202012Validator]
) -> None:
    right = {"name": "x", "command": ["a"], "placement": "modal", "volumes": ["data:/data"],
             "secrets": ["hf", {"env": "A"}], "schedule": "0 3 * * *"}  # fmt: skip
    assert validators["BatchJob"].is_valid({"kind": "BatchJob", **right})
    assert not validators["BatchJob"].is_valid({"kind": "BatchJob", **wrong})
