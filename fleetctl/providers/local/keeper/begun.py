"""The names of all runs that have begun, so durable that not even a power cut lets one begin twice.

A journal is the latch while the machine is up, but it may be lost with the power: then this list,
written before each batch of runs begins, says that its runs have been.
"""

from __future__ import annotations

import os

BOOT = "boot "  # begins a line that names the boot under which the next runs began


class Begun:
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
        if under != boot:
            self.note([BOOT + boot])

    def note(self, names: list[str]) -> None:
        """Returns when the names are on the disk. Raises OSError when the disk refuses."""
        os.write(self._handle, "".join(name + "\n" for name in names).encode())
        os.fdatasync(self._handle)

    def was_before(self, run: str) -> bool:
        """Whether the run began before the machine was started the last time."""
        return run in self._before

    def _lines(self) -> list[str]:
        with os.fdopen(os.dup(self._handle), "rb") as file:
            return file.read().decode("utf-8", "replace").splitlines()
