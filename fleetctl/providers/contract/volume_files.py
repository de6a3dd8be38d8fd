"""The interface for the files in a provider's volumes. Used by `cp`, `ls` and `rm` of the CLI,
which build it through wiring without a controller.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol

from fleetctl.common.errors import NotFound, Refused, Unavailable, UsageError

# What a look at contents reads at most: of larger files, size and time of change stand for them.
CONTENT_BYTES_MAX = 64 * 1024**2
CONTENTS_FILES_MAX = 100_000
CONTENTS_BYTES_MAX = 64 * 1024**3
CONTENTS_READ_S = 300
CONTENT_LIMITS = {
    "file_bytes": CONTENT_BYTES_MAX,
    "files": CONTENTS_FILES_MAX,
    "bytes": CONTENTS_BYTES_MAX,
    "seconds": CONTENTS_READ_S,
}


class FileEntry(NamedTuple):
    """A file or directory; `path` is relative to the volume's top, with `/` between its parts."""

    path: str
    is_directory: bool
    size: int  # bytes; 0 for a directory
    modified_at_s: float  # 0.0 where it is not known
    digest: str = ""  # SHA-256 of its content, 64 hex digits; "" where it was not read


class FileCopy(NamedTuple):
    """A file to copy, in either direction."""

    local: Path
    remote: str
    size: int


Tell = Callable[[int], None]  # called with bytes that were copied since the last call


def split_batches(
    files: Sequence[FileCopy],
    *,
    files_max: int,
    bytes_max: int,
) -> Iterator[list[FileCopy]]:
    """Files in batches, in their order; a file that alone has more than bytes_max is a batch of its
    own.
    """
    batch: list[FileCopy] = []
    size = 0
    for one in files:
        if batch and (len(batch) >= files_max or size + one.size > bytes_max):
            yield batch
            batch = []
            size = 0
        batch.append(one)
        size += one.size
    if batch:
        yield batch


@contextmanager
def download_beside(local: Path) -> Iterator[Path]:
    """Yields the path to download a file to: beside its target, to which it is renamed when it is
    whole.

    Raises Refused where a directory has its name.
    """
    if local.is_dir():
        raise Refused(
            f"`{local}` is a directory, and a file would replace it", hint="name another path"
        )
    temporary = local.with_name(f".{local.name}.{os.getpid()}.part")
    try:
        yield temporary
        temporary.replace(local)
    finally:
        temporary.unlink(missing_ok=True)


def path_missing(volume: str, path: str) -> NotFound:
    return NotFound(
        f"volume/{volume} has no `/{path.lstrip('/')}`", hint=f"fleetctl ls volume/{volume}"
    )


def no_volume(service: str, volume: str) -> NotFound:
    return NotFound(
        f"{service} has no volume `{volume}` yet",
        hint="it is made when its Volume object is, or the first task that mounts it",
    )


def contents_too_large(volume: str) -> Refused:
    return Refused(
        f"volume/{volume}: more than {CONTENTS_FILES_MAX:,} files or"
        f" {CONTENTS_BYTES_MAX // 1024**3} GiB would have to be read to know their contents",
        hint="name the directories more exactly, or split the work into several jobs",
    )


def contents_too_slow(volume: str) -> Unavailable:
    return Unavailable(
        f"volume/{volume}: its files could not be read within {CONTENTS_READ_S} s",
        hint="name the directories more exactly, or split the work into several jobs",
    )


def contents_unread(volume: str) -> Unavailable:
    return Unavailable(
        f"volume/{volume}: a file of it cannot be read, or was removed meanwhile",
        hint="try again",
    )


def is_a_directory(path: str) -> Refused:
    return Refused(f"`{path}` is a directory", hint="add -r to remove all that is in it")


class VolumeFiles(Protocol):
    """Paths are relative to the volume's top; "" is the top. All raise NotFound for what is not
    there, Refused and Unavailable.
    """

    async def entries(
        self,
        volume: str,
        path: str,
        *,
        recursive: bool = False,
        contents: str = "",
    ) -> Sequence[FileEntry]:
        """Returns the entries of a directory, or all entries below it, by path; for a file, its own
        entry. contents: names of files whose digests are read, with `*` for any characters; where a
        provider can, and of files up to CONTENT_BYTES_MAX.
        """
        ...

    async def put(
        self,
        volume: str,
        files: Sequence[FileCopy],
        *,
        tell: Tell,
    ) -> None:
        """Copies files into the volume, over what is there; directories above them are made."""
        ...

    async def get(
        self,
        volume: str,
        files: Sequence[FileCopy],
        *,
        tell: Tell,
    ) -> None:
        """Copies files out of the volume, over what is there; readers see the old or the new
        one.
        """
        ...

    async def remove(
        self,
        volume: str,
        path: str,
        *,
        recursive: bool = False,
    ) -> None:
        """Removes a file, or with `recursive` a directory and all in it."""
        ...

    async def size(self, volume: str) -> int | None:
        """Returns the bytes of all files; None where counting takes too long."""
        ...


def clean_path(path: str) -> str:
    """`path` as these verbs take it. Raises UsageError for one that leaves the volume."""
    parts = [part for part in PurePosixPath("/", path).parts[1:] if part != "."]
    if ".." in parts or "\0" in path:
        raise UsageError(f"`{path}` is not a path in a volume", hint="write it without `..`")
    return "/".join(parts)
