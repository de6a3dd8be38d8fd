"""Who owns which fields: metadata.managedFields, kept on every write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.emulators.kubernetes.apply.fieldsets import (
    Trie,
    changed,
    difference,
    fieldset,
    leaves,
    union,
)
from tests.emulators.kubernetes.schema.nodes import Node

Object = dict[str, Any]
# What nobody owns: the server's own fields, and those that say which object it is.
_NOBODYS: Trie = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        f"f:{it}": {}
        for it in (
            "name",
            "namespace",
            "uid",
            "creationTimestamp",
            "resourceVersion",
            "generation",
            "managedFields",
            "selfLink",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generateName",
        )
    },
}


@dataclass(frozen=True, slots=True)
class Owner:
    """operation: Apply or Update."""

    manager: str
    operation: str
    version: str
    subresource: str = ""


Owners = dict[Owner, Trie]


def read(stored: Object) -> tuple[Owners, dict[Owner, str]]:
    """(fields of each owner, when each last wrote)."""
    owners, times = {}, {}
    for one in stored["metadata"].get("managedFields") or ():
        owner = Owner(
            one.get("manager", ""),
            one.get("operation", ""),
            one.get("apiVersion", ""),
            one.get("subresource", ""),
        )
        owners[owner] = one.get("fieldsV1") or {}
        times[owner] = one.get("time", "")
    return owners, times


def write(stored: Object, owners: Owners, times: dict[Owner, str]) -> None:
    rows = []
    for owner, fields in owners.items():
        if not fields:
            continue
        row = {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": owner.version,
            "time": times[owner],
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        if owner.subresource:
            row["subresource"] = owner.subresource
        rows.append(row)
    if rows:
        stored["metadata"]["managedFields"] = rows
    else:
        stored["metadata"].pop("managedFields", None)


def owned(trie: Trie) -> Trie:
    return difference(trie, _NOBODYS)


def own(stored: Object, node: Node) -> Trie:
    """The fields of a configuration that somebody applies."""
    return owned(fieldset(stored, node))


def track_update(old: Object | None, new: Object, owner: Owner, *, node: Node, now: str) -> None:
    """After a write other than an apply: what it changed is the writer's, and nobody else's."""
    owners, times = read(old) if old is not None else ({}, {})
    news, lost = changed(_bare(old) if old else {}, _bare(new), node)
    news, lost = owned(news or {}), owned(lost or {})
    if not news and not lost:
        if old is not None and "managedFields" in old["metadata"]:
            new["metadata"]["managedFields"] = old["metadata"]["managedFields"]
        return
    for one, fields in list(owners.items()):
        left = difference(fields, lost)
        owners[one] = difference(left, news) if one != owner else left
    if news:
        before = owners.get(owner, {})
        owners[owner] = union(before, news)
        times[owner] = now
    write(new, owners, times)


def without(stored: Object, fields: Trie) -> None:
    """Take fields out of every owner's set."""
    owners, times = read(stored)
    write(stored, {it: difference(held, fields) for it, held in owners.items()}, times)


def _bare(stored: Object) -> Object:
    metadata = {k: v for k, v in stored["metadata"].items() if k != "managedFields"}
    return {**stored, "metadata": metadata}


def names(trie: Trie) -> list[str]:
    return [".".join(it) for it in leaves(trie)]
