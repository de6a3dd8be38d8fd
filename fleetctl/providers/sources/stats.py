"""Digests of files that were read before, so that a tree that nobody touched is not read again.

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

from fleetctl.providers.sources.apart import is_manifest
from fleetctl.providers.sources.tree import Entry

MANIFEST = "m"
SETTLED_NS = 2_000_000_000  # the coarsest clock of a disk that we know, FAT's

_Row = list[int | str]


class Stats:
    """place: the file that remembers; None: nothing is remembered."""

    def __init__(self, place: Path | None = None) -> None:
        self._place = place
        self._known: dict[str, _Row] = _read(place) if place is not None else {}
        self._seen: dict[str, _Row] = {}
        self._taken_at_ns = time.time_ns()
        self._changed = False

    def digest(self, entry: Entry, relative: str, found: os.stat_result) -> str:
        """SHA-256 of a file's content, 64 hex digits, and MANIFEST behind it where it is a manifest
        of ours. Raises OSError.
        """
        mark = [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
        known = self._known.get(relative)
        if known is not None and known[:-1] == mark:
            self._seen[relative] = known
            return str(known[-1])
        with open(entry.path, "rb") as stream:
            content = stream.read()
        digest = sha256(content).hexdigest() + (MANIFEST if is_manifest(relative, content) else "")
        if max(found.st_mtime_ns, found.st_ctime_ns) < self._taken_at_ns - SETTLED_NS:
            self._seen[relative] = [*mark, digest]
        self._changed = True
        return digest

    def keep(self) -> None:
        """Write down what was seen, where anything is new; a disk that takes nothing costs time."""
        if self._place is None or not (self._changed or len(self._seen) < len(self._known)):
            return
        fresh = self._place.with_name(f".{self._place.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            fresh.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.write_text(json.dumps(self._seen, separators=(",", ":")), encoding="utf-8")
            fresh.replace(self._place)


def _read(place: Path) -> dict[str, _Row]:
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
