"""The volume RPCs, of both versions, over real files (volume_files.py, volume_mounts.py).

A volume's version selects the protocol: the SDK calls the V1 or the V2 twin of an RPC by the
version in the metadata, and the wrong twin is refused as the real service would.
"""

from __future__ import annotations

import re
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .blobs import BLOCK_SIZE
from .ids import base62_id
from .volume_files import V1, V2, Volume, inside, remove_entry, walk, write_file
from .volume_mounts import Mounts
from .volume_open import OpenFilesError
from .volume_paths import assemble, copy, existing, pages, refuse_overwrites, remove

DEFAULT_VERSION = V1  # a guess: what the service makes when nobody says
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,64}")


class VolumeStore:
    """All volumes and their attachments."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "committed"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.mounts = Mounts(directory / "copies")
        self.by_id: dict[str, Volume] = {}

    def named(self, name: str, environment: str) -> Volume | None:
        return next(
            (
                volume
                for volume in self.by_id.values()
                if name and volume.name == name and volume.environment == environment
            ),
            None,
        )

    def get(self, volume_id: str) -> Volume:
        volume = self.by_id.get(volume_id)
        if volume is None:
            raise GRPCError(Status.NOT_FOUND, f"Volume '{volume_id}' not found")
        return volume

    def create(self, name: str, environment: str, version: int) -> Volume:
        volume_id = base62_id("vo")
        volume = Volume(volume_id, name, environment, version, self.directory / volume_id)
        volume.directory.mkdir()
        self.by_id[volume_id] = volume
        return volume

    def delete(self, volume_id: str) -> None:
        remove_entry(self.get(volume_id).directory)
        del self.by_id[volume_id]

    def truth(self) -> list[dict[str, object]]:
        """What is committed, for assertions of tests."""
        return [
            {
                "volume_id": volume.volume_id,
                "name": volume.name,
                "version": volume.version,
                "commits": volume.commits,
                "directory": str(volume.directory),
                "attached_to": self.mounts.holders(volume.volume_id),
                "files": {
                    name: info.st_size
                    for name, info in walk(volume.directory)
                    if not stat.S_ISDIR(info.st_mode)
                },
            }
            for volume in self.by_id.values()
        ]


def metadata(volume: Volume) -> api_pb2.VolumeMetadata:
    return api_pb2.VolumeMetadata(
        version=volume.version,
        name=volume.name,
        creation_info=api_pb2.CreationInfo(created_at=volume.created_at, created_by="emulated"),
    )


class Volumes:
    """Needs self.world.volumes (VolumeStore), .blobs (BlobStore) and .contents (what
    MountPutFile stored, by sha256 hex); self.calling_box() for what containers call."""

    world: Any

    async def VolumeGetOrCreate(
        self, request: api_pb2.VolumeGetOrCreateRequest
    ) -> api_pb2.VolumeGetOrCreateResponse:
        store: VolumeStore = self.world.volumes
        wanted, how = request.version, request.object_creation_type
        if how == api_pb2.OBJECT_CREATION_TYPE_EPHEMERAL:
            volume = store.create("", request.environment_name, wanted or DEFAULT_VERSION)
            volume.heartbeat_at = time.time()
        else:
            volume = self._named_volume(request)
        if wanted and volume.version != wanted:
            raise GRPCError(
                Status.INVALID_ARGUMENT,
                f"Volume '{volume.name}' is of version {volume.version}, not {wanted}",
            )
        return api_pb2.VolumeGetOrCreateResponse(
            volume_id=volume.volume_id, version=volume.version, metadata=metadata(volume)
        )

    def _named_volume(self, request: api_pb2.VolumeGetOrCreateRequest) -> Volume:
        store: VolumeStore = self.world.volumes
        name, how = request.deployment_name, request.object_creation_type
        if not _NAME.fullmatch(name):
            raise GRPCError(Status.INVALID_ARGUMENT, f"Invalid Volume name: '{name}'")
        volume = store.named(name, request.environment_name)
        if volume is not None and how == api_pb2.OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS:
            raise GRPCError(Status.ALREADY_EXISTS, f"Volume '{name}' already exists")
        if volume is None and how == api_pb2.OBJECT_CREATION_TYPE_UNSPECIFIED:
            raise GRPCError(
                Status.NOT_FOUND,
                f"Volume '{name}' not found in environment '{request.environment_name or 'main'}'",
            )
        return volume or store.create(
            name, request.environment_name, request.version or DEFAULT_VERSION
        )

    async def VolumeGetById(
        self, request: api_pb2.VolumeGetByIdRequest
    ) -> api_pb2.VolumeGetByIdResponse:
        volume = self.world.volumes.get(request.volume_id)
        return api_pb2.VolumeGetByIdResponse(volume_id=volume.volume_id, metadata=metadata(volume))

    async def VolumeList(self, request: api_pb2.VolumeListRequest) -> api_pb2.VolumeListResponse:
        store: VolumeStore = self.world.volumes
        before = request.pagination.created_before
        found = [
            volume
            for volume in sorted(store.by_id.values(), key=lambda one: -one.created_at)
            if volume.name
            and volume.environment == request.environment_name
            and (not before or volume.created_at < before)
        ]
        page = found[: request.pagination.max_objects or len(found)]
        return api_pb2.VolumeListResponse(
            environment_name=request.environment_name,
            items=[
                api_pb2.VolumeListItem(
                    label=volume.name,
                    volume_id=volume.volume_id,
                    created_at=volume.created_at,
                    metadata=metadata(volume),
                )
                for volume in page
            ],
        )

    async def VolumeDelete(self, request: api_pb2.VolumeDeleteRequest) -> Empty:
        self.world.volumes.delete(request.volume_id)
        return Empty()

    async def VolumeRename(self, request: api_pb2.VolumeRenameRequest) -> Empty:
        store: VolumeStore = self.world.volumes
        volume = store.get(request.volume_id)
        if store.named(request.name, volume.environment) not in (None, volume):
            raise GRPCError(Status.ALREADY_EXISTS, f"Volume '{request.name}' already exists")
        volume.name = request.name
        return Empty()

    async def VolumeHeartbeat(self, request: api_pb2.VolumeHeartbeatRequest) -> Empty:
        self.world.volumes.get(request.volume_id).heartbeat_at = time.time()
        return Empty()

    # -- putting files ------------------------------------------------------------------------

    async def VolumePutFiles(self, request: api_pb2.VolumePutFilesRequest) -> Empty:
        volume = self._of_version(request.volume_id, V1)
        files = [(file.filename, file) for file in request.files]
        refuse_overwrites(
            volume,
            [name for name, _ in files],
            any_file=request.disallow_overwrite_existing_files,
        )
        for name, file in files:
            data = self.world.contents.get(file.sha256_hex)
            if data is None:
                raise GRPCError(Status.FAILED_PRECONDITION, f"no content for '{name}' was put")
            mode = file.mode if file.HasField("mode") else 0o644
            write_file(inside(volume.directory, name), data, mode)
        return Empty()

    async def VolumePutFiles2(
        self, request: api_pb2.VolumePutFiles2Request
    ) -> api_pb2.VolumePutFiles2Response:
        volume, blobs = self._of_version(request.volume_id, V2), self.world.blobs
        refuse_overwrites(
            volume,
            [file.path for file in request.files],
            any_file=request.disallow_overwrite_existing_files,
        )
        missing = [
            api_pb2.VolumePutFiles2Response.MissingBlock(
                file_index=file_index,
                block_index=block_index,
                put_url=blobs.block_url(block.contents_sha256),
            )
            for file_index, file in enumerate(request.files)
            for block_index, block in enumerate(file.blocks)
            if not blobs.block(block.contents_sha256).exists()
        ]
        if not missing:
            for file in request.files:
                assemble(volume, file, blobs)
        return api_pb2.VolumePutFiles2Response(missing_blocks=missing)

    # -- reading, listing, removing, copying --------------------------------------------------

    async def VolumeGetFile2(
        self, request: api_pb2.VolumeGetFile2Request
    ) -> api_pb2.VolumeGetFile2Response:
        volume, blobs = self.world.volumes.get(request.volume_id), self.world.blobs
        path = existing(volume, request.path)
        if path.is_dir():
            raise GRPCError(Status.INVALID_ARGUMENT, f"'{request.path}' is a directory")
        size = path.stat().st_size
        start = min(request.start, size)
        end = min(start + request.len, size) if request.len else size
        relative = path.relative_to(self.world.volumes.directory)
        pads = "&pads=1" if request.client_pads_blocks else ""
        urls, position = [], start
        while position < end:
            until = min(end, (position // BLOCK_SIZE + 1) * BLOCK_SIZE)
            query = f"start={position}&len={until - position}{pads}"
            urls.append(f"{blobs.address}/ranges/{quote(str(relative))}?{query}")
            position = until
        return api_pb2.VolumeGetFile2Response(
            get_urls=urls, size=size, start=start, len=end - start
        )

    async def VolumeListFiles(
        self, request: api_pb2.VolumeListFilesRequest
    ) -> AsyncIterator[api_pb2.VolumeListFilesResponse]:
        for page in pages(self._of_version(request.volume_id, V1), request):
            yield api_pb2.VolumeListFilesResponse(entries=page)

    async def VolumeListFiles2(
        self, request: api_pb2.VolumeListFiles2Request
    ) -> AsyncIterator[api_pb2.VolumeListFiles2Response]:
        for page in pages(self._of_version(request.volume_id, V2), request):
            yield api_pb2.VolumeListFiles2Response(entries=page)

    async def VolumeRemoveFile(self, request: api_pb2.VolumeRemoveFileRequest) -> Empty:
        return remove(self._of_version(request.volume_id, V1), request)

    async def VolumeRemoveFile2(self, request: api_pb2.VolumeRemoveFile2Request) -> Empty:
        return remove(self._of_version(request.volume_id, V2), request)

    async def VolumeCopyFiles(self, request: api_pb2.VolumeCopyFilesRequest) -> Empty:
        return copy(self._of_version(request.volume_id, V1), request)

    async def VolumeCopyFiles2(self, request: api_pb2.VolumeCopyFiles2Request) -> Empty:
        return copy(self._of_version(request.volume_id, V2), request)

    # -- from inside a container --------------------------------------------------------------

    async def VolumeCommit(
        self, request: api_pb2.VolumeCommitRequest
    ) -> api_pb2.VolumeCommitResponse:
        mounts: Mounts = self.world.volumes.mounts
        if not mounts.commit_volume(self.calling_box(), request.volume_id):
            raise GRPCError(Status.NOT_FOUND, "this container does not have that volume")
        return api_pb2.VolumeCommitResponse()

    async def VolumeReload(self, request: api_pb2.VolumeReloadRequest) -> Empty:
        mounts: Mounts = self.world.volumes.mounts
        try:
            found = mounts.reload(self.calling_box(), request.volume_id)
        except OpenFilesError as error:
            raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from error
        if not found:
            raise GRPCError(Status.NOT_FOUND, "this container does not have that volume")
        return Empty()

    def _of_version(self, volume_id: str, version: int) -> Volume:
        volume: Volume = self.world.volumes.get(volume_id)
        if volume.version != version:
            raise GRPCError(
                Status.FAILED_PRECONDITION,
                f"this call is for volumes of version {version}; '{volume.name}' is of version "
                f"{volume.version}",
            )
        return volume
