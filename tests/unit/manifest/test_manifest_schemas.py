from __future__ import annotations

import json
from typing import Any

import pytest

from fleetctl.manifest.schemas import DIRECTORY, DOCUMENTS, path_of, schema_of, text_of


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
