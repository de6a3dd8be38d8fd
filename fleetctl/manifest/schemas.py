"""JSON Schema of each kind, for editors and for readers: `python -m fleetctl.manifest.schemas`.

A file may be in the full form or in the short one. Custom resources, whose schemas have rules, are
in the full form alone. The schemas are written into specs/schemas/, by this package, since specs/
does no I/O; tests/unit/manifest/test_manifest_schemas.py compares the files with the models.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import models_json_schema

import fleetctl.specs
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.blocks.nodes import NODES_MAX
from fleetctl.specs.kinds.registry import API_VERSION, KINDS, Kind
from fleetctl.specs.kinds.sweep import SearchFile
from fleetctl.specs.rendering import Overlay, Variables
from fleetctl.specs.values.scalars import KEY as RULES
from fleetctl.specs.values.scalars import Spec

DIRECTORY = Path(fleetctl.specs.__path__[0]) / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

# Models that a plain text stands for as well.
_SHORT_FORMS = {
    "FromFile": "The path of the file.",
    "FromFiles": "The files, as `glob`.",
    "Gpu": "`NAME:COUNT`, such as `A100:4`; `A100` is one, `any:1` any.",
    "Image": "Reference of an image in a registry.",
}
_GPU_LIST = {
    "type": "array",
    "items": {"type": "string"},
    "minItems": 1,
    "description": "Sorts that will do, best first; for functions alone.",
}
_ENV_LIST = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
        "required": ["name", "value"],
        "additionalProperties": False,
    },
}


# Documents that are no objects.
RENDERED: dict[str, type[Spec]] = {"Variables": Variables, "Overlay": Overlay}
DOCUMENTS = (*KINDS, *RENDERED)


def schema_of(kind: str, *, rules: bool = False) -> dict[str, Any]:
    """Returns the schema of a whole manifest of this kind. rules: with the rules in CEL for API
    servers (specs/values/scalars.py), and without the short form.
    """
    if kind in RENDERED:
        return _of_rendered(kind)
    models: list[type[Spec]] = [Metadata, KINDS[kind].spec, SearchFile]
    references, schema = models_json_schema([(model, "validation") for model in models])
    definitions = schema["$defs"]
    for name, definition in definitions.items():
        if not rules:
            definition.pop(RULES, None)
        definitions[name] = _with_short_forms(name, _without_titles(definition))
    if "searchFrom" in KINDS[kind].files:
        _add_search_from(definitions[KINDS[kind].spec.__name__])
    else:
        del definitions["SearchFile"]
    whole = {
        "$schema": DIALECT,
        "title": kind,
        "type": "object",
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": kind},
            "metadata": references[(Metadata, "validation")],
            "spec": references[(KINDS[kind].spec, "validation")],
            "status": {"description": "Written by fleetctl; ignored when read.", "type": "object"},
        },
        "required": ["apiVersion", "kind", "metadata"],
        "additionalProperties": False,
        "$defs": definitions,
    }
    if rules:
        return whole
    return _with_short_files(whole, KINDS[kind])


# Fields of a spec, a template and a stage that a bare text may stand in for, and its meaning.
_BARE_TEXTS = {
    "placement": "Name of the only provider.",
    "source": "A directory, relative to the manifest's own, or the URL of a repository.",
    "checkpoint": "The path.",
    "searchFrom": "The path of the file.",
}
_BARE_ENTRIES: dict[str, dict[str, Any]] = {
    "volumes": {"type": "string", "pattern": r"^[^:]+:/[^:]*$", "description": "`NAME:/path`."},
    "secrets": {
        "type": "object",
        "description": "A variable, of which a Secret is made.",
        "properties": {
            "env": {"type": "string", "description": "Its name, such as `HF_TOKEN`."},
        },
        "required": ["env"],
        "additionalProperties": False,
    },
}


def _with_short_files(whole: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """Returns the schema with the fields that a short file has at its top."""
    definitions = whole["$defs"]
    for model in (kind.spec.__name__, "Template", "Stage"):
        if model in definitions and (kind.runs or "source" in definitions[model]["properties"]):
            _add_bare_texts(definitions[model]["properties"])

    spec = definitions[kind.spec.__name__]
    required = list(spec.get("required", ()))
    short = dict(spec.get("properties", {}))
    beside = [*whole["properties"], "name"]
    if kind.runs:
        inner = definitions["Template"]["properties"]
        both = set(short) & set(inner)  # which stand in the full form alone
        short = {key: it for key, it in (short | inner).items() if key not in both}
        short["schedule"] = {"type": "string", "description": "Times, such as `0 3 * * *`."}
        beside.append("schedule")
        required = [key for key in required if key != "template"]
    without_spec = {"required": required}
    if "oneOf" in spec:
        without_spec["oneOf"] = spec["oneOf"]

    metadata = definitions["Metadata"]
    definitions["Metadata"] = {key: it for key, it in metadata.items() if key != "required"}
    name = metadata["properties"]["name"]
    return {
        **whole,
        "properties": {**whole["properties"], "name": name, **short},
        "required": ["kind"],
        "anyOf": [
            {"required": ["name"]},
            {"required": ["metadata"], "properties": {"metadata": {"required": ["name"]}}},
        ],
        "if": {"required": ["spec"]},
        "then": {"propertyNames": {"enum": beside}},
        "else": without_spec,
    }


def _add_bare_texts(fields: dict[str, Any]) -> None:
    for name, meaning in _BARE_TEXTS.items():
        if name in fields:
            text = {"type": "string", "minLength": 1, "description": meaning}
            shape = {key: it for key, it in fields[name].items() if key in ("$ref", "anyOf")}
            rest = {key: it for key, it in fields[name].items() if key not in shape}
            fields[name] = {"anyOf": [text, *shape.get("anyOf", [shape])], **rest}
    for name, entry in _BARE_ENTRIES.items():
        if name in fields and "items" in fields[name]:
            fields[name]["items"] = {"anyOf": [fields[name]["items"], entry]}


def remove_bare_texts(definitions: dict[str, Any]) -> None:
    """Turns the definitions of a shipped schema into those of the full form."""
    for definition in definitions.values():
        fields = definition.get("properties", {})
        for name, meaning in _BARE_TEXTS.items():
            text, *shapes = fields.get(name, {}).get("anyOf", [{}])
            if text.get("description") != meaning:
                continue
            rest = {key: it for key, it in fields[name].items() if key != "anyOf"}
            whole = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
            fields[name] = {**whole, **rest}
        for name, entry in _BARE_ENTRIES.items():
            entries = fields.get(name, {}).get("items", {}).get("anyOf", [])
            if entries[1:] == [entry]:
                fields[name]["items"] = entries[0]


def _of_rendered(kind: str) -> dict[str, Any]:
    schema = _without_titles(RENDERED[kind].model_json_schema())
    definitions = schema.pop("$defs", {})
    if kind == "Overlay":  # a text stands for a list with one entry
        base = schema["properties"]["base"]
        text = {"type": "string", "minLength": 1}
        listed = {key: base.pop(key) for key in list(base) if key != "description"}
        base["anyOf"] = [text, listed]
    return {"$schema": DIALECT, "title": kind, **schema, "$defs": definitions}


def text_of(kind: str) -> str:
    return json.dumps(schema_of(kind), indent=2) + "\n"


def path_of(kind: str) -> Path:
    return DIRECTORY / f"{kind.lower()}.json"


def _without_titles(schema: Any) -> Any:
    """Removes pydantic's titles, which repeat the names of fields; descriptions are
    more specific.
    """
    if isinstance(schema, list):
        return [_without_titles(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(it)
        for key, it in schema.items()
        if not (key == "title" and isinstance(it, str))
    }


def _with_short_forms(name: str, definition: dict[str, Any]) -> dict[str, Any]:
    if name == "NodeRange":
        number = {"type": "integer", "minimum": 1, "maximum": NODES_MAX}
        return {"anyOf": [number, definition]}
    if name == "Ray":
        return {"anyOf": [{"type": "boolean"}, definition]}
    if name in _SHORT_FORMS:
        forms: list[Any] = [{"type": "string", "description": _SHORT_FORMS[name]}, definition]
        if name == "Gpu":
            forms.append(_GPU_LIST)
        return {"anyOf": forms}
    if name in ("OwnBudget", "BudgetSpec"):
        levels = definition["properties"]["warnAt"]
        shape = {
            key: levels.pop(key) for key in list(levels) if key not in ("description", "default")
        }
        levels["anyOf"] = [shape["items"], shape]
    env = definition.get("properties", {}).get("env")
    if name in ("Template", "Stage", "ServiceSpec", "FunctionSpec") and env is not None:
        mapping = {key: env.pop(key) for key in list(env) if key != "description"}
        env["anyOf"] = [mapping, _ENV_LIST]
    return definition


def _add_search_from(definition: dict[str, Any]) -> None:
    definition["properties"]["searchFrom"] = {
        "$ref": "#/$defs/SearchFile",
        "description": "An unchanged W&B sweep file, in place of `search`.",
    }
    definition["oneOf"] = [
        {"required": ["search"]},
        {"required": ["searchFrom"]},
        {
            "required": ["wandb"],
            "properties": {"wandb": {"required": ["sweepId"]}},
            "not": {"anyOf": [{"required": ["search"]}, {"required": ["searchFrom"]}]},
        },
    ]


def main() -> None:
    for kind in DOCUMENTS:
        path_of(kind).write_text(text_of(kind), encoding="utf-8")


if __name__ == "__main__":
    main()
