"""Copying a box's files, as they are: links, modes, and the marks of what was deleted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

# Most images hold the guest and little else: to start `cp` takes ten times as long as to copy it.
ENTRIES_MAX, BYTES_MAX = 64, 1 << 20
REMOVED_AT_ONCE_MAX = 256  # entries, about a millisecond: to hand less to a thread takes longer


@dataclass(frozen=True, slots=True)
class Entry:
    """A directory, a file, or a link. `path` begins with a slash; the tree's own is empty."""

    path: str
    status: os.stat_result
    content: bytes | str | None  # of a file, or where a link leads; None for a directory
    attributes: Sequence[tuple[str, bytes]]  # overlays keep their notes there


@dataclass(frozen=True, slots=True)
class SmallTree:
    """All of a tree in memory, parents before children."""

    entries: Sequence[Entry]

    def write(self, goal: Path) -> None:
        """`goal` must not be there yet."""
        goal.parent.mkdir(parents=True, exist_ok=True)
        place = str(goal)
        for one in self.entries:
            _write(one, place + one.path)
        # Children first: a directory may let nobody in, and what is put into it changes its time.
        for one in reversed(self.entries):
            _permit(one, place + one.path)


def small_tree(directory: Path) -> SmallTree | None:
    """None when it is large, or has what only `cp` copies: hard links, the device nodes by which an
    overlay marks a deleted file, what is closed to us. What vanishes meanwhile is left out.
    """
    entries: list[Entry] = []
    size = 0
    pending = [""]
    while pending:
        path = pending.pop()
        try:
            one = _read(str(directory), path)
            names = sorted(os.listdir(f"{directory}{path}")) if one and one.content is None else []
        except FileNotFoundError:
            continue
        except PermissionError:
            return None
        if one is None:
            return None
        entries.append(one)
        size += len(one.content or "")
        if len(entries) + len(pending) + len(names) > ENTRIES_MAX or size > BYTES_MAX:
            return None
        pending += [f"{path}/{name}" for name in names]
    return SmallTree(entries)


async def copy_tree(source: Path, goal: Path) -> None:
    """`goal` must not be there yet. Files that change meanwhile are copied in either state."""
    small = small_tree(source)
    if small is not None:
        small.write(goal)
        return
    goal.parent.mkdir(parents=True, exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        "cp",
        "-a",
        "--reflink=auto",
        "--",
        str(source),
        str(goal),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _out, problem = await process.communicate()
    # A file that vanished while it was copied is no failure: the box goes on running.
    if process.returncode and not goal.is_dir():
        raise OSError(f"copying a box's files failed: {problem.decode(errors='replace')}")


def remove_few(directory: Path) -> bool:
    """Whether all is gone: not where there is much, which is for a thread, or what is closed."""
    try:
        return _remove_few(str(directory), REMOVED_AT_ONCE_MAX) >= 0
    except FileNotFoundError:
        return True
    except OSError:
        return False


def remove_tree(directory: Path) -> None:
    """Also where a program took its own rights away; nothing happens when it is not there."""

    def permit(remove: Callable[[str], object], path: str, _problem: object) -> None:
        if os.path.lexists(path):
            os.chmod(os.path.dirname(path), 0o700)
            if os.path.isdir(path) and not os.path.islink(path):
                os.chmod(path, 0o700)
                shutil.rmtree(path, ignore_errors=True)
            else:
                remove(path)

    shutil.rmtree(directory, onerror=permit)


def _remove_few(directory: str, most: int) -> int:
    """How many of `most` entries are left to others; below zero when it has stopped for that."""
    with os.scandir(directory) as found:
        entries = list(found)
    most -= len(entries)
    for entry in entries:
        if most < 0:
            return most
        if entry.is_dir(follow_symlinks=False):
            try:
                os.rmdir(entry.path)  # most are empty
            except OSError:
                most = _remove_few(entry.path, most)
        else:
            os.unlink(entry.path)
    if most >= 0:
        os.rmdir(directory)
    return most


def _read(directory: str, path: str) -> Entry | None:
    """None for what is neither a directory nor a link nor a file of moderate size and one name."""
    place = directory + path
    status = os.lstat(place)
    content: bytes | str | None = None
    if stat.S_ISLNK(status.st_mode):
        return Entry(path, status, os.readlink(place), ())
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size <= BYTES_MAX:
        with open(place, "rb") as file:
            content = file.read()
    elif not stat.S_ISDIR(status.st_mode):
        return None
    return Entry(path, status, content, _attributes(place))


def _attributes(place: str) -> Sequence[tuple[str, bytes]]:
    # Not every file system has them.
    with contextlib.suppress(OSError):
        return [(name, os.getxattr(place, name)) for name in os.listxattr(place)]
    return ()


def _write(one: Entry, place: str) -> None:
    if one.content is None:
        os.mkdir(place)
    elif isinstance(one.content, str):
        os.symlink(one.content, place)
    else:
        with open(place, "xb") as file:
            file.write(one.content)


def _permit(one: Entry, place: str) -> None:
    """All but what is in it: attributes, mode, times."""
    for name, value in one.attributes:
        with contextlib.suppress(OSError):
            os.setxattr(place, name, value)
    if not isinstance(one.content, str):
        os.chmod(place, stat.S_IMODE(one.status.st_mode))
    times = (one.status.st_atime_ns, one.status.st_mtime_ns)
    os.utime(place, ns=times, follow_symlinks=False)
