"""The CustomResourceDefinition of a kind, whole: its structural schema, and the columns that
`kubectl get` shows. Pure; written by write.py.

A definition is made of the kind's line in the registry, its model, the keys of statuses and the
columns of lists: a new kind needs no change here. Types that a structural schema cannot express (a
number or a text, a text or a mapping) are left open: our own validation decides, and its refusal
becomes a condition. Defaults are left out, so that the server stores the manifest as its author
wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from fleetctl.controllers.status_keys import Status, describe_keys
from fleetctl.manifest.schemas import schema_of
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.kinds.registry import API_VERSION, Kind
from fleetctl.specs.values.scalars import KEY as RULES
from fleetctl.views.columns import TableColumn, choose_columns
from fleetctl.views.objects import NONE, TIME_KEYS, View

Schema = dict[str, Any]

OPEN: Schema = {"x-kubernetes-preserve-unknown-fields": True}
# Keywords that mean the same in JSON Schema and in a structural schema.
_SAME = (
    "description", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
    "maxProperties", "minimum", "maximum", "required", RULES,
)  # fmt: skip
_SCALARS = frozenset(("string", "integer", "number", "boolean"))

GROUP, _, VERSION = API_VERSION.partition("/")
CATEGORY = "fleetctl"  # `kubectl get fleetctl` lists all of ours
# As specs/values/scalars.py has it: a name becomes part of others, at providers too.
NAMES = {
    "rule": "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",
    "message": "a name must be 1 to 63 lower case letters, digits and -",
}
# Short names of Kubernetes' own: one of ours that is the same would make kubectl warn at each use.
TAKEN = {
    *("cj", "cm", "crd", "cs", "csr", "deploy", "ds", "ep", "ev", "hpa", "ing", "limits", "netpol"),
    *("no", "ns", "pc", "pdb", "po", "pv", "pvc", "quota", "rc", "rs", "sa", "sc", "sts", "svc"),
}
LABELS = {"app.kubernetes.io/part-of": "fleetctl"}
_SORTS = {str: "string", int: "integer", float: "number", bool: "boolean"}


# An API server shows the value at a path, so the cells that our lists compute are written into the
# status, below `columns`. Ages are left to kubectl: they go on between two writes.

CELLS = "columns"
# kubectl cannot leave out a column that is empty in every row. Columns that our lists leave out
# then are for `-o wide` there, except for those that users look for first.
SHOWN = frozenset(("COST", "DURATION"))
# kubectl shows the first two itself; the third is of a shared server, which has no cluster.
_KUBECTLS = frozenset(("NAME", "LABELS", "USER"))
_AT = {"STATUS": ".status.phase", "ACTIVE": ".status.active", "FAILED": ".status.failed"}
_AGES = {"AGE": ".metadata.creationTimestamp", "STARTED": ".status.startTime"}


def build_structural_schema(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """Returns the structural schema. schema: one below `$defs`, or any part of such a schema."""
    return _convert_schema(schema, definitions, ())


def _convert_schema(
    schema: Mapping[str, Any],
    definitions: Mapping[str, Any],
    within: tuple[str, ...],
) -> Schema:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        if name in within:
            return _add_description(schema, OPEN)  # the type contains itself
        return _add_description(
            schema, _convert_schema(definitions[name], definitions, (*within, name))
        )
    if "anyOf" in schema:
        return _add_description(schema, _convert_union(schema["anyOf"], definitions, within))
    made = {key: schema[key] for key in _SAME if key in schema}
    if "const" in schema or "enum" in schema:
        made["enum"] = list(schema.get("enum") or [schema["const"]])
    if "exclusiveMinimum" in schema:
        made |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    sort = schema.get("type")
    if sort == "array":
        return made | {"type": sort, "items": _convert_schema(schema["items"], definitions, within)}
    if sort == "object" or "properties" in schema:
        return made | _convert_object(schema, definitions, within)
    if isinstance(sort, str) and sort in _SCALARS:
        return made | {"type": sort}
    return _add_description(made, OPEN)


def _convert_object(
    schema: Mapping[str, Any],
    definitions: Mapping[str, Any],
    within: tuple[str, ...],
) -> Schema:
    fields = schema.get("properties")
    more = schema.get("additionalProperties")
    if fields:
        shown = {name: _convert_schema(it, definitions, within) for name, it in fields.items()}
        open_too = OPEN if more not in (None, False) else {}
        return {"type": "object", "properties": shown, **open_too}
    values = list((schema.get("patternProperties") or {}).values())
    if isinstance(more, dict):
        values.append(more)
    each = _convert_schema(values[0], definitions, within) if len(values) == 1 else OPEN
    # A map without a type for its values cannot be a field of a rule; an object of anything can.
    if not _is_typed(each):
        return {"type": "object", **OPEN}
    return {"type": "object", "additionalProperties": each}


def _is_typed(made: Schema) -> bool:
    """Returns whether rules in CEL can see a value of this schema."""
    if made.get("type") == "array":
        return _is_typed(made["items"])
    return "type" in made or "x-kubernetes-int-or-string" in made


def _convert_union(
    forms: list[Mapping[str, Any]],
    definitions: Mapping[str, Any],
    within: tuple[str, ...],
) -> Schema:
    typed = [it for it in forms if it.get("type") != "null"]
    nullable = {"nullable": True} if len(typed) < len(forms) else {}
    if len(typed) == 1:
        return {**_convert_schema(typed[0], definitions, within), **nullable}
    sorts = {str(it.get("type")) for it in typed}
    if sorts == {"integer", "string"}:
        return {"x-kubernetes-int-or-string": True, **nullable}
    if sorts == {"integer", "number"}:
        return {"type": "number", **nullable}
    return {**OPEN, **nullable}


def _add_description(by: Mapping[str, Any], made: Schema) -> Schema:
    """Adds the description beside a reference or a union, which is more specific than the one
    inside.
    """
    if "description" in by:
        return {**made, "description": by["description"]}
    return dict(made)


def definition_of(kind: Kind) -> dict[str, Any]:
    """Returns the CustomResourceDefinition of a kind, as `kubectl apply` takes it."""
    scope = "Namespaced" if kind.namespaced else "Cluster"
    short = [name for name in kind.short if name not in TAKEN]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{GROUP}",
            "labels": {"app.kubernetes.io/part-of": GROUP},
        },
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                **({"shortNames": short} if short else {}),
                "categories": [CATEGORY],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _build_schema(kind)},
                    "subresources": _list_subresources(kind),
                    "additionalPrinterColumns": printer_columns(kind),
                }
            ],
        },
    }


def _build_schema(kind: Kind) -> Schema:
    ours = schema_of(kind.name, rules=True)
    spec = build_structural_schema(ours["properties"]["spec"], ours["$defs"])
    needed = ["spec"] if spec.get("required") else []
    return {
        "type": "object",
        "description": " ".join(it for it in (kind.summary, spec.get("description", "")) if it),
        RULES: [NAMES],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status_schema(),
        },
        **({"required": needed} if needed else {}),
    }


def _list_subresources(kind: Kind) -> dict[str, Any]:
    """Returns the subresources. For kinds that work on several units at once, `kubectl scale` sets
    how many.
    """
    scale = {"specReplicasPath": ".spec.parallelism", "statusReplicasPath": ".status.active"}
    return {"status": {}, **({"scale": scale} if issubclass(kind.spec, WorkSpec) else {})}


@cache
def status_schema() -> Schema:
    """Returns the schema of a status, the same for every kind, with the cells of its columns."""
    hints = get_type_hints(Status)
    meaning = describe_keys()
    fields = {
        key: {**_status_field(key, hints[key]), "description": text}
        for key, text in meaning.items()
    }
    fields["conditions"] = {"description": meaning["conditions"], **_CONDITIONS}
    fields[CELLS] = {
        "description": "cells of `kubectl get`, as `fleetctl get` shows them",
        "type": "object",
        "additionalProperties": {"type": "string"},
    }
    return {
        "type": "object",
        "description": "Written by fleetctl.",
        "properties": fields,
        **OPEN,
    }


def _status_field(key: str, hint: Any) -> Schema:
    if key in TIME_KEYS:
        return {"type": "string", "nullable": True}
    forms = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    nullable = {"nullable": True} if type(None) in forms else {}
    types = [it for it in forms if it is not type(None)]
    if len(types) > 1:  # int | float
        return {"type": "number", **nullable}
    origin = get_origin(types[0])
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", **OPEN, **nullable}
    if origin is not None and issubclass(origin, Sequence):
        (inner,) = get_args(types[0])
        items = {"type": "string"} if inner is str else {"type": "object", **OPEN}
        return {"type": "array", "items": items, **nullable}
    return {"type": _SORTS[types[0]], **nullable}


_CONDITIONS: Schema = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "lastTransitionTime": {"type": "string"},
            "observedGeneration": {"type": "integer"},
        },
    },
}


def printer_columns(kind: Kind) -> list[dict[str, Any]]:
    """Returns `additionalPrinterColumns` of a kind's CRD."""
    made = [_build_printer_column(column) for column in _list_columns(kind)]
    # kubectl keeps this order, also with -o wide: columns that are always shown come first.
    return sorted(made, key=lambda it: it.get("priority", 0))


def build_cells(seen: View, now_s: float) -> dict[str, str]:
    """Returns the cells below `columns` of an object's status. A duration is shown once it is
    final.
    """
    cells: dict[str, str] = {}
    for column in _list_columns(seen.kind):
        if column.title in _AT or column.title in _AGES:
            continue
        if column.title == "DURATION" and not seen.over:
            continue
        cell = column.cell(seen, now_s)
        if cell != NONE:
            cells[cell_name(column.title)] = cell
    return cells


def cell_name(title: str) -> str:
    """Returns `bestTrial` for `BEST TRIAL`, `usdPerHour` for `$/H`."""
    first, *others = title.replace("$/H", "USD PER HOUR").split()
    return str(first.lower() + "".join(word.capitalize() for word in others))


def _list_columns(kind: Kind) -> list[TableColumn]:
    return [it for it in choose_columns(kind, wide=True) if it.title not in _KUBECTLS]


def _build_printer_column(column: TableColumn) -> dict[str, Any]:
    title = column.title
    path = _AT.get(title) or _AGES.get(title) or f".status.{CELLS}.{cell_name(title)}"
    sort = "date" if title in _AGES else "integer" if title in ("ACTIVE", "FAILED") else "string"
    wide = column.wide or (column.sparse and title not in SHOWN)
    made = {"name": title, "type": sort, "jsonPath": path}
    return made | ({"priority": 1} if wide else {})
