"""Lays the source into a work directory, and makes a used copy equal to the source again, so that
it serves the next task: of many small files, that takes a tenth of another copy.

A task may do anything to its copy. What it did is found by kind, size, mode, times and names: a
file that was touched since the copy was last equal is read and compared. Hard links to the source
would be cheaper still, but an edit in place would reach all other tasks; a mount of an overlay
behaves unlike a directory (a directory of it cannot be renamed), and is not to be had everywhere.
Called in forked children alone.
"""

from __future__ import annotations

import os
import stat

from fleetctl.guest.task.inputs import remove_directory

PIECE_BYTES = 1024 * 1024
# A clock of a disk that is this much behind the clock of processes is the slowest that we know.
SLACK_NS = 50_000_000
_HAS_XATTRS = hasattr(os, "listxattr")  # macOS has them by other functions


def lay_source(origin: str, target: str) -> None:
    """Copies a directory of regular files, links and directories. Raises OSError."""
    os.mkdir(target, 0o700)
    with os.scandir(origin) as entries:
        for entry in entries:
            _copy_entry(entry, os.path.join(target, entry.name))
    _give_looks(target, os.lstat(origin))


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
    with os.scandir(target) as entries:
        left = {entry.name: entry for entry in entries}
    with os.scandir(origin) as entries:
        for entry in entries:
            path = os.path.join(target, entry.name)
            mate = left.pop(entry.name, None)
            if mate is not None and _restore_entry(entry, mate, since_ns):
                continue
            if mate is not None:
                remove_entry(mate)
            _copy_entry(entry, path)
    for mate in left.values():
        remove_entry(mate)
    _give_looks(target, os.lstat(origin))


def remove_entry(entry: os.DirEntry[str]) -> None:
    """Removes a file, a link or a whole directory. Raises OSError."""
    if entry.is_dir(follow_symlinks=False):
        remove_directory(entry.path)
    else:
        os.unlink(entry.path)


def _restore_entry(
    entry: os.DirEntry[str],
    mate: os.DirEntry[str],
    since_ns: int,
) -> bool:
    """Returns whether an entry of the copy is now what it was; False where it has to be copied."""
    looks = entry.stat(follow_symlinks=False)
    theirs = mate.stat(follow_symlinks=False)
    if stat.S_IFMT(looks.st_mode) != stat.S_IFMT(theirs.st_mode):
        return False
    if stat.S_ISDIR(looks.st_mode):
        restore_source(entry.path, mate.path, since_ns)
        return True
    if stat.S_ISLNK(looks.st_mode):
        return os.readlink(entry.path) == os.readlink(mate.path)
    # Through another name of it, a task that comes later could edit it.
    if theirs.st_nlink != 1 or looks.st_size != theirs.st_size:
        return False
    if (looks.st_mode, looks.st_mtime_ns) != (theirs.st_mode, theirs.st_mtime_ns):
        return False
    return theirs.st_ctime_ns < since_ns - SLACK_NS or _same_content(entry.path, mate.path)


def _same_content(one: str, other: str) -> bool:
    with open(one, "rb", buffering=0) as first, open(other, "rb", buffering=0) as second:
        while piece := first.read(PIECE_BYTES):
            if piece != second.read(PIECE_BYTES):
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
            while piece := os.read(source, PIECE_BYTES):
                left = memoryview(piece)
                while left:
                    left = left[os.write(copy, left) :]
            if _HAS_XATTRS:
                for name in os.listxattr(source):
                    if name.startswith("user."):
                        os.setxattr(copy, name, os.getxattr(source, name))
            _give_looks(copy, os.fstat(source))
        finally:
            os.close(copy)
    finally:
        os.close(source)


def _give_looks(target: int | str, looks: os.stat_result) -> None:
    """Gives a file or a directory the mode and the times of its origin."""
    os.chmod(target, stat.S_IMODE(looks.st_mode))
    os.utime(target, ns=(looks.st_atime_ns, looks.st_mtime_ns))
