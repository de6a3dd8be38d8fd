"""A directory of checkpoints as the recognisers see it, and the note beside it of those that a run
was writing when its attempt ended.

The supervisor of the run reads with the task's own rights, so a link leads only to files that the
task could read itself.

The note is a small file in the directory of the checkpoints, since that alone outlives a sandbox at
every provider. watch.py records what changes while it looks; prepare.py may move these names and no
others. A note that is torn, of another object or a link is ignored, so no checkpoint is moved for
it. While the lists are empty there is no note: a program may take each name for one of its own.
"""

from __future__ import annotations

import os

from fleetctl.guest.journal.digest import sha256
from fleetctl.guest.task.text import encode_compact, parse_json

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Optional


DIRECTORY = -1  # stands for a size
TEXT_BYTES_MAX = 4 * 1024 * 1024  # of a marker; a run on thousands of nodes names as many files
FILES_MAX = 100_000  # in a checkpoint, that are counted
HASH_BYTES = 1024 * 1024

NAME = ".fleetctl-checkpoints.json"
NAMES_MAX = 10_000  # of each list; older ones are forgotten


class Disk:
    """Reads one directory. Paths are relative to it, with `/`; unreadable entries are left out."""

    def __init__(self, path: str) -> None:
        self.path = path

    def names(self, below: str = "") -> dict[str, int]:
        """Returns each entry with its size in bytes; DIRECTORY for a directory."""
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
        """Returns the size of a file in bytes; DIRECTORY for any other or a missing entry."""
        try:
            about = os.stat(self.at(name))
        except OSError:
            return DIRECTORY
        if about.st_mode & 0o170000 == 0o100000:
            return about.st_size
        return DIRECTORY

    def text(self, name: str) -> Optional[bytes]:
        """Returns the whole content of a small file; None for a missing or a large one."""
        if not 0 <= self.size(name) <= TEXT_BYTES_MAX:
            return None
        return self.head(name, TEXT_BYTES_MAX)

    def head(self, name: str, most: int) -> bytes:
        return self._read(name, 0, most)

    def tail(self, name: str, most: int) -> bytes:
        return self._read(name, max(0, self.size(name) - most), most)

    def changed_at(self, name: str) -> int:
        """Returns when the file was last written, in ns; 0 for a missing one."""
        try:
            return os.stat(self.at(name)).st_mtime_ns
        except OSError:
            return 0

    def sha256(self, name: str) -> str:
        """Returns the hash of a whole file, in hex; "" for an unreadable one."""
        try:
            with open(self.at(name), "rb") as file:
                digest = sha256(b"")
                while data := file.read(HASH_BYTES):
                    digest.update(data)
        except OSError:
            return ""
        return str(digest.hexdigest())

    def bytes_of(self, name: str) -> int:
        """Returns how many bytes a file has, or all files below a directory."""
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
        """Returns the latest write of a file or below a directory, in ns; 0 for a missing one."""
        newest = self.changed_at(name)
        count = 0
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
        if name:
            return os.path.join(self.path, name)
        return self.path

    def _read(
        self,
        name: str,
        offset: int,
        most: int,
    ) -> bytes:
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


class Notebook:
    """A run's lists. writing: names that changed at the last look; moved: paths set aside."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.writing: set[str] = set()
        self.moved: list[str] = []

    def save(self, disk: Disk) -> None:
        """Writes the file. When the disk refuses, later attempts move no checkpoint for it."""
        if not self.writing and not self.moved:
            _remove_file(disk)
            return
        text = encode_compact(
            {
                "about": "written by fleetctl: what its run left unfinished here",
                "owner": self.owner,
                "writing": sorted(self.writing)[:NAMES_MAX],
                "moved": self.moved[-NAMES_MAX:],
            }
        )
        try:
            _overwrite_file(disk.path, (text + "\n").encode())
        except OSError:
            return


def notebook_of(disk: Disk, owner: str) -> Notebook:
    """Reads the directory's notebook; an empty one where the file is another object's."""
    made = Notebook(owner)
    # A link could lead to another owner's file.
    data = None if os.path.islink(disk.at(NAME)) else disk.text(NAME)
    try:
        _fill_notebook(made, parse_json((data or b"").decode()))
    except (ValueError, TypeError, KeyError, RecursionError):
        return Notebook(owner)
    return made


def _fill_notebook(made: Notebook, found: Any) -> None:
    """Copies the lists. Raises ValueError, TypeError or KeyError for malformed ones."""
    if not made.owner or found["owner"] != made.owner:
        return
    made.writing = {str(one) for one in found["writing"]}
    made.moved = [str(one) for one in found["moved"]]


def _remove_file(disk: Disk) -> None:
    try:
        os.unlink(disk.at(NAME))
    except OSError:
        return


def _overwrite_file(directory: str, data: bytes) -> None:
    """Overwrites the file itself, which volumes without rename allow, too; raises OSError."""
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(NAME, flags, 0o644, dir_fd=top)
    finally:
        os.close(top)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)
