"""Is the state directory on a disk that can be trusted? Called when the store opens; reads, never
writes.

SQLite's log needs working locks and memory shared between processes. Network and FUSE filesystems
give one, the other or neither, and corrupt the file on the day that two machines meet in it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fleetctl.common.errors import StoreError

MOUNTINFO = Path("/proc/self/mountinfo")
OVERRIDE = "FLEETCTL_UNSAFE_FS"
_NETWORK = ("nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "davfs", "afs", "coda")
_CLUSTER = ("ceph", "lustre", "gfs2", "ocfs2", "beegfs", "gpfs", "orangefs", "glusterfs")
_FROM_THE_HOST = ("9p", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "drvfs")
_SHARED = frozenset((*_NETWORK, *_CLUSTER, *_FROM_THE_HOST))


def refuse_shared_filesystem(directory: Path) -> None:
    """Raises StoreError unless `directory` is on a local filesystem or `FLEETCTL_UNSAFE_FS=1` is
    set.

    Elsewhere than on Linux the filesystem is unknown and never refused.
    """
    if os.environ.get(OVERRIDE) == "1" or not sys.platform.startswith("linux"):
        return
    kind = filesystem_of(directory, MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape"))
    if kind in _SHARED or kind.split(".")[0] in ("fuse", "fuseblk"):
        raise StoreError(
            f"`{directory}` is on a `{kind}` filesystem; the store needs a local one, such as ext4",
            hint="set FLEETCTL_HOME to a directory on a local disk, "
            f"or {OVERRIDE}=1 to risk losing the store",
        )


def filesystem_of(directory: Path, mountinfo: str) -> str:
    """Returns the type of the filesystem that holds `directory`, or "" when no line of `mountinfo`
    covers it.
    """
    wanted = os.path.join(os.path.realpath(directory), "")
    longest = ""
    kind = ""
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) < 5 or not source:
            continue
        point = os.path.join(_unescape_field(fields[4]), "")
        # If two mounts share one point, the later line is the visible one.
        if wanted.startswith(point) and len(point) >= len(longest):
            longest = point
            kind = source.split(" ")[0]
    return kind


def _unescape_field(field: str) -> str:
    """Decodes a path: the kernel writes blanks in a path as `\040`, and so on."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field
