"""Reloads the volumes of a function's container before each task, and commits them after it.

Shipped beside the guest and loaded by fleetctl_body.py; like that, it knows the standard library of
Python 3.9 and the SDK that every container has, and never imports ours. A container sees a volume
as it was when the container was made, until it asks; others see its files once they are committed.
"""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Mount = dict[str, Any]

OPEN_FILES = "open files"  # in Modal's words for why it does not reload
INSIDE = "/__modal/volumes"  # where Modal mounts volumes, under their ids

_known: dict[str, Any] = {}  # of this container, by name


class ContainerVolumes:
    """The volumes of a container. mounts: [{"name", "path", "writable"}]; insist: (reason, act)
    repeats a harmless act until Modal allows it, or raises that the run cannot go on here.
    """

    def __init__(self, mounts: list[Mount], insist: Callable[[str, Callable[[], None]], Any]):
        self._mounts = mounts
        self._insist = insist
        self._keeping: threading.Thread | None = None

    def show(self) -> None:
        """Reloads files that others have committed since the container was made.

        Modal refuses it while a file of the volume is open. Old data would make a wrong result
        silently; so each process with such a file is ended. It does no work of a task: a container
        runs one task at a time, and such a process is left from an earlier one. If even that does
        not help, the run is lost with the reason VolumeNotReloaded, and another attempt is made.
        """
        for mount in self._mounts:
            self._insist("VolumeNotReloaded", partial(_reload_volume, mount))

    def keep(self) -> None:
        """Makes the task's files durable and visible to others before it returns."""
        for mount in self._mounts:
            if mount["writable"]:
                self._insist("SyncFailed", partial(_commit_volume, mount))

    def keep_soon(self) -> None:
        """As `keep`, beside a task that goes on; a failure is reported only at the task's end."""
        if self._keeping is None or not self._keeping.is_alive():
            self._keeping = threading.Thread(target=self._keep_quietly, daemon=True)
            self._keeping.start()

    def _keep_quietly(self) -> None:
        try:
            self.keep()
        except Exception as error:  # the run goes on whatever becomes of this
            print(f"fleetctl: {error!r}", flush=True)


def _open_volume(mount: Mount) -> Any:
    import modal

    name = mount["name"]
    if name not in _known:
        _known[name] = modal.Volume.from_name(name)
    return _known[name]


def _reload_volume(mount: Mount) -> None:
    volume = _open_volume(mount)
    try:
        volume.reload()
    except RuntimeError as error:
        if OPEN_FILES in str(error):
            _end_holders((os.path.realpath(mount["path"]), f"{INSIDE}/{volume.object_id}"))
        raise


def _commit_volume(mount: Mount) -> None:
    try:
        _open_volume(mount).commit()
    except RuntimeError as error:
        # The SDK may reload after the commit, which open files prevent; the commit was done.
        if OPEN_FILES not in str(error):
            raise


def _end_holders(places: tuple[str, ...]) -> None:
    """Ends every other process that is in one of the directories, or has a file there open."""
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            links = [f"/proc/{name}/cwd"]
            links += [f"/proc/{name}/fd/{handle}" for handle in os.listdir(f"/proc/{name}/fd")]
            if any(_is_below(link, places) for link in links):
                os.kill(int(name), signal.SIGKILL)
        except OSError:
            continue  # it ended while we looked


def _is_below(link: str, places: tuple[str, ...]) -> bool:
    try:
        found = f"{Path(link).readlink()}/"
    except OSError:
        return False
    return any(found.startswith(f"{place}/") for place in places)
