"""Watches the paths that manifests name, for `apply --watch`: directories of code, files of data.

Called by watch.py a few times a second. Reports only that a file was touched; the controller finds
out if the spec differs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

POLL_S = 2.0  # where the system reports no changes, such as for want of watches
ASK_MS = 1  # the watcher collects by itself; a call takes the collected changes


class SourceWatcher:
    """Follows the files that the last apply has read."""

    def __init__(self) -> None:
        self._read: tuple[str, ...] = ()
        self._files: dict[str, tuple[int, int] | None] = {}
        self._changes: Iterator[object] | None = None
        self._poll_at = 0.0

    def touched(self, read: Sequence[str]) -> bool:
        """Returns true where a file was touched since the last call, or may have been."""
        if tuple(read) != self._read:
            self._follow(tuple(read))
            self._has_changed()  # the first call begins the watching
            return True  # no notification reports an edit between the apply and that moment
        before, self._files = self._files, {name: _stat_mark(name) for name in self._files}
        return self._files != before or self._has_changed()

    def _follow(self, read: tuple[str, ...]) -> None:
        self._read = read
        directories = [name for name in read if Path(name).is_dir()]
        self._files = {name: _stat_mark(name) for name in read if name not in directories}
        self._changes = _watch_directories(directories) if directories else iter(())

    def _has_changed(self) -> bool:
        if self._changes is not None:
            try:
                return bool(next(self._changes, ()))
            except (OSError, RuntimeError):
                self._changes = None  # no watches left: poll now and then instead
        now = time.monotonic()
        due = now >= self._poll_at
        if due:
            self._poll_at = now + POLL_S
        return due


def _watch_directories(directories: Sequence[str]) -> Iterator[object]:
    import watchfiles

    return watchfiles.watch(
        *directories,
        debounce=ASK_MS,
        step=ASK_MS,
        rust_timeout=ASK_MS,
        yield_on_timeout=True,
        recursive=True,
    )


def _stat_mark(name: str) -> tuple[int, int] | None:
    """Returns a mark that changes with every save; None for a missing file."""
    try:
        found = os.stat(name)  # a few times a second
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
