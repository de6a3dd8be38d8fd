"""Prepares all that a supervisor needs before its start: directories, the image's Python, the
source.

Called by supervisors.py through the provider, once a supervisor. Slow parts run as child processes
or threads.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.base import MountedFile, RunRequest
from fleetctl.providers.local.assets import envs, local_source
from fleetctl.providers.local.local_layout import (
    COVERING_HINT,
    LocalLayout,
    covering_mount,
    supervisor_name,
)
from fleetctl.providers.local.runs.supervisor_messages import PreparedRun, supervisor_config
from fleetctl.providers.paths import make_private


async def prepare_run(
    layout: LocalLayout,
    request: RunRequest,
    *,
    tier: str,
) -> tuple[str, dict[str, Any]]:
    """Returns (interpreter of the supervisor, its config). Raises Refused or Unavailable."""
    if (hidden := covering_mount(request.template, layout.home)) is not None:
        field, message = hidden
        raise Refused(f"{'.'.join(field)}: {message}", hint=COVERING_HINT)
    for mount in request.template.volumes:
        make_private(layout.volume(mount.name))
    _spread_directory(make_private(layout.jobs))
    make_private(layout.runs(request.uid))
    make_private(layout.work(request.uid))
    make_private(layout.inputs(request.uid))
    image = await envs.python_of(layout, request.template.image, layout.job(request.uid))
    supervisor = make_private(
        layout.supervisor(supervisor_name(request.uid, request.template_hash))
    )
    source = await local_source.fetch_source(layout, request.template.source, supervisor)
    prepared = PreparedRun(
        python=image,
        source=str(source.directory) if source else None,
        source_name=source.name if source else "",
    )
    return image.python, supervisor_config(layout, request, prepared, tier=tier)


def show_inputs(layout: LocalLayout, request: RunRequest) -> list[dict[str, str]]:
    """Puts the contents of a task's files where its supervisor reads them; returns the files as the
    guest takes them. A content is linked, not copied: runs cannot write to it there.
    """
    shown = []
    for it in request.files:
        if isinstance(it, MountedFile):
            shown.append({"mount": it.mount, "path": it.path})
            continue
        here = layout.inputs(request.uid) / it.digest
        with suppress(FileExistsError):
            here.hardlink_to(it.path)
        shown.append({"name": it.name, "from": str(here)})
    return shown


def _spread_directory(directory: Path) -> None:
    """Asks ext4 to give each directory in here a part of the disk of its own (`chattr +T`).

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
_GET_FLAGS = 0x80086601
_SET_FLAGS = 0x40086602
_TOP_DIRECTORY = 0x00020000
