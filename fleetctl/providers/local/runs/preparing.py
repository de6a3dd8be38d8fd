"""All that must stand before a supervisor starts: directories, the image's Python, the source.

Called by supervisors.py through the provider, once a supervisor. Slow parts run as child processes
or threads.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path
from typing import Any

from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.local.assets import envs, sources
from fleetctl.providers.local.paths import Layout, supervisor_name
from fleetctl.providers.local.runs.supervisor_messages import Prepared, supervisor_config
from fleetctl.providers.paths import make_private


async def prepare(layout: Layout, request: RunRequest, *, tier: str) -> tuple[str, dict[str, Any]]:
    """(interpreter of the supervisor, its config). Raises Refused or Unavailable."""
    for mount in request.template.volumes:
        make_private(layout.volume(mount.name))
    _spread(make_private(layout.jobs))
    make_private(layout.runs(request.uid))
    make_private(layout.work(request.uid))
    image = await envs.python_of(layout, request.template.image, layout.job(request.uid))
    supervisor = make_private(
        layout.supervisor(supervisor_name(request.uid, request.template_hash))
    )
    source = await sources.fetch(layout, request.template.source, supervisor)
    prepared = Prepared(
        python=image,
        source=str(source.directory) if source else None,
        source_name=source.name if source else "",
    )
    return image.python, supervisor_config(layout, request, prepared, tier=tier)


def _spread(directory: Path) -> None:
    """Ask ext4 to give each directory in here a part of the disk of its own (`chattr +T`).

    A directory is otherwise put beside its parent, and where many files were deleted in the last
    minutes, ext4 takes 30 times as long to make a new one. Other file systems refuse, which is
    fine.
    """
    if sys.platform != "linux":
        return
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = struct.unpack("l", fcntl.ioctl(handle, _GET_FLAGS, struct.pack("l", 0)))[0]
        if not flags & _TOP_DIRECTORY:
            fcntl.ioctl(handle, _SET_FLAGS, struct.pack("l", flags | _TOP_DIRECTORY))
    except OSError:
        return
    finally:
        os.close(handle)


# From linux/fs.h and fs/ext4/ext4.h.
_GET_FLAGS, _SET_FLAGS, _TOP_DIRECTORY = 0x80086601, 0x40086602, 0x00020000
