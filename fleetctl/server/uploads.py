"""Receives the files that manifests of users name: asks for those that are not here, takes them in
pieces, and makes directories of them. Called by the routes; documents name the results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.providers.sources.revision import FILES_MAX
from fleetctl.providers.sources.upload_store import (
    STORED_BYTES_MAX,
    UploadedTree,
    UploadStore,
    refuse_without_room,
)
from fleetctl.server.changes import read_body
from fleetctl.server.guard import UPLOAD_SORT as UPLOAD_SORT
from fleetctl.server.route_table import ApiCall

HEAD_BYTES_MAX = 256


def store_of(call: ApiCall) -> UploadStore:
    """Returns the contents that the caller may name."""
    return UploadStore(call.parts.home, call.caller.namespace)


async def list_lacking(call: ApiCall) -> Mapping[str, object]:
    """Returns which contents are not here."""
    contents = (await read_body(call)).get("contents")
    if not isinstance(contents, dict) or len(contents) > FILES_MAX:
        raise UsageError(f"the body needs `contents`, up to {FILES_MAX:,} sizes by digest")
    if not all(isinstance(it, int) and 0 <= it <= STORED_BYTES_MAX for it in contents.values()):
        raise UsageError(f"a content has 0 to {STORED_BYTES_MAX:,} bytes")
    found = await asyncio.to_thread(store_of(call).lacking, contents)
    return {"ok": True, "code": 0, "missing": found}


async def take_contents(call: ApiCall) -> Mapping[str, object]:
    """Stores pieces of contents: each a line `DIGEST SIZE OFFSET LENGTH`, then its bytes."""
    data = await call.request.body()
    store = store_of(call)

    def keep() -> dict[str, int]:
        found: dict[str, int] = {}
        room = store.room()
        for digest, size, offset, piece in _split_pieces(data):
            room = refuse_without_room(room, len(piece))
            found[digest] = store.append(digest, size, offset, piece)
        return found

    return {"ok": True, "code": 0, "have": await asyncio.to_thread(keep)}


def _split_pieces(data: bytes) -> Iterator[tuple[str, int, int, bytes]]:
    at = 0
    while at < len(data):
        end = data.find(b"\n", at, at + HEAD_BYTES_MAX)
        words = data[at:end].decode("ascii", "replace").split() if end > 0 else []
        if len(words) != 4 or not all(it.isdigit() for it in words[1:]):
            raise UsageError("a piece begins with a line `DIGEST SIZE OFFSET LENGTH`")
        size, offset, length = map(int, words[1:])
        at = end + 1 + length
        if at > len(data):
            raise UsageError("a piece is shorter than its line says")
        yield words[0], size, offset, data[end + 1 : at]


async def make_tree(call: ApiCall) -> Mapping[str, object]:
    """Makes a directory of contents, and writes it into the audit."""
    tree = _tree_in(await read_body(call))
    digest = await asyncio.to_thread(store_of(call).make_tree, tree)
    await asyncio.to_thread(
        call.parts.access.add_audit,
        call.caller.user,
        "upload",
        keys=f"{len(tree.files)} files {digest[:12]}",
        namespace=call.namespace,
        token=call.caller.token,
        address=call.caller.address,
    )
    return {"ok": True, "code": 0, "tree": digest}


def _tree_in(body: Mapping[str, Any]) -> UploadedTree:
    try:
        return UploadedTree(
            tuple((str(path), bool(runs), str(it)) for path, runs, it in body.get("files", [])),
            tuple((str(path), str(to)) for path, to in body.get("links", [])),
            tuple(str(it) for it in body.get("directories", [])),
        )
    except (TypeError, ValueError):
        raise UsageError(
            "the body needs `files`, and may have `links` and `directories`",
            hint='{"files": [["proj/main.py", false, DIGEST]]}',
        ) from None
