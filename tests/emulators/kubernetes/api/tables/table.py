"""Objects as rows of a table, as kubectl asks for them (`as=Table`), and as metadata alone."""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable
from typing import Any

from tests.emulators.kubernetes.api.call import Call
from tests.emulators.kubernetes.api.tables.columns import BUILTIN, Column
from tests.emulators.kubernetes.api.writes.schemas import version_of
from tests.emulators.kubernetes.store.objects import Entry
from tests.emulators.kubernetes.store.resources import Resource
from tests.emulators.kubernetes.store.times import age

META = "meta.k8s.io/v1"
# Names with escaped dots, plain or in brackets; and any name, as the library has words of its own.
_NAME = r"(?:[^.\[\]\\\']|\\.)"
_ESCAPED = re.compile(rf"\.({_NAME}*\\.{_NAME}*)|\['({_NAME}+)'\]|\.(\w+)")


def wanted(call: Call) -> bool:
    """Returns whether a table comes first in what is accepted."""
    return "as=Table" in call.accept.partition(",")[0]


def metadata_only(call: Call) -> bool:
    return "as=PartialObjectMetadata" in call.accept


def metadata_of(entry: Entry) -> dict[str, Any]:
    head = {"kind": "PartialObjectMetadata", "apiVersion": META}
    return {**head, "metadata": entry.object["metadata"]}


def metadata_list(entries: list[Entry], metadata: dict[str, Any]) -> dict[str, Any]:
    head = {"kind": "PartialObjectMetadataList", "apiVersion": META}
    return {**head, "metadata": metadata, "items": [metadata_of(it) for it in entries]}


def of_entries(call: Call, entries: list[Entry], metadata: dict[str, Any]) -> dict[str, Any]:
    columns, now_s = _columns(call.found(), call.version), time.time()
    how = call.query.get("includeObject", "Metadata")
    rows = []
    for entry in entries:
        row: dict[str, Any] = {"cells": [it.cell(entry.object, now_s) for it in columns]}
        if how == "Metadata":
            row["object"] = metadata_of(entry)
        elif how == "Object":
            row["object"] = entry.object
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": META,
        "metadata": metadata,
        "columnDefinitions": [it.definition() for it in columns],
        "rows": rows,
    }


def _columns(resource: Resource, version: str) -> tuple[Column, ...]:
    if resource.definition is None:
        return BUILTIN.get(resource.key, BUILTIN["", ""])
    told = version_of(resource, version).get("additionalPrinterColumns")
    if not told:
        return BUILTIN["", ""]
    return BUILTIN["", ""][:1] + _custom(json.dumps(told))


@functools.lru_cache(maxsize=256)
def _custom(told: str) -> tuple[Column, ...]:
    return tuple(_printer_column(it) for it in json.loads(told))


def _printer_column(told: dict[str, Any]) -> Column:
    values_in, kind = _values(told["jsonPath"]), told["type"]

    def cell(stored: dict[str, Any], now_s: float) -> Any:
        values = values_in(stored)
        if not values:
            return None
        if kind == "date":
            return _age(values[0], now_s)
        if kind == "string":
            return ",".join(it if isinstance(it, str) else _json(it) for it in values)
        value = values[0]
        fits = {"integer": int, "number": int | float, "boolean": bool}[kind]
        return value if isinstance(value, fits) else None

    return Column(
        told["name"],
        cell,
        type=kind,
        format=told.get("format", ""),
        priority=told.get("priority", 0),
        description=told.get("description")
        or f"Custom resource definition column (in JSONPath format): {told['jsonPath']}",
    )


def _age(value: Any, now_s: float) -> str:
    try:
        return age(value, now_s)
    except (TypeError, ValueError):
        return "<invalid>"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _values(text: str) -> Callable[[Any], list[Any]]:
    """What is at a path, in Kubernetes' dialect: it begins with a dot, and dots in names are
    escaped. Most paths are names alone, for which no library is asked in each of 10,000 rows.
    """
    if re.fullmatch(r"(\.[\w-]+)+", text):
        names = text[1:].split(".")
        return lambda stored: _below(stored, names)
    from jsonpath_ng.ext import parse

    path = parse("$" + _ESCAPED.sub(_quoted, text))
    return lambda stored: [it.value for it in path.find(stored)]


def _below(stored: Any, names: list[str]) -> list[Any]:
    for name in names:
        if not isinstance(stored, dict) or name not in stored:
            return []
        stored = stored[name]
    return [stored]


def _quoted(found: re.Match[str]) -> str:
    name = (found[1] or found[2] or found[3]).replace("\\", "")
    return f'."{name}"'
