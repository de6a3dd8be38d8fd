"""Local files that the SDK adds: content by its hash, and mounts, which are lists of files.

A mount becomes a tree of links below the emulator's directory; boxes see it as a layer of theirs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from google.protobuf.timestamp_pb2 import Timestamp
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .blobs import BlobStore
from .ids import base62_id
from .volume_files import inside, write_file


class Contents:
    """Bytes by the hex of their sha256."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, sha256_hex: str) -> Path:
        return self.directory / sha256_hex

    def get(self, sha256_hex: str) -> bytes | None:
        path = self.path(sha256_hex)
        return path.read_bytes() if path.is_file() else None

    def put(self, sha256_hex: str, data: bytes) -> None:
        """Raises INVALID_ARGUMENT when the bytes are not those that the hash names."""
        if hashlib.sha256(data).hexdigest() != sha256_hex:
            raise GRPCError(Status.INVALID_ARGUMENT, "the content is not what its hash says")
        write_file(self.path(sha256_hex), data)


class MountStore:
    def __init__(self, directory: Path, blobs: BlobStore) -> None:
        self.directory, self.blobs = directory, blobs
        self.contents = Contents(directory / "contents")
        self.trees: dict[str, Path] = {}  # mount id -> its files, laid out from `/`
        self.ids: dict[str, str] = {}  # what makes a mount itself -> its id

    def tree(self, mount_id: str) -> Path:
        if mount_id not in self.trees:
            raise GRPCError(Status.NOT_FOUND, f"Mount '{mount_id}' not found")
        return self.trees[mount_id]

    def create(self, files: list[api_pb2.MountFile], checksum: str) -> str:
        """The same files are the same mount. Raises FAILED_PRECONDITION for absent content."""
        if checksum in self.ids:
            return self.ids[checksum]
        absent = [one.filename for one in files if not self.contents.path(one.sha256_hex).exists()]
        if absent:
            raise GRPCError(Status.FAILED_PRECONDITION, f"no content was put for {absent[:3]}")
        mount_id = base62_id("mo")
        tree = self.directory / mount_id
        tree.mkdir(parents=True)
        for one in files:
            _place(self.contents.path(one.sha256_hex), inside(tree, one.filename), one)
        self.trees[mount_id] = tree
        self.ids[checksum] = mount_id
        return mount_id


def _place(source: Path, target: Path, file: api_pb2.MountFile) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = file.mode & 0o7777 if file.HasField("mode") and file.mode else 0o644
    try:
        # Files of one mode share their bytes; another mode needs bytes of its own.
        if mode == 0o644:
            os.link(source, target)
            return
    except OSError:
        target.unlink(missing_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


class ClientMounts:
    """MountBatchedCheckExistence, MountPutFile and MountGetOrCreate."""

    async def MountBatchedCheckExistence(
        self, request: api_pb2.MountBatchedCheckExistenceRequest
    ) -> api_pb2.MountBatchedCheckExistenceResponse:
        contents: Contents = self.world.uploads.contents
        missing = [each for each in request.sha256_hex_hashes if not contents.path(each).exists()]
        return api_pb2.MountBatchedCheckExistenceResponse(
            missing_sha256_hex_hashes=missing, checked_at=_now()
        )

    async def MountPutFile(
        self, request: api_pb2.MountPutFileRequest
    ) -> api_pb2.MountPutFileResponse:
        """Without data it only asks whether the content is there."""
        store: MountStore = self.world.uploads
        if request.WhichOneof("data_oneof") == "data_blob_id":
            store.contents.put(request.sha256_hex, self.world.blobs.get(request.data_blob_id))
        elif request.WhichOneof("data_oneof") == "data":
            store.contents.put(request.sha256_hex, request.data)
        exists = store.contents.path(request.sha256_hex).exists()
        return api_pb2.MountPutFileResponse(exists=exists, checked_at=_now())

    async def MountGetOrCreate(
        self, request: api_pb2.MountGetOrCreateRequest
    ) -> api_pb2.MountGetOrCreateResponse:
        """A named mount (the SDK itself, a stand-alone Python) is one that the service keeps for
        everybody; here it is empty, since boxes have a Python and need no SDK.
        """
        files = list(request.files)
        listing = sorted((f.filename, f.sha256_hex, f.mode) for f in files)
        named = request.deployment_name if not files else ""
        checksum = hashlib.sha256(repr((named, listing)).encode()).hexdigest()
        return api_pb2.MountGetOrCreateResponse(
            mount_id=self.world.uploads.create(files, checksum),
            handle_metadata=api_pb2.MountHandleMetadata(content_checksum_sha256_hex=checksum),
        )


def _now() -> Timestamp:
    stamp = Timestamp()
    stamp.GetCurrentTime()
    return stamp
