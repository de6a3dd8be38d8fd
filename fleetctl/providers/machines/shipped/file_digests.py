"""Reads the digests of files below a directory, within limits. Called on machines that have the
files: by provider `local`, and by the agent of a machine.
"""

from __future__ import annotations

import os
import stat
import time
from fnmatch import fnmatchcase

from fleetctl.guest.journal.digest import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence

_PIECE_BYTES = 1024 * 1024
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TooMuchContent(Exception):
    """Raised where more files or bytes than the limit would have to be read."""


class TooSlowContent(Exception):
    """Raised when reading takes longer than the limit."""


def digests_of(
    top: str,
    files: Sequence[tuple[str, int]],
    *,
    names: str,
    limits: Mapping[str, int],
) -> dict[str, str]:
    """Returns SHA-256 in hex by path. files: paths below the top, and sizes; of one that is larger
    than `file_bytes` no digest is read. names: a pattern of their names. limits: `file_bytes`,
    `files`, `bytes`, `seconds`. Raises OSError, TooMuchContent and TooSlowContent.
    """
    wanted = [
        (path, size)
        for path, size in files
        if size <= limits["file_bytes"] and fnmatchcase(os.path.basename(path), names)
    ]
    if len(wanted) > limits["files"] or sum(size for _, size in wanted) > limits["bytes"]:
        raise TooMuchContent
    until_s = time.monotonic() + limits["seconds"]
    found = {}
    for path, _ in wanted:
        digest = _digest_file(os.path.join(top, path), until_s)
        if digest:
            found[path] = digest
    return found


def _digest_file(path: str, until_s: float) -> str:
    """Returns "" for what is no regular file any more."""
    handle = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        digest = sha256(b"")
        while piece := os.read(handle, _PIECE_BYTES):
            digest.update(piece)
            if time.monotonic() > until_s:
                raise TooSlowContent
        return str(digest.hexdigest())
    finally:
        os.close(handle)
