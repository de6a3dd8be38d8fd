"""Walks the files below a directory, by descriptors, so that no link is followed on the way, and
reads the clock by which its file system dates changes.
"""

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Callable, Iterator, Optional


ENTRIES_MAX = 200_000  # that one walk looks at
DEPTH_MAX = 100  # of directories, each of which is open meanwhile
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

TICK_S, TICKS_MAX = 0.001, 50  # it goes on every 10 ms at the latest


class WalkTooLong(Exception):
    """Raised by a walk that met more entries than it may."""


class WalkedFile:
    """A file or a link; valid until the walk goes on. path: below the top."""

    def __init__(
        self,
        path: str,
        directory: int,
        status: os.stat_result,
    ) -> None:
        self.path = path
        self.status = status
        self._directory = directory

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)

    def open(self) -> int:
        """Returns an open descriptor of the regular file. Raises OSError."""
        handle = os.open(os.path.basename(self.path), _FILE, dir_fd=self._directory)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError("it is no file any more")
        return handle


class FileWalk:
    """enters: decides by its path whether a directory is walked. since_ns: regular files whose
    status changed before it are passed over. unread: directories that could not be walked.
    """

    def __init__(
        self,
        top: str,
        enters: Callable[[str], bool],
        *,
        entries_max: int = ENTRIES_MAX,
        since_ns: int = 0,
    ) -> None:
        self._top = top
        self._enters = enters
        self._since_ns = since_ns
        self._left = entries_max
        self._device = 0
        self.unread: list[str] = []

    def files(self) -> Iterator[WalkedFile]:
        """Yields regular files and links in the order of their names. Raises WalkTooLong."""
        top = self._open(self._top, None)
        if top is None:
            return
        try:
            self._device = os.fstat(top).st_dev
            yield from self._walk_directory(top, "", 0)
        finally:
            os.close(top)

    def _walk_directory(
        self,
        directory: int,
        prefix: str,
        depth: int,
    ) -> Iterator[WalkedFile]:
        since_ns = self._since_ns
        found: list[tuple[str, Optional[os.stat_result]]] = []
        with os.scandir(directory) as listing:
            for entry in listing:  # most files of a source are old: they cost a stat, and no more
                self._left -= 1
                if self._left < 0:
                    break
                if entry.is_dir(follow_symlinks=False):
                    found.append((entry.name, None))
                    continue
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode) or (
                    status.st_ctime_ns >= since_ns and stat.S_ISREG(status.st_mode)
                ):
                    found.append((entry.name, status))
        for name, about in sorted(found, key=lambda it: it[0]):
            path = prefix + name
            if about is not None:
                yield WalkedFile(path, directory, about)
            elif self._enters(path):
                yield from self._walk_entry(directory, name, path, depth + 1)
        if self._left < 0:
            raise WalkTooLong

    def _walk_entry(
        self,
        parent: int,
        name: str,
        path: str,
        depth: int,
    ) -> Iterator[WalkedFile]:
        if depth > DEPTH_MAX:
            self.unread.append(path)
            return
        handle = self._open(name, parent, path)
        if handle is None:
            return
        try:
            # A mount in the way is a volume, whose files stay there.
            if os.fstat(handle).st_dev == self._device:
                yield from self._walk_directory(handle, f"{path}/", depth)
        finally:
            os.close(handle)

    def _open(
        self,
        name: str,
        parent: Optional[int],
        path: str = ".",
    ) -> Optional[int]:
        try:
            return os.open(name, _DIRECTORY, dir_fd=parent)
        except OSError:
            self.unread.append(path)
            return None


def file_clock_ns(path: str, *, past: bool) -> int:
    """Returns the time of the file system's clock, by a change of the file at `path`.

    past: no file that is there already has this time; waits for it, some milliseconds.
    """
    first = now = _touch_status(path)
    for _ in range(TICKS_MAX if past else 0):
        if now != first:
            break
        time.sleep(TICK_S)
        now = _touch_status(path)
    return now


def _touch_status(path: str) -> int:
    """Changes a file's status alone, and returns when: by its other times others see whether it was
    read.
    """
    known = os.stat(path)
    os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))
    return os.stat(path).st_ctime_ns
