"""The names of all runs that have begun, so durable that not even a power cut lets one begin twice.

A journal is the latch while the machine is up, but it may be lost with the power: then this list,
written before each batch of runs begins, proves that its runs have begun.
"""

from __future__ import annotations

import errno
import os

BOOT = "boot "  # begins a line that names the boot under which the next runs began


class BeginLog:
    def __init__(self, path: str, boot: str) -> None:
        self._handle = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        self._before: set[str] = set()
        under = ""
        for line in self._lines():
            if line.startswith(BOOT):
                under = line[len(BOOT) :]
            elif under != boot:
                self._before.add(line)
        self._unsaid = [] if under == boot else [BOOT + boot]

    def note(self, names: list[str]) -> None:
        """Returns when the names are on the disk. Raises OSError when the disk refuses."""
        lines = "".join(line + "\n" for line in (*self._unsaid, *names)).encode()
        whole = os.fstat(self._handle).st_size
        try:
            if os.write(self._handle, lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(self._handle)
        except OSError:
            os.ftruncate(self._handle, whole)  # half a line would spoil the next one
            raise
        self._unsaid = []

    def was_before(self, run: str) -> bool:
        """Returns whether the run began before the machine was started the last time."""
        return run in self._before

    def _lines(self) -> list[str]:
        with os.fdopen(os.dup(self._handle), "rb") as file:
            return file.read().decode("utf-8", "replace").splitlines()
