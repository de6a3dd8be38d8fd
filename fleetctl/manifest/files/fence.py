"""Opens the files that a manifest names, and no others: regular ones, so that a pipe without a
writer holds nobody up, and while manifests of a repository are loaded none outside of it. What such
a file says, and be it in the message of an error, must not get to who wrote the manifest.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedReader
from pathlib import Path

_ROOT: ContextVar[Path | None] = ContextVar("root", default=None)


class Outside(OSError):
    """A file that is not below the directory that is looked at."""


class NotRegular(OSError):
    """A pipe, a device or a socket in place of a file."""


@contextmanager
def fenced(root: Path) -> Iterator[None]:
    """Nothing is read from outside of this directory, whatever links say."""
    before = _ROOT.set(root.resolve())
    try:
        yield
    finally:
        _ROOT.reset(before)


def inside(path: str | Path) -> bool:
    root = _ROOT.get()
    return root is None or Path(os.path.realpath(path)).is_relative_to(root)


def check(path: str | Path) -> None:
    """To be asked before a file is opened. Raises Outside."""
    if not inside(path):
        raise Outside


def open_regular(path: str | Path) -> BufferedReader:
    """A file that a manifest names, to be read and closed. Raises OSError."""
    check(path)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise NotRegular(errno.EINVAL, "it is no regular file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def reason(error: OSError) -> str:
    """Why a file cannot be read, in small letters."""
    if isinstance(error, Outside):
        return "it lies outside of the repository"
    if isinstance(error, NotRegular):
        return "it is no regular file"
    return os.strerror(error.errno or 0).lower()
