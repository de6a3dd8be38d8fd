"""Where the SDK puts build contexts: as much of S3 as its client speaks, over TLS.

That client refuses plain HTTP and trusts the machine's certificates only, so this is a listener of
its own with a certificate made for it; `running.py` says how a process comes to trust it.
"""

from __future__ import annotations

import hashlib
import posixpath
import secrets
import ssl
import subprocess
from pathlib import Path

from aiohttp import web

from .errors import bad_request
from .state import ORGANIZATION_ID, World

BUCKET = "daytona-volume-builds"
REGION = "us-east-1"
CONTEXT_BYTES_MAX = 1 << 31


def routes(world: World) -> list[web.RouteDef]:
    async def push_access(request: web.Request) -> web.Response:
        body = {
            "accessKey": "emulated-access",
            "secret": "emulated-secret",
            "sessionToken": "emulated-session",
            "storageUrl": world.storage_url,
            "organizationId": ORGANIZATION_ID,
            "bucket": BUCKET,
            "region": REGION,
        }
        return web.json_response(body)

    return [web.get("/api/object-storage/push-access", push_access, name="getPushAccess")]


def application(world: World) -> web.Application:
    app = web.Application(client_max_size=CONTEXT_BYTES_MAX)
    store = _Store(world.directory / "contexts")
    path = f"/{BUCKET}/{{key:.+}}"
    app.add_routes(
        [
            web.get(path, store.get),  # HEAD too
            web.put(path, store.put),
            web.post(path, store.post),
            web.delete(path, store.delete),
        ]
    )
    return app


class _Store:
    """Objects are files; an upload in parts is a directory until it is completed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def get(self, request: web.Request) -> web.StreamResponse:
        path = self._path(request)
        if not path.is_file():
            return web.Response(status=404)
        return web.FileResponse(path, headers={"ETag": f'"{path.stat().st_size}"'})

    async def put(self, request: web.Request) -> web.Response:
        body = await request.read()
        path = self._path(request)
        if "uploadId" in request.query:
            number = int(request.query["partNumber"])
            path = self._parts(request) / f"{number:05}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        digest = hashlib.md5(body, usedforsecurity=False).hexdigest()
        return web.Response(headers={"ETag": f'"{digest}"'})

    async def post(self, request: web.Request) -> web.Response:
        key = request.match_info["key"]
        if "uploads" in request.query:
            upload = secrets.token_hex(8)
            names = f"<Bucket>{BUCKET}</Bucket><Key>{key}</Key><UploadId>{upload}</UploadId>"
            return _xml("InitiateMultipartUploadResult", names)
        parts, path = self._parts(request), self._path(request)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as whole:
            for part in sorted(parts.iterdir()):
                whole.write(part.read_bytes())
                part.unlink()
        parts.rmdir()
        return _xml("CompleteMultipartUploadResult", f"<Key>{key}</Key><ETag>&quot;0&quot;</ETag>")

    async def delete(self, request: web.Request) -> web.Response:
        self._path(request).unlink(missing_ok=True)
        return web.Response(status=204)

    def _path(self, request: web.Request) -> Path:
        key = posixpath.normpath(request.match_info["key"])
        if key.startswith(("..", "/")):
            raise bad_request("Invalid key")
        return self._directory / key

    def _parts(self, request: web.Request) -> Path:
        parts = self._directory / ".parts" / request.query["uploadId"]
        parts.mkdir(parents=True, exist_ok=True)
        return parts


def _xml(name: str, inner: str) -> web.Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?><{name}>{inner}</{name}>'
    return web.Response(text=text, content_type="application/xml")


def certificate(directory: Path) -> ssl.SSLContext:
    """For the listener. Its authority is in `ca.pem`, which the clients have to trust."""
    directory.mkdir(parents=True, exist_ok=True)
    authority, request, leaf = (directory / name for name in ("ca.pem", "leaf.csr", "leaf.pem"))
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl("req", "-x509", *curve, "-days", "3650", "-subj", "/CN=daytona emulator",
             "-keyout", f"{authority}.key", "-out", str(authority))  # fmt: skip
    _openssl("req", *curve, "-subj", "/CN=127.0.0.1", "-keyout", f"{leaf}.key",
             "-out", str(request))  # fmt: skip
    names = directory / "names"
    names.write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    _openssl("x509", "-req", "-in", str(request), "-CA", str(authority), "-CAkey",
             f"{authority}.key", "-CAcreateserial", "-days", "3650", "-extfile", str(names),
             "-out", str(leaf))  # fmt: skip
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(leaf, f"{leaf}.key")
    return context


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
