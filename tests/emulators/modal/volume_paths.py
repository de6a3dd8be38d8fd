"""What the volume RPCs do with the paths of a volume; the same for both versions.

Errors are the statuses that the SDK turns into FileNotFoundError and FileExistsError.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .blobs import BLOCK_SIZE, BlobStore
from .volume_files import Volume, copy_entry, inside, remove_entry, walk, write_file

_PAGE = 100  # entries of a listing in one message


def existing(volume: Volume, path: str) -> Path:
    found = inside(volume.directory, path)
    if not found.exists() and not found.is_symlink():
        raise GRPCError(Status.NOT_FOUND, f"No such file or directory: '{path}'")
    return found


def refuse_overwrites(volume: Volume, paths: list[str], *, any_file: bool) -> None:
    """A directory is never overwritten by a file; a file only where the request allows it.
    Nothing is written when one path of a request is refused."""
    for path in paths:
        target = inside(volume.directory, path)
        if target == volume.directory or target.is_dir():
            raise GRPCError(Status.ALREADY_EXISTS, f"'{path}' is a directory")
        if any_file and target.exists():
            raise GRPCError(Status.ALREADY_EXISTS, f"'{path}' already exists")


def assemble(volume: Volume, file: Any, blobs: BlobStore) -> None:
    """Writes one file of a VolumePutFiles2 out of its blocks, which come without the zeros at
    their end."""
    data = b"".join(
        blobs.block(block.contents_sha256)
        .read_bytes()
        .ljust(min(BLOCK_SIZE, file.size - index * BLOCK_SIZE), b"\0")
        for index, block in enumerate(file.blocks)
    )
    mode = file.mode if file.HasField("mode") else 0o644
    write_file(inside(volume.directory, file.path), data, mode)


def pages(volume: Volume, request: Any) -> Iterator[list[api_pb2.FileEntry]]:
    """The entries below request.path, or the one entry when it is a file."""
    top = existing(volume, request.path)
    names = [top]
    if top.is_dir() and not top.is_symlink():
        names = [top / name for name, _ in walk(top) if request.recursive or "/" not in name]
    if request.HasField("max_entries"):
        names = names[: request.max_entries]
    entries = [_entry(volume, name) for name in names]
    for at in range(0, len(entries), _PAGE):
        yield entries[at : at + _PAGE]


def _entry(volume: Volume, path: Path) -> api_pb2.FileEntry:
    info = path.lstat()
    kind = api_pb2.FileEntry.FileType.FILE
    if stat.S_ISDIR(info.st_mode):
        kind = api_pb2.FileEntry.FileType.DIRECTORY
    elif stat.S_ISLNK(info.st_mode):
        kind = api_pb2.FileEntry.FileType.SYMLINK
    return api_pb2.FileEntry(
        path=str(path.relative_to(volume.directory)),
        type=kind,
        mtime=int(info.st_mtime),
        size=0 if kind == api_pb2.FileEntry.FileType.DIRECTORY else info.st_size,
    )


def remove(volume: Volume, request: Any) -> Empty:
    path = existing(volume, request.path)
    if path.is_dir() and not path.is_symlink() and not request.recursive:
        raise GRPCError(
            Status.INVALID_ARGUMENT, f"'{request.path}' is a directory and recursive is not set"
        )
    if path == volume.directory:
        for child in path.iterdir():
            remove_entry(child)
    else:
        remove_entry(path)
    return Empty()


def copy(volume: Volume, request: Any) -> Empty:
    """As `cp` does: into the destination when that is a directory, else to its name."""
    target = inside(volume.directory, request.dst_path)
    into = target.is_dir() or request.dst_path.endswith("/") or len(request.src_paths) > 1
    if into and target.exists() and not target.is_dir():
        raise GRPCError(Status.INVALID_ARGUMENT, f"'{request.dst_path}' is not a directory")
    for source_path in request.src_paths:
        source = existing(volume, source_path)
        if source.is_dir() and not request.recursive:
            raise GRPCError(
                Status.INVALID_ARGUMENT, f"'{source_path}' is a directory and recursive is not set"
            )
        place = target / source.name if into else target
        below = list(walk(source)) if source.is_dir() else []
        copy_entry(source, place)
        for name, _ in below:
            copy_entry(source / name, place / name)
    return Empty()
