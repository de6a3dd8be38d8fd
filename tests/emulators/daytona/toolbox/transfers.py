"""Files in and out: many at once as multipart bodies, and one by a URL that is signed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import mimetypes
import os
import re
import secrets
from pathlib import Path
from urllib.parse import quote

from aiohttp import BodyPartReader, web

from .calls import Call, Route
from .errors import PROXY, ToolboxError, bad_request, of_os_error, reply

CHUNK_BYTES = 256 * 1024
Written = list[dict[str, object]]
_FIELD = re.compile(r"files\[(\d+)\]\.(path|file)")


async def upload_many(call: Call) -> web.Response:
    """Parts `files[i].path` and `files[i].file`, in any order: one client sends all paths first,
    another each before its file."""
    if not call.request.content_type.startswith("multipart/"):
        raise bad_request("request must be multipart/form-data")
    paths: dict[str, str] = {}
    early: dict[str, Path] = {}
    problems: list[str] = []
    written: Written = []
    async for part in await call.request.multipart():
        if not isinstance(part, BodyPartReader):
            continue
        found = _FIELD.fullmatch(part.name or "")
        if found and found[2] == "path":
            paths[found[1]] = await part.text()
        elif found and found[1] in paths:
            problems += await _saved(call, paths[found[1]], part, written)
        elif found:
            early[found[1]] = await _spooled(call, part)
    for number, spool in early.items():
        problems += _placed(call, paths.get(number), spool, written)
    if problems:
        return reply({"errors": problems}, status=400)
    return reply({"files": written})


async def download_many(call: Call) -> web.StreamResponse:
    """Each part's filename is the path exactly as it was asked for; a file that cannot be read is
    a part named `error` instead."""
    body = await call.body("FilesDownloadRequest", "paths")
    paths = body.texts("paths")
    boundary = f"daytona-{secrets.token_hex(12)}"
    content_type = f"multipart/form-data; boundary={boundary}"
    response = web.StreamResponse(headers={"Content-Type": content_type})
    await response.prepare(call.request)
    for path in paths:
        await _send_part(call, response, boundary, path)
    await response.write(f"--{boundary}--\r\n".encode())
    await response.write_eof()
    return response


async def download_one(call: Call) -> web.StreamResponse:
    path = call.query("path")
    check_signature(call, path)
    host = call.toolbox.host(path)
    if host.is_dir():
        raise bad_request("path must be a file")
    try:
        with host.open("rb"):
            kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    except OSError as error:
        raise of_os_error(error, f"stat {path}") from error
    name = quote(os.path.basename(path))
    headers = {
        "Content-Type": kind,
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
    }
    return web.FileResponse(host, headers=headers)


async def upload_one(call: Call) -> web.Response:
    path = call.query("path")
    check_signature(call, path)
    host = call.toolbox.host(path)
    try:
        host.parent.mkdir(parents=True, exist_ok=True)
        if call.request.content_type == "multipart/form-data":
            await _upload_field(call, host)
        else:
            with host.open("wb") as file:
                async for chunk in call.request.content.iter_chunked(CHUNK_BYTES):
                    file.write(chunk)
    except OSError as error:
        raise of_os_error(error, f"open {path}") from error
    return reply({"name": os.path.basename(path), "path": path, "type": "file"})


def check_signature(call: Call, path: str) -> None:
    """Of a URL that came without a key. The canonical text is the SDK's; 0 never expires."""
    query = call.request.query
    key = call.request.headers.get("Authorization", "").removeprefix("Bearer ")
    if call.world.settings.keys.get(key):
        return
    expires = query.get("expires", "")
    text = f"v1:files:{call.request.method}:{path}:{expires}".encode()
    digest = hmac.new(call.sandbox.signing_key.encode(), text, hashlib.sha256).digest()
    expected = "v1_" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    if not hmac.compare_digest(expected, query.get("signature", "")):
        raise ToolboxError(401, "unauthorized: invalid signature", source=PROXY)
    if not expires.isdigit() or 0 < int(expires) < call.world.clock.now_s():
        raise ToolboxError(401, "unauthorized: signature has expired", source=PROXY)


async def _upload_field(call: Call, host: Path) -> None:
    async for part in await call.request.multipart():
        if isinstance(part, BodyPartReader) and part.name == "file":
            await _copied(part, host)
            return
    raise bad_request("field `file` is required")


async def _saved(call: Call, path: str, part: BodyPartReader, written: Written) -> list[str]:
    """The problem, if there is one."""
    host = call.toolbox.host(path)
    try:
        host.parent.mkdir(parents=True, exist_ok=True)
        written.append({"path": path, "bytes": await _copied(part, host)})
    except OSError as error:
        return [f"{path}: {(error.strerror or str(error)).lower()}"]
    return []


async def _spooled(call: Call, part: BodyPartReader) -> Path:
    """A file whose path comes later waits beside the box."""
    spool = call.toolbox.box.directory / f"upload-{secrets.token_hex(8)}"
    await _copied(part, spool)
    return spool


def _placed(call: Call, path: str | None, spool: Path, written: Written) -> list[str]:
    try:
        if path is None:
            return ["a file came without its path"]
        host = call.toolbox.host(path)
        host.parent.mkdir(parents=True, exist_ok=True)
        written.append({"path": path, "bytes": host.write_bytes(spool.read_bytes())})
    except OSError as error:
        return [f"{path}: {(error.strerror or str(error)).lower()}"]
    finally:
        spool.unlink()
    return []


async def _copied(part: BodyPartReader, host: Path) -> int:
    size = 0
    with host.open("wb") as file:
        while chunk := await part.read_chunk(CHUNK_BYTES):
            size += file.write(chunk)
    return size


async def _send_part(call: Call, response: web.StreamResponse, boundary: str, path: str) -> None:
    host = call.toolbox.host(path)
    try:
        if host.is_dir():
            raise bad_request(f"path points to a directory, not a file: {path}")
        with host.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
            await response.write(_head(boundary, "file", path, kind, size))
            while chunk := file.read(CHUNK_BYTES):
                await response.write(chunk)
    except (OSError, ToolboxError) as error:
        if isinstance(error, ConnectionError):
            raise
        failure = error if isinstance(error, ToolboxError) else of_os_error(error, f"open {path}")
        detail = failure.body(method="POST", path=call.request.path)
        text = json.dumps(detail).encode()
        head = _head(boundary, "error", path, "application/json", len(text))
        await response.write(head + text)
    await response.write(b"\r\n")


def _head(boundary: str, name: str, path: str, kind: str, size: int) -> bytes:
    shown = f'filename="{path}"'
    if not path.isascii() or not path.isprintable() or '"' in path or "\\" in path:
        # The quoted form would not survive the trip: the client reads headers as Latin-1. Its
        # streaming half still wants to see one.
        shown = f"filename=\"file\"; filename*=utf-8''{quote(path, safe='')}"
    return (
        f"--{boundary}\r\n"
        f'Content-Disposition: form-data; name="{name}"; {shown}\r\n'
        f"Content-Type: {kind}\r\n"
        f"Content-Length: {size}\r\n\r\n"
    ).encode()


ROUTES: list[Route] = [
    ("POST", "/files/bulk-upload", upload_many),
    ("POST", "/files/bulk-download", download_many),
    ("GET", "/files/download", download_one),
    ("POST", "/files/upload-v2", upload_one),
]
