"""A directory of checkpoints as the recognisers see it: names, sizes, and texts of small files.

Used by watch.py and prepare.py. Whoever keeps the run looks with the task's own rights, so a link
leads nowhere that the task could not go itself.
"""

from __future__ import annotations

import os

from fleetctl.guest.journal.digest import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

DIRECTORY = -1  # in place of a size
TEXT_BYTES_MAX = 4 * 1024 * 1024  # of a marker; a run on thousands of nodes names as many files
FILES_MAX = 100_000  # of one checkpoint, that are counted
HASH_BYTES = 1024 * 1024


class Disk:
    """Paths are relative to the directory, with `/`. What cannot be read is not there."""

    def __init__(self, path: str) -> None:
        self.path = path

    def names(self, below: str = "") -> dict[str, int]:
        """Each entry with its size in bytes; a directory has DIRECTORY."""
        found = {}
        try:
            with os.scandir(self.at(below)) as entries:
                for entry in entries:
                    try:
                        found[entry.name] = DIRECTORY if entry.is_dir() else entry.stat().st_size
                    except OSError:
                        continue  # it has just gone
        except OSError:
            return {}
        return found

    def size(self, name: str) -> int:
        """The size of a file in bytes; DIRECTORY for anything else, and for nothing."""
        try:
            about = os.stat(self.at(name))
        except OSError:
            return DIRECTORY
        return about.st_size if about.st_mode & 0o170000 == 0o100000 else DIRECTORY

    def text(self, name: str) -> Optional[bytes]:
        """The whole content of a small file; None where there is none, or a large one."""
        if not 0 <= self.size(name) <= TEXT_BYTES_MAX:
            return None
        return self.head(name, TEXT_BYTES_MAX)

    def head(self, name: str, most: int) -> bytes:
        return self._read(name, 0, most)

    def tail(self, name: str, most: int) -> bytes:
        return self._read(name, max(0, self.size(name) - most), most)

    def changed_at(self, name: str) -> int:
        """When the file was last written, in ns; 0 where there is none."""
        try:
            return os.stat(self.at(name)).st_mtime_ns
        except OSError:
            return 0

    def sha256(self, name: str) -> str:
        """The hash of a whole file, in hex; "" where it cannot be read."""
        try:
            with open(self.at(name), "rb") as file:
                digest = sha256(b"")
                while data := file.read(HASH_BYTES):
                    digest.update(data)
        except OSError:
            return ""
        return str(digest.hexdigest())

    def bytes_of(self, name: str) -> int:
        """How many bytes a file has, or all files below a directory."""
        alone = self.size(name)
        if alone != DIRECTORY:
            return alone
        total = count = 0
        for directory, _, files in os.walk(self.at(name)):
            for one in files:
                count += 1
                try:
                    total += os.stat(os.path.join(directory, one)).st_size
                except OSError:
                    continue
            if count > FILES_MAX:
                break
        return total

    def newest_at(self, name: str) -> int:
        """When anything of a file or below a directory was last written, in ns; 0 for nothing."""
        newest, count = self.changed_at(name), 0
        for directory, names, files in os.walk(self.at(name)):
            for one in (*names, *files):
                count += 1
                try:
                    about = os.lstat(os.path.join(directory, one))
                except OSError:
                    continue
                newest = max(newest, about.st_mtime_ns)
            if count > FILES_MAX:
                break
        return newest

    def at(self, name: str) -> str:
        return os.path.join(self.path, name) if name else self.path

    def _read(self, name: str, offset: int, most: int) -> bytes:
        try:
            handle = os.open(self.at(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(handle, most, offset)
        except OSError:
            return b""
        finally:
            os.close(handle)
