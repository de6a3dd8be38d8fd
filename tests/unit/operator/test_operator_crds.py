"""The CRDs: fresh, structural, and in agreement with the models that they are made from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fleetctl.manifest.files.documents import Document, read_documents
from fleetctl.manifest.loader import find_faults
from fleetctl.manifest.rendering.render import rendered_values
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.operator.crds.definition import cell_name, definition_of
from fleetctl.operator.crds.write import definition_path, render_files
from fleetctl.operator.mirror.kinds_served import read_spec_schema
from fleetctl.specs.kinds.registry import API_VERSION, KINDS
from fleetctl.specs.values.scalars import KEY
from fleetctl.views.columns import choose_columns

ROOT = Path(__file__).parents[3]
DEPLOYED = ROOT / "deploy"
# What `kubectl apply` without --server-side keeps of an object in an annotation.
APPLIED_BYTES_MAX = 256 * 1024
PLAIN_KEYS = {
    *("description", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minProperties"),
    *("maxProperties", "minimum", "maximum", "exclusiveMinimum", "required", "enum", "type"),
    *("nullable", "items", "properties", "additionalProperties", KEY),
    *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
}


@cache
def rendered_files() -> dict[str, str]:
    return render_files()


@cache
def schema_of(kind: str) -> dict[str, Any]:
    """The same object each time, which nobody changes."""
    (version,) = definition_of(KINDS[kind])["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


@pytest.mark.parametrize("name", list(rendered_files()))
def test_what_deploy_has_from_the_specs_is_up_to_date(name: str) -> None:
    assert (DEPLOYED / name).read_text() == rendered_files()[name], "run `make reference`"


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_schema_that_definitions_are_compared_with_is_the_definitions_own(kind: str) -> None:
    """But for the rules, which no document of an API server has."""
    assert read_spec_schema(kind) == without_rules(schema_of(kind)["properties"]["spec"])


def without_rules(node: Any) -> Any:
    if isinstance(node, list):
        return [without_rules(it) for it in node]
    if isinstance(node, dict):
        return {name: without_rules(it) for name, it in node.items() if name != KEY}
    return node


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_crd_is_small_enough_to_be_applied(kind: str) -> None:
    assert len(json.dumps(definition_of(KINDS[kind]))) < APPLIED_BYTES_MAX


def test_there_is_a_crd_for_each_kind_and_no_other() -> None:
    found = {f"crds/{it.name}" for it in (DEPLOYED / "crds").iterdir()}
    assert found == {definition_path(it) for it in KINDS.values()}


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_schema_is_structural_as_api_servers_demand(kind: str) -> None:
    for at, node in nodes(schema_of(kind)):
        assert set(node) <= PLAIN_KEYS, f"{at}: {set(node) - PLAIN_KEYS}"
        open_ended = node.get("x-kubernetes-preserve-unknown-fields")
        either = node.get("x-kubernetes-int-or-string")
        assert ("type" in node) != bool(either or (open_ended and "type" not in node)), at
        assert not ("properties" in node and "additionalProperties" in node), at
        assert node.get("additionalProperties") is not False, at
        assert node.get("type") != "array" or "items" in node, at
        assert not ("additionalProperties" in node and node.get("type") != "object"), at


def nodes(schema: dict[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield at, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{at}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from nodes(schema[name], f"{at}[{name}]")


def examples() -> list[Path]:
    folders = (ROOT / "specs/examples", ROOT / "docs/examples")
    return sorted(it for folder in folders for it in folder.rglob("*.yaml"))


@pytest.mark.parametrize("path", examples(), ids=lambda it: it.name)
def test_examples_pass_and_no_field_of_them_is_pruned(path: Path) -> None:
    for document in rendered_values(read_documents([str(path)])):
        if not isinstance(document, dict) or document.get("apiVersion") != API_VERSION:
            continue
        if document.get("kind") not in KINDS:
            continue
        schema = schema_of(document["kind"])
        validator_of(document["kind"]).validate(document)
        lost = set(pruned(document, schema))
        assert {it for it in lost if not it.startswith(".metadata.")} == set()


@cache
def validator_of(kind: str) -> Draft202012Validator:
    return Draft202012Validator(plain(schema_of(kind)))


def plain(node: dict[str, Any]) -> dict[str, Any]:
    """As a validator that does not know Kubernetes' own words reads it."""
    made = {key: it for key, it in node.items() if not key.startswith(("x-", "nullable"))}
    if made.get("exclusiveMinimum") is True:
        made["exclusiveMinimum"] = made.pop("minimum")
    if node.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    for name in ("items", "additionalProperties"):
        if name in made:
            made[name] = plain(made[name])
    if "properties" in made:
        made["properties"] = {key: plain(it) for key, it in made["properties"].items()}
    return {"anyOf": [{"type": "null"}, made]} if node.get("nullable") else made


def pruned(value: Any, schema: dict[str, Any], at: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for it in value:
            yield from pruned(it, schema.get("items", {}), at)
    if not isinstance(value, dict) or "type" not in schema:
        return
    fields = schema.get("properties", {})
    for key, inner in value.items():
        if key in fields:
            yield from pruned(inner, fields[key], f"{at}.{key}")
        elif "additionalProperties" in schema:
            yield from pruned(inner, schema["additionalProperties"], f"{at}.{key}")
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{at}.{key}"


WRONG = {
    ".spec": {"tasks": {"completions": 2}, "completions": 3, "template": {"python": "x"}},
    ".spec.template": {"template": {"python": "x", "script": "y"}},
    ".spec.tasks": {"tasks": {"completions": 2, "items": [{}]}, "template": {"python": "x"}},
    ".spec.template.source": {
        "template": {"python": "x", "source": {"git": {"url": "u"}, "path": "."}}
    },
}


@pytest.mark.parametrize("at", list(WRONG))
def test_a_rule_over_fields_says_what_the_model_says(at: str) -> None:
    schema, value = schema_of("BatchJob"), {"spec": WRONG[at]}
    here: Any = value
    for name in at.split(".")[1:]:
        schema, here = schema["properties"][name], here[name]
    (rule,) = schema[KEY]
    assert not holds(rule["rule"], here)
    one = dict([next(iter(here.items()))])
    assert holds(rule["rule"], one)
    text = to_yaml(
        {"apiVersion": API_VERSION, "kind": "BatchJob", "metadata": {"name": "x"}, **value}
    )
    told = " ".join(it.what.replace("`", "") for it in find_faults(Document("x", text, "/")))
    assert rule["message"] in told


def holds(rule: str, self: dict[str, Any]) -> bool:
    """The part of CEL that our rules use, as Python."""
    text = re.sub(r"has\(self\.(\w+)\)", lambda it: repr(it[1] in self), rule)
    assert re.fullmatch(r"(True|False|[!&() ])+", text), text
    return bool(eval(text.replace("&&", " and ").replace("!", " not ").strip()))


@pytest.mark.parametrize("kind", list(KINDS))
def test_kubectl_shows_the_columns_of_our_lists(kind: str) -> None:
    (version,) = definition_of(KINDS[kind])["spec"]["versions"]
    shown = version["additionalPrinterColumns"]
    ours = {it.title for it in choose_columns(KINDS[kind], wide=True)}
    ours -= {"NAME", "LABELS", "USER"}
    assert {it["name"] for it in shown} == ours
    always = {it["name"] for it in shown if not it.get("priority")}
    usual = {it.title for it in choose_columns(KINDS[kind], wide=False) if not it.sparse} - {"NAME"}
    assert usual <= always
    paths = [it["jsonPath"] for it in shown]
    assert len(set(paths)) == len(paths)
    assert cell_name("BEST TRIAL") == "bestTrial"


def test_what_works_on_units_can_be_scaled() -> None:
    versions = {it: definition_of(KINDS[it])["spec"]["versions"][0] for it in KINDS}
    scaled = {it for it, version in versions.items() if "scale" in version["subresources"]}
    assert scaled == {it for it, row in KINDS.items() if row.runs}
