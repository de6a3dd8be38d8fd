"""The CustomResourceDefinition of a kind, whole. Pure; written by write.py.

Made of the kind's line in the registry, its model, the keys of statuses and the columns of lists: a
new kind needs no change here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from fleetctl.controllers.vocabulary.status_keys import Status, describe_keys
from fleetctl.manifest.schemas import schema_of
from fleetctl.operator.crds.columns import CELLS, printer_columns
from fleetctl.operator.crds.structural import OPEN, Schema, build_structural_schema
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.kinds.registry import API_VERSION, Kind
from fleetctl.specs.values.cluster_rules import KEY as RULES
from fleetctl.views.objects import TIME_KEYS

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


def definition_of(kind: Kind) -> dict[str, Any]:
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
    """The keys of a status, of every kind, and the cells of its columns."""
    hints = get_type_hints(Status)
    told = describe_keys()
    fields = {key: {**_status_field(key, hints[key]), "description": told[key]} for key in told}
    fields["conditions"] = {"description": told["conditions"], **_CONDITIONS}
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
    told = [it for it in forms if it is not type(None)]
    if len(told) > 1:  # int | float
        return {"type": "number", **nullable}
    origin = get_origin(told[0])
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", **OPEN, **nullable}
    if origin is not None and issubclass(origin, Sequence):
        (inner,) = get_args(told[0])
        items = {"type": "string"} if inner is str else {"type": "object", **OPEN}
        return {"type": "array", "items": items, **nullable}
    return {"type": _SORTS[told[0]], **nullable}


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
