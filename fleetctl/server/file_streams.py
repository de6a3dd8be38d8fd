"""Files between a server and other machines: of volumes for `ls`, `cp` and `rm`, and those that
manifests of users name. Kept outputs of tasks: artifact_streams.py.

Answers are streams of HTTP, which a client continues by offset after a cut line: bytes go one
way, so that a websocket would add nothing. Files for a volume are sent as sources are, by their
content.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

from starlette.responses import Response, StreamingResponse

from fleetctl.common.errors import Refused, UsageError
from fleetctl.providers.contract.volume_files import FileCopy, VolumeFiles
from fleetctl.providers.sources.revision import FILES_MAX as UPLOADED_FILES_MAX
from fleetctl.providers.sources.upload_store import (
    DISK_FREE_BYTES,
    STORED_BYTES_MAX,
    UploadedTree,
    UploadStore,
    refuse_without_room,
)
from fleetctl.server.callers import EDITOR, VIEWER
from fleetctl.server.changes import read_body
from fleetctl.server.guard import UPLOAD_SORT as UPLOAD_SORT
from fleetctl.server.response_types import Done, LackingContents, MadeTree, TakenContents
from fleetctl.server.route_table import ApiCall
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.namespaces import asset_name
from fleetctl.views.exec_targets import account_named
from fleetctl.views.kinds import Target
from fleetctl.views.store_reading import StoreReading, must_find
from fleetctl.wiring.account_registry import volume_files

BYTES = "application/octet-stream"
LINES = "application/x-ndjson"
OFFSET_MAX = 1 << 53
PIECE_BYTES = 256 * 1024
DOWNLOADS_MAX = 4  # at once: each takes room for a file on the server's disk
LISTED_FILES_MAX = 10_000  # of one request
DOWNLOADS = asyncio.Semaphore(DOWNLOADS_MAX)

HEAD_BYTES_MAX = 256


async def record_reading(call: ApiCall, action: str, keys: str) -> None:
    await asyncio.to_thread(
        call.parts.access.add_audit,
        call.caller.author,
        action,
        keys=keys,
        namespace=call.namespace,
        token=call.caller.token,
        address=call.caller.address,
    )


async def _open_volume(call: ApiCall, role: str) -> tuple[VolumeFiles, str]:
    """Returns the files of a volume's provider, and the volume's name there."""
    target = Target(KINDS["Volume"], call.request.path_params["name"], call.namespace)
    call.caller.require_kind(target.kind, role, target.namespace)

    def find(reading: StoreReading) -> str:
        return str(must_find(target, reading).spec().get("provider") or DEFAULT_PROVIDER)

    provider = await call.parts.readers.read(find)
    home = call.parts.home
    files = await asyncio.to_thread(lambda: volume_files(account_named(provider, home), home))
    return files, asset_name(target.name, target.namespace)


async def read_volume(call: ApiCall) -> Response:
    """Lists files of a volume, or sends one."""
    files, volume = await _open_volume(call, VIEWER)
    path = call.text("path")
    if call.flag("content"):
        return await _send_file(call, files, volume, path)
    if call.flag("size"):
        return Response(json.dumps(await files.size(volume)), media_type=LINES)
    found = await files.entries(volume, path, recursive=call.flag("recursive"))
    return Response("".join(f"{json.dumps(it)}\n" for it in found), media_type=LINES)


async def _send_file(call: ApiCall, files: VolumeFiles, volume: str, path: str) -> Response:
    offset = call.number("offset", 0, most=OFFSET_MAX)
    size = call.number("bytes", 0, most=OFFSET_MAX)
    if shutil.disk_usage(call.parts.home).free < size + DISK_FREE_BYTES:
        raise Refused(
            "there is no room on the server's disk for this file",
            hint="free some there, or copy it at a machine that reaches the provider itself",
        )
    await record_reading(call, "cp", f"volume/{call.request.path_params['name']} {path}"[:200])
    place = Path(tempfile.mkdtemp(prefix="fleetctl-"))
    try:
        async with DOWNLOADS:
            await files.get(volume, [FileCopy(place / "file", path, size)], tell=lambda _: None)
        content = (place / "file").open("rb")
    finally:
        shutil.rmtree(place, ignore_errors=True)  # its content lives as long as it is open

    async def pieces() -> AsyncIterator[bytes]:
        with content:
            content.seek(offset)
            while data := await asyncio.to_thread(content.read, PIECE_BYTES):
                yield data

    return StreamingResponse(pieces(), media_type=BYTES)


async def write_volume(call: ApiCall) -> Done:
    """Writes files that were sent into a volume, or removes one."""
    files, volume = await _open_volume(call, EDITOR)
    body = await read_body(call)
    name = call.request.path_params["name"]
    if "remove" in body:
        await files.remove(volume, str(body["remove"]), recursive=body.get("recursive") is True)
        await record_reading(call, "rm", f"volume/{name} {body['remove']}"[:200])
        return {"ok": True, "code": 0}
    sent = body.get("files")
    if not isinstance(sent, dict) or not 0 < len(sent) <= LISTED_FILES_MAX:
        raise UsageError(
            f"the body needs `files`, 1 to {LISTED_FILES_MAX:,} digests by path, or `remove`"
        )
    store = UploadStore(call.parts.home, call.caller.namespace)
    paths = await asyncio.to_thread(store.paths_of, sent)
    copies = [FileCopy(Path(here), path, Path(here).stat().st_size) for path, here in paths.items()]
    await files.put(volume, copies, tell=lambda _: None)
    await record_reading(call, "cp", f"volume/{name} {len(copies)} files")
    return {"ok": True, "code": 0}


def store_of(call: ApiCall) -> UploadStore:
    """Returns the contents that the caller may name."""
    return UploadStore(call.parts.home, call.caller.namespace)


async def list_lacking(call: ApiCall) -> LackingContents:
    """Returns which contents are not here."""
    contents = (await read_body(call)).get("contents")
    if not isinstance(contents, dict) or len(contents) > UPLOADED_FILES_MAX:
        raise UsageError(f"the body needs `contents`, up to {UPLOADED_FILES_MAX:,} sizes by digest")
    if not all(isinstance(it, int) and 0 <= it <= STORED_BYTES_MAX for it in contents.values()):
        raise UsageError(f"a content has 0 to {STORED_BYTES_MAX:,} bytes")
    found = await asyncio.to_thread(store_of(call).list_lacking, contents)
    return {"ok": True, "code": 0, "missing": found}


async def take_contents(call: ApiCall) -> TakenContents:
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


async def make_tree(call: ApiCall) -> MadeTree:
    """Makes a directory of contents, and writes it into the audit."""
    tree = _tree_in(await read_body(call))
    digest = await asyncio.to_thread(store_of(call).make_tree, tree)
    await asyncio.to_thread(
        call.parts.access.add_audit,
        call.caller.author,
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
