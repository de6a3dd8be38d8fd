"""Blobs: bytes too large for a message, put and fetched by HTTP; and the blocks of volume files.

The RPCs hand out addresses, http routes (see `routes`) take and give the bytes. A blob lies in a
file named by its id, a block in one named by the sha256 of its bytes.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from pathlib import Path
from typing import Any

from aiohttp import web
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .volume_files import inside, write_file
from .volume_mounts import Mounts

BLOCK_SIZE = 8 * 1024 * 1024  # the SDK's: modal._utils.blob_utils.BLOCK_SIZE
MULTIPART_FROM = 1024**3  # above this the SDK wants parts


class BlobStore:
    """`address` is the base of the URLs; the server sets it once it listens."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.blocks = directory / "blocks"
        self.blocks.mkdir(parents=True, exist_ok=True)
        self.address = ""
        self.uploads: dict[str, str] = {}  # blob id -> md5 (base64) that was announced

    def create(self, content_md5: str = "") -> str:
        blob_id = "bl-" + secrets.token_hex(11)
        self.uploads[blob_id] = content_md5
        return blob_id

    def path(self, blob_id: str) -> Path:
        return self.directory / blob_id

    def add(self, data: bytes) -> str:
        blob_id = self.create()
        write_file(self.path(blob_id), data)
        return blob_id

    def get(self, blob_id: str) -> bytes:
        """Raises NOT_FOUND for a blob that was never put."""
        if blob_id not in self.uploads or not self.path(blob_id).exists():
            raise GRPCError(Status.NOT_FOUND, f"Blob '{blob_id}' not found")
        return self.path(blob_id).read_bytes()

    def url(self, blob_id: str) -> str:
        return f"{self.address}/blobs/{blob_id}"

    def block(self, sha256: bytes) -> Path:
        return self.blocks / sha256.hex()

    def block_url(self, sha256: bytes) -> str:
        return f"{self.address}/blocks/{sha256.hex()}"


class Blobs:
    """BlobCreate and BlobGet."""

    world: Any

    async def BlobCreate(self, request: api_pb2.BlobCreateRequest) -> api_pb2.BlobCreateResponse:
        if request.content_length >= MULTIPART_FROM:
            raise GRPCError(Status.UNIMPLEMENTED, "the emulator takes no blobs of 1 GiB or more")
        store: BlobStore = self.world.blobs
        blob_id = store.create(request.content_md5)
        return api_pb2.BlobCreateResponse(
            blob_id=blob_id,
            blob_ids=[blob_id],
            upload_urls=api_pb2.UploadUrlList(items=[store.url(blob_id)]),
        )

    async def BlobGet(self, request: api_pb2.BlobGetRequest) -> api_pb2.BlobGetResponse:
        store: BlobStore = self.world.blobs
        store.get(request.blob_id)
        return api_pb2.BlobGetResponse(download_url=store.url(request.blob_id))


def routes(blobs: BlobStore, mounts: Mounts, volume_directory: Path) -> list[web.RouteDef]:
    """What the emulator's HTTP server must serve for blobs, blocks, volume ranges and `sync`."""

    async def put_blob(request: web.Request) -> web.Response:
        blob_id = request.match_info["blob"]
        if blob_id not in blobs.uploads:
            return web.Response(status=404, text=f"no upload was announced for {blob_id}")
        data = await request.read()
        digest = hashlib.md5(data, usedforsecurity=False)
        announced = blobs.uploads[blob_id]
        if announced and announced != base64.b64encode(digest.digest()).decode():
            return web.Response(
                status=400, text="The Content-MD5 you specified did not match what we received."
            )
        write_file(blobs.path(blob_id), data)
        return web.Response(headers={"ETag": f'"{digest.hexdigest()}"'})

    async def get_blob(request: web.Request) -> web.StreamResponse:
        path = blobs.path(request.match_info["blob"])
        return web.FileResponse(path) if path.is_file() else web.Response(status=404)

    async def put_block(request: web.Request) -> web.Response:
        name, data = request.match_info["block"], await request.read()
        if hashlib.sha256(data).hexdigest() != name:
            return web.Response(status=400, text="the block is not what its hash says")
        write_file(blobs.blocks / name, data)
        return web.Response(body=b"stored:" + name.encode())

    async def get_range(request: web.Request) -> web.Response:
        path = inside(volume_directory, request.match_info["path"])
        start, length = int(request.query["start"]), int(request.query["len"])
        if not path.is_file():
            return web.Response(status=404, text="the file is gone")
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(length)
        # Trailing zeros are left out, as the real service does: the client has to pad.
        return web.Response(body=data.rstrip(b"\0") if "pads" in request.query else data)

    async def sync(request: web.Request) -> web.Response:
        places = (await request.text()).splitlines()
        return web.Response(text=str(mounts.sync(request.match_info["box"], places)))

    return [
        web.put("/blobs/{blob}", put_blob),
        web.get("/blobs/{blob}", get_blob),
        web.put("/blocks/{block}", put_block),
        web.get("/ranges/{path:.+}", get_range),
        web.post("/boxes/{box}/sync", sync),
    ]
