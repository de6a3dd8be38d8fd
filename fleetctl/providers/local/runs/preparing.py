"""All that must stand before a keeper starts: directories, the image's Python, the source.

Called by keepers.py through the provider, once a keeper. Slow parts run as child processes or
threads.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path
from typing import Any

from fleetctl.providers.base import RunOrder
from fleetctl.providers.local.assets import envs, sources
from fleetctl.providers.local.paths import Layout, keeper_name
from fleetctl.providers.local.runs.orders import Prepared, keeper_config
from fleetctl.providers.paths import make_private


async def prepare(layout: Layout, order: RunOrder, *, tier: str) -> tuple[str, dict[str, Any]]:
    """(interpreter of the keeper, its config). Raises Refused or Unavailable."""
    for mount in order.template.volumes:
        make_private(layout.volume(mount.name))
    _spread(make_private(layout.jobs))
    make_private(layout.runs(order.uid))
    make_private(layout.work(order.uid))
    image = await envs.python_of(layout, order.template.image, layout.job(order.uid))
    keeper = make_private(layout.keeper(keeper_name(order.uid, order.template_hash)))
    source = await sources.fetch(layout, order.template.source, keeper)
    prepared = Prepared(
        python=image,
        source=str(source.directory) if source else None,
        source_name=source.name if source else "",
    )
    return image.python, keeper_config(layout, order, prepared, tier=tier)


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
