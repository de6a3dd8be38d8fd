"""Lays the source into a work directory, and makes a used copy equal to the source again, so that
it serves the next task: of many small files, that takes a tenth of another copy.

A task may do anything to its copy. What it did is found by kind, size, mode, times and names: a
file that was touched since the copy was last equal is read and compared. Hard links to the source
would be cheaper still, but an edit in place would reach all other tasks; a mount of an overlay
behaves unlike a directory (a directory of it cannot be renamed), and is not to be had everywhere.
Called in forked children, except for `learn_source`.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from fleetctl.guest.task.inputs import remove_directory

PIECE_BYTES = 1024 * 1024
# A clock of a disk that is this much behind the clock of processes is the slowest that we know.
SLACK_NS = 50_000_000
LEARNED_MAX = 20_000  # entries of a source that are noted: about 5 MiB of a supervisor
_HAS_XATTRS = hasattr(os, "listxattr")  # macOS has them by other functions


class _Looks(NamedTuple):
    """A directory of the source. entries: mode, bytes and time of change in ns, by name."""

    own: os.stat_result
    entries: dict[str, tuple[int, int, int]]


_looks: dict[str, _Looks] = {}


def lay_source(origin: str, target: str) -> None:
    """Copies a directory of regular files, links and directories. Raises OSError."""
    os.mkdir(target, 0o700)
    with os.scandir(origin) as entries:
        for entry in entries:
            _copy_entry(entry, os.path.join(target, entry.name))
    _give_looks(target, os.lstat(origin))


def learn_source(origin: str) -> None:
    """Notes how the entries of a source look, which does not change any more: all copies of it that
    this process and its children restore are compared with the notes.
    """
    waiting = [origin]
    count = 0
    while waiting and count < LEARNED_MAX:
        directory = waiting.pop()
        looks = _looks[directory] = _list_looks(directory)
        count += len(looks.entries)
        inside = (name for name, it in looks.entries.items() if stat.S_ISDIR(it[0]))
        waiting.extend(os.path.join(directory, name) for name in inside)


def restore_source(
    origin: str,
    target: str,
    since_ns: int,
) -> None:
    """Makes a copy equal to its origin. since_ns: time since the epoch at which it was so; 0 where
    that is unknown. Raises OSError.
    """
    if not stat.S_ISDIR(os.lstat(target).st_mode):
        raise NotADirectoryError(target)  # a task has put another thing there
    os.chmod(target, stat.S_IRWXU)
    looks = _looks.get(origin) or _list_looks(origin)
    lacking = dict(looks.entries)
    old_ns = since_ns - SLACK_NS
    odd = []
    with os.scandir(target) as entries:
        for entry in entries:  # a task waits for this loop: most files of a copy end in it
            wanted = lacking.pop(entry.name, None)
            theirs = entry.stat(follow_symlinks=False)
            if (
                wanted != (theirs.st_mode, theirs.st_size, theirs.st_mtime_ns)
                or theirs.st_ctime_ns >= old_ns
                or theirs.st_nlink != 1
                or not stat.S_ISREG(theirs.st_mode)
            ):
                odd.append((entry, theirs))
    for mate, theirs in odd:
        known = mate.name in looks.entries
        if not known or not _restore_entry(
            os.path.join(origin, mate.name), mate.path, theirs, since_ns
        ):
            remove_entry(mate)
            if known:
                lacking[mate.name] = looks.entries[mate.name]
    if lacking:
        with os.scandir(origin) as entries:
            for entry in entries:
                if entry.name in lacking:
                    _copy_entry(entry, os.path.join(target, entry.name))
    _give_looks(target, looks.own)


def remove_entry(entry: os.DirEntry[str]) -> None:
    """Removes a file, a link or a whole directory. Raises OSError."""
    if entry.is_dir(follow_symlinks=False):
        remove_directory(entry.path)
    else:
        os.unlink(entry.path)


def _list_looks(directory: str) -> _Looks:
    entries = {}
    with os.scandir(directory) as listing:
        for entry in listing:
            about = entry.stat(follow_symlinks=False)
            entries[entry.name] = (about.st_mode, about.st_size, about.st_mtime_ns)
    return _Looks(os.lstat(directory), entries)


def _restore_entry(
    origin: str,
    mate: str,
    theirs: os.stat_result,
    since_ns: int,
) -> bool:
    """Returns whether an entry of the copy is now what it was; False where it has to be copied."""
    looks = os.lstat(origin)
    if stat.S_IFMT(looks.st_mode) != stat.S_IFMT(theirs.st_mode):
        return False
    if stat.S_ISDIR(looks.st_mode):
        restore_source(origin, mate, since_ns)
        return True
    if stat.S_ISLNK(looks.st_mode):
        return os.readlink(origin) == os.readlink(mate)
    # Through another name of it, a task that comes later could edit it.
    if theirs.st_nlink != 1 or looks.st_size != theirs.st_size:
        return False
    if (looks.st_mode, looks.st_mtime_ns) != (theirs.st_mode, theirs.st_mtime_ns):
        return False
    return theirs.st_ctime_ns < since_ns - SLACK_NS or _same_content(origin, mate, looks.st_size)


def _same_content(one: str, other: str, size: int) -> bool:
    most = min(PIECE_BYTES, size + 1)  # a read allocates as much as it may return
    with open(one, "rb", buffering=0) as first, open(other, "rb", buffering=0) as second:
        while piece := first.read(most):
            if piece != second.read(most):
                return False
    return True


def _copy_entry(entry: os.DirEntry[str], target: str) -> None:
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), target)
    elif entry.is_dir(follow_symlinks=False):
        lay_source(entry.path, target)
    else:
        _copy_file(entry.path, target)


def _copy_file(origin: str, target: str) -> None:
    source = os.open(origin, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        copy = os.open(target, flags, 0o600)
        try:
            looks = os.fstat(source)
            most = min(PIECE_BYTES, looks.st_size + 1)
            while piece := os.read(source, most):
                left = memoryview(piece)
                while left:
                    left = left[os.write(copy, left) :]
            if _HAS_XATTRS:
                for name in os.listxattr(source):
                    if name.startswith("user."):
                        os.setxattr(copy, name, os.getxattr(source, name))
            _give_looks(copy, looks)
        finally:
            os.close(copy)
    finally:
        os.close(source)


def _give_looks(target: int | str, looks: os.stat_result) -> None:
    """Gives a file or a directory the mode and the times of its origin."""
    os.chmod(target, stat.S_IMODE(looks.st_mode))
    os.utime(target, ns=(looks.st_atime_ns, looks.st_mtime_ns))
