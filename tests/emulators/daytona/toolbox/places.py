"""Where a path of a box lies on the host, for access to its files from outside.

The box knows its own tree and its mounts; here symbolic links are followed as the box would follow
them, so that an absolute link cannot lead out of it, and what the box has not written itself below
a system directory is looked up in the host's, which lies under the box's.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from tests.emulators.boxes import Box

LINKS_MAX = 40  # as the kernel's own limit on nested symbolic links
_SHARED = ("usr", "etc", "opt", "bin", "sbin", "lib", "lib32", "lib64", "libx32")


def absolute(path: str, *, cwd: str) -> str:
    """A client's path as an absolute box path; relative ones begin at the sandbox's directory."""
    return os.path.normpath(os.path.join(cwd, path)).replace("//", "/", 1)


def host_path(box: Box, path: str, *, follow_last: bool = True) -> Path:
    """The host's path of the absolute box path `path`, which need not exist.

    Raises OSError for a circle of links. Text, not Path objects: this runs several times a request.
    """
    pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    done = ""
    links = 0
    while pending:
        part = pending.pop()
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        step = f"{done}/{part}"
        host = _lexical(box, step)
        if not os.path.islink(host) or not (pending or follow_last):
            done = step
            continue
        links += 1
        if links > LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(host)
        if target.startswith("/"):
            done = ""
        pending.extend(part for part in reversed(target.split("/")) if part not in ("", "."))
    return Path(_lexical(box, done or "/"))


def _lexical(box: Box, path: str) -> str:
    """Of a path whose parents hold no symbolic link."""
    inside = box.host_text(path)
    if path.split("/", 2)[1] in _SHARED and not os.path.lexists(inside) and os.path.lexists(path):
        return path
    return inside
