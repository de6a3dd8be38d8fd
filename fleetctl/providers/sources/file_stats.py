"""Stores digests of files that were read before, so that an unchanged tree is not read again.

A digest is believed while size, both times and the file's number are what they were, and only of
files that had been left alone for a while when they were read: a file that is written twice within
one tick of the disk's clock looks the same (as git's index has it). Losing this costs time alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from hashlib import sha256
from pathlib import Path

from fleetctl.manifest.files import fence
from fleetctl.manifest.files.documents import POINTER
from fleetctl.providers.sources.tree_copy import Entry, FollowedLink
from fleetctl.providers.sources.unrelated_files import is_manifest

# Behind the digest of a file: it is a manifest of ours, or a pointer of Git LFS.
MANIFEST = "m"
LFS = "p"
SETTLED_NS = 2_000_000_000  # the coarsest clock of a disk that we know, FAT's

_Row = list[int | str]


class FileStats:
    """Digests of files by their stats. place: the file of the digests; None: no digest is kept."""

    def __init__(self, place: Path | None = None) -> None:
        self._place = place
        self._known: dict[str, _Row] = _read_stats(place) if place is not None else {}
        self._seen: dict[str, _Row] = {}
        self._taken_at_ns = time.time_ns()
        self._changed = False

    def digest(
        self,
        entry: Entry,
        relative: str,
        found: os.stat_result,
    ) -> str:
        """Returns the SHA-256 of a file's content, 64 hex digits, followed by MANIFEST or LFS for
        such a file. Raises OSError.
        """
        mark = [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
        known = self._known.get(relative)
        if known is not None and known[:-1] == mark:
            self._seen[relative] = known
            return str(known[-1])
        with fence.open_regular(entry.path, follow=isinstance(entry, FollowedLink)) as stream:
            content = stream.read()
        digest = sha256(content).hexdigest() + _sort_of_file(relative, content)
        if max(found.st_mtime_ns, found.st_ctime_ns) < self._taken_at_ns - SETTLED_NS:
            self._seen[relative] = [*mark, digest]
        self._changed = True
        return digest

    def keep(self) -> None:
        """Writes down new digests, if any; a disk that refuses costs time."""
        if self._place is None or not (self._changed or len(self._seen) < len(self._known)):
            return
        fresh = self._place.with_name(f".{self._place.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            fresh.parent.mkdir(
                mode=0o700,
                parents=True,
                exist_ok=True,
            )
            fresh.write_text(json.dumps(self._seen, separators=(",", ":")), encoding="utf-8")
            fresh.replace(self._place)


def _sort_of_file(relative: str, content: bytes) -> str:
    if content.startswith(POINTER):
        return LFS
    if is_manifest(relative, content):
        return MANIFEST
    return ""


def _read_stats(place: Path) -> dict[str, _Row]:
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if isinstance(found, dict):
        return found
    return {}
