"""Stores the files of tasks by their content, below the state directory: a task gets the file that
the plan showed, whatever is edited, renamed or removed meanwhile.

Called when an object is stored (`keep`), when a run starts (`path_of`), and now and then to remove
files that no object names (`sweep`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from fleetctl.manifest.files import fence
from fleetctl.providers.paths import make_private

INPUTS = "inputs"
YOUNG_S = 3600.0  # a file is stored before the object that names it
BLOCK_BYTES = 512
_PIECE_BYTES = 1024 * 1024


class ContentMoved(Exception):
    """A file has no longer the content that it was read with."""


class StoredContent(NamedTuple):
    """A content that is kept. bytes: on the disk; kept_s: when an object last named it."""

    digest: str
    bytes: int
    kept_s: float


class InputFiles:
    """home: the state directory."""

    def __init__(self, home: Path) -> None:
        self._place = home / INPUTS

    def keep(self, digest: str, origin: str) -> None:
        """Stores the file, unless its content is here. Raises ContentMoved, and OSError."""
        target = self._of(digest)
        if target.exists():
            os.utime(target)  # an object is about to name it
            return
        make_private(self._place)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        taking = self._place / f".taking.{os.getpid()}.{threading.get_ident()}"
        taken = sha256()
        try:
            with fence.open_regular(origin) as content, taking.open("wb") as file:
                while piece := content.read(_PIECE_BYTES):
                    taken.update(piece)
                    file.write(piece)
            if taken.hexdigest() != digest:
                raise ContentMoved
            taking.chmod(0o400)
            taking.rename(target)  # a file that exists is whole
        finally:
            taking.unlink(missing_ok=True)

    def path_of(self, digest: str) -> Path | None:
        """Returns the path of a stored content, or None."""
        found = self._of(digest)
        if found.exists():
            return found
        return None

    def listed(self) -> list[StoredContent]:
        """Returns all contents."""
        found = []
        for path in self._stored():
            looks = path.stat()
            if not path.name.startswith("."):
                size = looks.st_blocks * BLOCK_BYTES
                found.append(StoredContent(path.name, size, looks.st_mtime))
        return found

    def drop(self, digest: str, *, unused_since_s: float) -> None:
        """Deletes a content, unless it was kept again since then."""
        path = self._of(digest)
        with suppress(FileNotFoundError):
            if path.stat().st_mtime <= unused_since_s:
                path.unlink()

    def sweep(self, named: Collection[str]) -> None:
        """Removes contents that are not among these digests, except young ones."""
        old_s = time.time() - YOUNG_S
        for path in self._stored():
            if path.name not in named and path.stat().st_mtime < old_s:
                path.unlink(missing_ok=True)

    def _stored(self) -> Iterator[Path]:
        if self._place.is_dir():
            for part in self._place.iterdir():
                if part.name.startswith("."):
                    yield part  # of a process that was killed as it took it
                else:
                    yield from part.iterdir()

    def _of(self, digest: str) -> Path:
        return self._place / digest[:2] / digest
