"""Stores what users of a server send: contents by their digest, and directories made of them, below
the state directory. Each namespace has its own, so that a digest alone gives nobody a content of
others.

Called by the server, which receives contents in pieces and goes on where a cut line ended, and now
and then to remove what nobody has used (`sweep`). Objects get copies of their own when they are
applied: only packages of `image.pip` are used from here later.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fleetctl.common.errors import Conflict, NotFound, Refused, UsageError
from fleetctl.providers.paths import make_private
from fleetctl.providers.sources.revision import BYTES_MAX, FILES_MAX

UPLOADS = "uploads"
CONTENTS, TREES, PARTS = "contents", "trees", "parts"
EVERYWHERE, OF_ALL = "*", "_all"  # a namespace's name begins with no underscore
STORED_BYTES_MAX = 10 * 1024**3  # of a namespace
STORED_FILES_MAX = 200_000
DISK_FREE_BYTES = 1024**3  # the store itself must go on
UNUSED_S = 7 * 86400.0
PIECE_BYTES = 256 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAKING = ".making."
_APPENDING = threading.Lock()  # two users may send one content


class UploadedTree(NamedTuple):
    """The listing of a directory. files: (path, whether it is a program, digest); links: (path,
    where it leads); directories: those without a file. Paths are relative, with `/`."""

    files: tuple[tuple[str, bool, str], ...]
    links: tuple[tuple[str, str], ...] = ()
    directories: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return sha256(json.dumps(self).encode()).hexdigest()


class UploadStore:
    """The contents of one namespace, or of those who may be in all. home: the state directory."""

    def __init__(self, home: Path, namespace: str) -> None:
        self.place = home / UPLOADS / (OF_ALL if namespace == EVERYWHERE else namespace)

    def list_lacking(self, contents: Mapping[str, int]) -> dict[str, int]:
        """Returns the contents that are not here, each with the bytes that have arrived. contents:
        sizes by digest. Raises UsageError."""
        found = {}
        for digest, size in contents.items():
            target = self._content(digest)
            if target.exists():
                os.utime(target)  # it is about to be used
            else:
                found[digest] = min(self._count_arrived(digest), size)
        return found

    def room(self) -> tuple[int, int]:
        """Returns (bytes, files) that may still be stored."""
        found = [path.stat().st_size for path in self._stored()]
        free = shutil.disk_usage(self.place if self.place.exists() else self.place.parents[1]).free
        return (
            min(STORED_BYTES_MAX - sum(found), free - DISK_FREE_BYTES),
            STORED_FILES_MAX - len(found),
        )

    def append(
        self,
        digest: str,
        size: int,
        offset: int,
        data: bytes,
    ) -> int:
        """Adds a piece of a content; returns the bytes that are here. A piece that does not
        follow on what has arrived adds nothing. Raises Conflict for a content that is another than
        its digest names."""
        if size > STORED_BYTES_MAX or offset + len(data) > size:
            most = STORED_BYTES_MAX >> 30
            raise UsageError(f"a content has at most {most} GiB, and no more than `size`")
        with _APPENDING:
            return self._append(digest, size, offset, data)

    def _append(
        self,
        digest: str,
        size: int,
        offset: int,
        data: bytes,
    ) -> int:
        target, part = self._content(digest), self._part(digest)
        if target.exists():
            return size
        if self._count_arrived(digest) > size:
            part.unlink()  # another client gave it another size
        if self._count_arrived(digest) != offset:
            return self._count_arrived(digest)
        make_private(part.parent)
        with open(part, "ab", opener=_open_private) as file:
            file.write(data)
        if offset + len(data) < size:
            return offset + len(data)
        with part.open("rb") as file:
            whole = sha256()
            while piece := file.read(PIECE_BYTES):
                whole.update(piece)
        if whole.hexdigest() != digest:
            part.unlink()
            raise Conflict("a file was edited while it was sent", hint="apply again")
        make_private(target.parent)
        part.rename(target)  # a content that exists is whole
        return size

    def make_tree(self, tree: UploadedTree) -> str:
        """Makes a directory of contents that are here; returns its digest. Raises UsageError for
        names that leave it, and NotFound for a content that is missing."""
        if len(tree.files) + len(tree.links) + len(tree.directories) > FILES_MAX:
            raise UsageError(f"a directory has at most {FILES_MAX:,} files")
        target = self.place / TREES / tree.digest
        if target.is_dir():
            os.utime(target)
            return tree.digest
        making = self.place / TREES / f"{_MAKING}{secrets.token_hex(8)}"
        make_private(making)
        try:
            self._fill(making, tree)
            if not target.is_dir():
                making.rename(target)
        finally:
            shutil.rmtree(making, ignore_errors=True)
        return tree.digest

    def path_of(self, named: str) -> Path:
        """Returns the path of `DIGEST` of a content, or of `DIGEST/NAME` in a directory. Raises
        UsageError, and NotFound for one that is not here any more."""
        digest, _, name = named.partition("/")
        found = self.place / TREES / _check_digest(digest) / _parse_relative(name) if name else None
        path = self._content(digest) if found is None else found
        if not path.exists():
            raise NotFound("a file that was sent is not on the server any more", hint="apply again")
        return path

    def paths_of(self, named: object) -> dict[str, str]:
        """Returns the paths of what a document names as sent, by the names in it. Raises as
        `path_of`."""
        if named is None:
            return {}
        if not isinstance(named, dict) or len(named) > FILES_MAX:
            raise UsageError("`sent` must be what was sent, by the names in the manifest")
        return {str(name): str(self.path_of(str(it))) for name, it in named.items()}

    def _fill(self, making: Path, tree: UploadedTree) -> None:
        size = 0
        try:
            for name in tree.directories:
                (making / _parse_relative(name)).mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, runs, digest in tree.files:
                content = self._content(digest)
                if not content.exists():
                    raise NotFound(f"the content of `{name[:200]}` has not arrived")
                size += content.stat().st_size
                if size > BYTES_MAX:
                    raise UsageError(f"a directory has at most {BYTES_MAX >> 20} MiB")
                copy = making / _parse_relative(name)
                copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with content.open("rb") as taken, open(copy, "xb", opener=_open_private) as file:
                    shutil.copyfileobj(taken, file)
                copy.chmod(0o700 if runs else 0o600)
            # The last, so that no file is written through one.
            for name, to in tree.links:
                link = making / _parse_relative(name)
                link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                link.symlink_to(to)
        except (OSError, ValueError) as error:
            raise UsageError(f"this is no directory: {error}") from None
        top = making.resolve()
        for name, _ in tree.links:
            link = making / name
            if link.readlink().is_absolute() or not link.resolve().is_relative_to(top):
                raise UsageError(f"the link `{name[:200]}` leads out of its directory")

    def _stored(self) -> Iterator[Path]:
        for part in (self.place / CONTENTS, self.place / PARTS):
            if part.is_dir():
                yield from (it for it in part.rglob("*") if it.is_file())

    def _count_arrived(self, digest: str) -> int:
        with suppress(FileNotFoundError):
            return self._part(digest).stat().st_size
        return 0

    def _content(self, digest: str) -> Path:
        return self.place / CONTENTS / _check_digest(digest)[:2] / digest

    def _part(self, digest: str) -> Path:
        return self.place / PARTS / _check_digest(digest)


def sweep_uploads(home: Path, specs: Iterable[str]) -> None:
    """Removes contents and directories that were not used for UNUSED_S, unless a stored spec names
    them. specs: those with `/uploads/` in them, JSON. To be called in a thread."""
    named = "\n".join(specs)
    old_s = time.time() - UNUSED_S
    for path in _list_uploads(home):
        if path.stat().st_mtime < old_s and str(path) not in named:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def measure_uploads(home: Path) -> Iterator[tuple[str, int, float]]:
    """Yields (namespace, bytes, when it was last used) of each."""
    for place in sorted((home / UPLOADS).iterdir()) if (home / UPLOADS).is_dir() else ():
        looks = [it.lstat() for it in place.rglob("*") if not it.is_dir()]
        used_s = max((it.st_mtime for it in looks), default=place.stat().st_mtime)
        yield place.name, sum(it.st_blocks * 512 for it in looks), used_s


def _list_uploads(home: Path) -> Iterator[Path]:
    for place in (home / UPLOADS).iterdir() if (home / UPLOADS).is_dir() else ():
        for part in (TREES, PARTS):
            if (place / part).is_dir():
                yield from (place / part).iterdir()
        if (place / CONTENTS).is_dir():
            for below in (place / CONTENTS).iterdir():
                yield from below.iterdir()


def _check_digest(digest: str) -> str:
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise UsageError("a digest is the SHA-256 of a content, 64 hex digits")
    return digest


def _parse_relative(name: str) -> str:
    """Returns a name below the directory. Raises UsageError for any other."""
    path = PurePosixPath(name)
    if str(path) != name or path.is_absolute() or name == "." or ".." in path.parts or "\0" in name:
        raise UsageError(f"`{name[:200]!a}` is no path below a directory")
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        raise UsageError(f"`{name[:200]!a}` is no name of a file") from None
    return name


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def refuse_without_room(room: tuple[int, int], size: int) -> tuple[int, int]:
    """Returns the room that is left after a content. Raises Refused."""
    left = (room[0] - size, room[1] - 1)
    if min(left) < 0:
        raise Refused(
            "there is no room for more files on the server",
            hint="they go 7 days after their last use; leave more out by `exclude`, or name a"
            " repository by `source.git`",
        )
    return left
