"""Kept outputs of tasks for other machines and for the page: pages of what an object has, and one
file as a stream.

A file is whatever the code of a user wrote, so that it is sent as an attachment of no known type,
and a browser never shows it: as a page of this server, it would act with the rights of its reader.
"""

from __future__ import annotations

import asyncio
import json
import posixpath
import re
from collections.abc import Iterator
from itertools import chain
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from fleetctl.common.errors import NotFound, UsageError
from fleetctl.providers.paths import runs_dir
from fleetctl.providers.rundir.kept_outputs import KeptOutputs, find_outputs
from fleetctl.server.callers import VIEWER
from fleetctl.server.file_streams import BYTES, LINES, OFFSET_MAX, record_reading
from fleetctl.server.reads import HEAD, find_working
from fleetctl.server.response_types import ArtifactList
from fleetctl.server.route_table import PAGE_DEFAULT, PAGE_MAX, ApiCall
from fleetctl.views.run_files import (
    ArtifactCursor,
    artifact_document,
    escape_path,
    find_file,
    page_artifacts,
)
from fleetctl.views.store_reading import StoreReading

NAME_CHARS_MAX = 200
_CURSOR = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


async def list_kept(call: ApiCall) -> ArtifactList:
    """Lists the kept outputs of an object's tasks."""
    limit = max(1, call.number("limit", PAGE_DEFAULT, most=PAGE_MAX))
    begin = _parse_cursor(call.text("continue"))
    index = call.number("index", 0, most=10**9) if call.text("index") else None

    def read(reading: StoreReading) -> ArtifactList:
        seen = find_working(call, reading)
        found, following = page_artifacts(
            call.parts.home, seen, reading, begin=begin, limit=limit, index=index
        )
        more = "" if following is None else f"{following.index}-{following.at}"
        items = [artifact_document(it) for it in found]
        return {**HEAD, "metadata": {"continue": more}, "items": items}

    return await call.parts.readers.read(read)


def _parse_cursor(text: str) -> ArtifactCursor:
    found = _CURSOR.fullmatch(text or "0")
    if found is None:
        raise UsageError(
            "`continue` is not what a page before gave", hint="begin with the first page again"
        )
    return ArtifactCursor(int(found[1]), int(found[2] or 0))


async def read_outputs(call: ApiCall) -> Response:
    """Lists the kept outputs of a run, or sends the file at `path`."""
    name = call.request.path_params["run"]
    path = call.text("path")
    offset = call.number("offset", 0, most=OFFSET_MAX)

    def find(reading: StoreReading) -> KeptOutputs | None:
        run, uid = reading.rows.run(name), reading.rows.owner_of(name)
        seen = None if uid is None else reading.by_uid(uid)
        if run is None or uid is None or seen is None:
            raise NotFound(f"there is no run `{name[:80]}`")
        call.caller.require_kind(seen.kind, VIEWER, seen.resource.namespace)
        return find_outputs(runs_dir(call.parts.home, run.provider, uid), run.name)

    kept = await call.parts.readers.read(find)
    files = kept.files if kept is not None else []
    if not path:
        return Response("".join(f"{json.dumps(it)}\n" for it in files), media_type=LINES)
    file = None if kept is None else find_file(kept, path)
    if kept is None or file is None:
        raise NotFound(f"no output `{path[:200]!a}` is kept of `{name[:80]}`")
    pieces = _skip_bytes(kept.contents(file), offset)
    first = await asyncio.to_thread(next, pieces, b"")  # a content that is gone is an error yet
    if not offset:
        await record_reading(call, "cp", f"{name} {escape_path(file.path)}"[:200])
    headers = {
        **name_attachment(file.path),
        "content-length": str(max(0, file.size - offset)),
    }
    return StreamingResponse(chain([first], pieces), headers=headers, media_type=BYTES)


def name_attachment(path: str) -> dict[str, str]:
    """Returns the headers of a file that a browser stores and never shows. Of its name, ASCII
    letters alone go into the plain parameter, and octets in hexadecimal into the other one (RFC
    6266): no name can end a header."""
    name = posixpath.basename(path)[:NAME_CHARS_MAX]
    name = "".join(it if it.isprintable() else "_" for it in name)  # some turn the letters around
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    whole = quote(name.encode("utf-8", "replace"), safe="")
    return {
        "content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{whole}",
        "content-security-policy": "default-src 'none'; sandbox",
    }


def _skip_bytes(pieces: Iterator[bytes], offset: int) -> Iterator[bytes]:
    for piece in pieces:
        if offset < len(piece):
            yield piece[offset:]
        offset = max(0, offset - len(piece))
