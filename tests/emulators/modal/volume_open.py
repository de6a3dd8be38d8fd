"""Who in a box keeps a volume from being reloaded: an open file or a working directory inside it.

Called by volume_mounts.py. The words are those that the SDK knows and adds to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from tests.emulators.boxes import Box

REFUSAL = "there are open files preventing the operation"


class OpenFilesError(Exception):
    """The volume cannot be reloaded now."""


def check_closed(box: Box, mount_path: str) -> None:
    """Raises OpenFilesError. A box that is no place of its own has nothing mounted either."""
    if not box.alive or not box.isolated:
        return
    for command, place in _held(box):
        if f"{place}/".startswith(f"{mount_path.rstrip('/')}/"):
            raise OpenFilesError(f"{REFUSAL}: `{command}` has {place}")


def _held(box: Box) -> Iterator[tuple[str, str]]:
    """(command line, path) of all working directories and open files, as the box names them."""
    processes = f"/proc/{box.pid}/root/proc"
    for pid in filter(str.isdigit, os.listdir(processes)):
        with suppress(OSError):  # it ends while we look
            own = f"{processes}/{pid}"
            with open(f"{own}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
            yield command, os.readlink(f"{own}/cwd")
            for handle in os.listdir(f"{own}/fd"):
                with suppress(OSError):
                    yield command, os.readlink(f"{own}/fd/{handle}")
