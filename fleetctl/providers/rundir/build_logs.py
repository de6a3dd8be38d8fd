"""Logs of image builds: one file a build, beside a link from every resource that uses the image.

Written by providers while they build, read by the CLI at the same time. The builder holds a lock on
the file, so that a reader sees whether more is to come, also after a crash. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from fleetctl.guest.supervision.processes import is_held
from fleetctl.providers.paths import checked_name, jobs_dir, make_private, providers_in

LINKS = "builds"  # the directory of links in a resource's own
TAIL_BYTES = 2000
HOLD_TRIES = 20
HOLD_PAUSE_S = 0.001


def link_log(job: Path, log: Path) -> None:
    """Links `log` for the resource whose directory is `job`. Idempotent."""
    links = make_private(job / LINKS)
    place = links / checked_name(log.name)
    if not place.is_symlink():
        temporary = links / f".{log.name}.{os.getpid()}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(os.path.relpath(log, os.path.realpath(links)))
        temporary.replace(place)


def logs_of(home: Path, uid: str) -> list[Path]:
    """The build logs of a resource, over all providers, oldest first; some may be empty yet."""
    found: list[Path] = []
    for provider in providers_in(home):
        links = jobs_dir(home, provider) / checked_name(uid) / LINKS
        if links.is_dir():
            found += [one for one in links.iterdir() if one.suffix == ".log" and one.exists()]
    return sorted(found, key=lambda one: (one.lstat().st_mtime_ns, one.name))


def is_building(log: Path) -> bool:
    """Returns whether a writer holds the log."""
    return is_held(log)


class BuildLog:
    """The log of a build, held while it goes on. The first line replaces the log of an earlier
    build of the same image; a build without output leaves that as it is. Where another process
    builds the same image already, its output is the log, and ours is dropped.
    """

    def __init__(self, path: Path) -> None:
        make_private(path.parent)
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._handle = os.open(path, flags, 0o600)
        self._begun = False
        self._held = False

    def __enter__(self) -> BuildLog:
        for _ in range(HOLD_TRIES):
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(HOLD_PAUSE_S)  # a reader unlocks it at once
            else:
                self._held = True
                break
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._handle)

    def fileno(self) -> int:
        """The descriptor, for a program that writes to it by itself."""
        self._begin()
        return self._handle

    def write(self, text: str) -> None:
        if not self._held:
            return
        self._begin()
        os.write(self._handle, text.encode("utf-8", "replace"))

    def settle(self, text: str) -> None:
        """Writes `text` if the file would otherwise be empty."""
        if os.fstat(self._handle).st_size == 0:
            self.write(text)

    def tail(self) -> str:
        """Returns the end of this build's output; "" without output."""
        if self._held and not self._begun:
            return ""
        size = os.fstat(self._handle).st_size
        start = max(0, size - TAIL_BYTES)
        return os.pread(self._handle, TAIL_BYTES, start).decode("utf-8", "replace").strip()

    def _begin(self) -> None:
        if self._held and not self._begun:
            self._begun = True
            os.ftruncate(self._handle, 0)
