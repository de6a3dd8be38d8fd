"""Reads and checks the parts of a request: lists, keys, ranges of indexes, documents, sandboxes.

Called by the handlers of requests. The options beside the documents are in
apply/request/options.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.common.errors import UsageError
from fleetctl.manifest import Document
from fleetctl.providers.contract.orphans import Orphan
from fleetctl.specs.kinds.registry import find_kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, split_key

Reply = dict[str, object]
Request = Mapping[str, object]


def list_in(request: Request, name: str) -> list[object]:
    value = request.get(name)
    if not isinstance(value, list):
        raise UsageError(f"the request needs a list `{name}`")
    return value


def keys_in(request: Request) -> list[tuple[str, str, str]]:
    """Returns (kind, name, namespace) of each key; kinds by any of their names."""
    out = []
    for key in list_in(request, "keys"):
        word, name, namespace = split_key(str(key))
        kind = find_kind(word)
        if kind is None or not name:
            raise UsageError(f"`{key}` is not KIND/NAME")
        out.append((kind.name, name, namespace if kind.namespaced else DEFAULT_NAMESPACE))
    return out


def ranges_of(pairs: list[object]) -> tuple[range, ...]:
    """Returns ranges from [first, last] pairs. Raises ValueError."""
    found = [[int(number) for number in pair] for pair in pairs if isinstance(pair, list)]
    if len(found) < len(pairs) or any(len(it) != 2 or it[0] > it[1] for it in found):
        raise ValueError("indexes are pairs of a first and a last one")
    return tuple(range(first, last + 1) for first, last in found)


def document_of(item: object) -> Document:
    if not isinstance(item, dict) or "path" not in item or "dir" not in item:
        raise UsageError("a document must be {path, text, dir}")
    return Document(
        path=str(item["path"]),
        text=str(item.get("text", "")),
        dir=str(item["dir"]),
        refused=str(item.get("refused", "")),
        hint=str(item.get("hint", "")),
        role=str(item.get("role", "")),
        sent=sent if isinstance(sent := item.get("sent"), dict) else {},
    )


def orphan_of(item: object) -> Orphan:
    """Returns one orphan of an adopt request. Raises UsageError."""
    if not isinstance(item, dict) or not all(item.get(it) for it in ("provider", "id", "run")):
        raise UsageError("a sandbox to adopt must be {provider, id, run, ...}")
    at_s = item.get("createdAt")
    given = {name: str(value or "") for name, value in item.items()}
    return Orphan(
        provider=given["provider"],
        handle=given["id"],
        store=given.get("store", ""),
        run=given["run"],
        job=given.get("job", ""),
        index=given.get("index", ""),
        created_at_s=float(at_s) if isinstance(at_s, int | float) else 0.0,
        uid=given.get("uid", ""),
        work=given.get("work", ""),
    )
