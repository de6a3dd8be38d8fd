"""Opens the files that a manifest names, and no others: regular ones, so that a pipe without a
writer blocks no caller, and only inside the repository of the manifest. The content of any other
file, even in the message of an error, must not reach the author of the manifest.

The root is the one of `fence_directory`, or else the checkout of a Source that the path lies in. It
also restricts files that are opened long after their manifest was read, when a later commit may
have replaced them by links.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedReader
from pathlib import Path

CHECKOUT_MARK = ".git/made-with"  # a file of each checkout of a Source
KERNEL_DIRECTORIES = ("/proc", "/sys", "/dev")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a disk of the machine's memory
_F_GETPATH, _PATH_BYTES_MAX = 50, 1024  # of macOS
# Gets the path that is read next, for the caller that waits for it.
LOOKING: ContextVar[list[str] | None] = ContextVar("looking", default=None)
_ROOT: ContextVar[Path | None] = ContextVar("root", default=None)


class OutsideRepository(OSError):
    """A file that is not below the directory that is looked at."""


class NotRegularFile(OSError):
    """A pipe, a device or a socket instead of a file."""


@contextmanager
def fence_directory(root: Path) -> Iterator[None]:
    """Restricts reads to this directory, whatever links point to."""
    before = _ROOT.set(root.resolve())
    try:
        yield
    finally:
        _ROOT.reset(before)


def is_inside(path: str | Path) -> bool:
    return _lies_in(_root_of(path), path)


def _lies_in(root: Path | None, path: str | Path) -> bool:
    return root is None or Path(os.path.realpath(path)).is_relative_to(root)


def check_inside(path: str | Path) -> None:
    """Checks a path before its file is opened. Raises Outside."""
    if not is_inside(path):
        raise OutsideRepository


def is_of_kernel(path: str | Path) -> bool:
    """Returns True if a path leads to a filesystem of the kernel: reading there may wait for ever,
    or never end.
    """
    real = os.path.realpath(path)
    return real == os.sep or any(
        Path(real).is_relative_to(it) and not Path(real).is_relative_to(_SHARED_MEMORY)
        for it in KERNEL_DIRECTORIES
    )


def look_at(path: str | Path) -> None:
    """Notes the file that is read next, for the caller that waits for it."""
    if (looking := LOOKING.get()) is not None:
        looking[0] = str(path)


def open_regular(path: str | Path, *, follow: bool = True) -> BufferedReader:
    """Opens a file that a manifest names; the caller closes it. follow: accept a link as the file.
    Raises OSError.
    """
    look_at(path)
    root = _root_of(path)
    if not _lies_in(root, path):
        raise OutsideRepository
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    handle = os.open(path, flags)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise NotRegularFile(errno.EINVAL, "it is no regular file", str(path))
        _check_opened(handle, path, root)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _check_opened(handle: int, path: str | Path, root: Path | None) -> None:
    """Checks the opened file, as a link may have replaced the path. Raises OutsideRepository,
    NotRegularFile.
    """
    if sys.platform == "darwin":
        opened = fcntl.fcntl(handle, _F_GETPATH, bytes(_PATH_BYTES_MAX)).rstrip(b"\0").decode()
    else:
        opened = os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115 - of every file
    if root is not None and not Path(opened).is_relative_to(root):
        raise OutsideRepository
    if any(opened.startswith(f"{it}/") for it in KERNEL_DIRECTORIES[:2]):
        raise NotRegularFile(errno.EINVAL, "it is no regular file", str(path))


def _root_of(path: str | Path) -> Path | None:
    """Returns the real path of the root that files must lie in, or None without one."""
    root = _ROOT.get()
    if root is not None:
        return root
    directory = os.fspath(path)
    # Texts, not paths: of a source of many small files this is most of an apply's time.
    while (above := os.path.dirname(directory)) != directory:
        directory = above
        if os.path.isfile(os.path.join(directory, CHECKOUT_MARK)):
            return Path(directory).resolve()
    return None


def describe_error(error: OSError) -> str:
    """Describes why a file cannot be read, in lower case."""
    if isinstance(error, OutsideRepository):
        return "it is outside of the repository"
    if isinstance(error, NotRegularFile):
        return "it is no regular file"
    return os.strerror(error.errno or 0).lower()
