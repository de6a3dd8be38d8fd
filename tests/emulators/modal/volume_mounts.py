"""Volumes in boxes: who has which working copy, and when it reaches the volume.

Called by whatever starts and ends boxes (sandboxes, function containers), with the id of the box
as its owner:

    attach(volume_id, owner, ...)  when it starts: the directory to bind at the mount path
    commit(owner)                  when it ends by itself or is terminated; `sync` calls it too
    inhabit(owner, box)            which box it is that has them
    reload(owner)                  the box asks for what others have committed meanwhile
    drop(owner)                    after the end, always; without a commit before it, what was
                                   never committed is lost, as when a machine is preempted

What the real service does in the background every few seconds is left out on purpose: nobody may
rely on it, so here it never happens.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.emulators.boxes import Box

from .volume_files import V2, Attachment, Volume, check_in, check_out
from .volume_open import check_closed

# Runs in the box as `sync`. It tells the emulator where it was asked to sync, and waits.
_SYNC = """#!{python} -ISB
import os, socket, sys
places = [os.path.realpath(a) for a in sys.argv[1:] if not a.startswith("-")] or ["/"]
body = "\\n".join(places).encode()
link = socket.create_connection(("127.0.0.1", {port}), 60)
link.sendall(b"POST {path} HTTP/1.0\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
answer = link.makefile("rb").read()
if not answer.split(b" ", 2)[1:2] == [b"200"]:
    sys.exit("sync: " + answer.decode(errors="replace").split("\\r\\n\\r\\n", 1)[-1])
"""

SYNC_IN_BOX = "/usr/bin/sync"  # over the system's own, so that every PATH finds it


class Mounts:
    """The working copies of all boxes. `directory` is where they lie."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.of: dict[str, list[Attachment]] = {}
        self._boxes: dict[str, Box] = {}

    def attach(
        self, volume: Volume, owner: str, *, mount_path: str, read_only: bool, sub_path: str = ""
    ) -> Path:
        held = self.of.setdefault(owner, [])
        directory = self.directory / owner / str(len(held))
        attachment = Attachment(volume, mount_path, directory, read_only, sub_path)
        check_out(attachment)
        held.append(attachment)
        return directory

    def inhabit(self, owner: str, box: Box) -> None:
        self._boxes[owner] = box

    def commit(self, owner: str) -> int:
        """Returns how many paths reached a volume."""
        return sum(len(check_in(attachment)) for attachment in self.of.get(owner, []))

    def commit_volume(self, owner: str, volume_id: str) -> bool:
        """False when this box does not have that volume."""
        mine = [held for held in self.of.get(owner, []) if held.volume.volume_id == volume_id]
        for attachment in mine:
            check_in(attachment)
        return bool(mine)

    def sync(self, owner: str, places: list[str]) -> int:
        """`sync <path>` in a box commits the volumes of version 2 whose mount is at, above or
        below that path. On version 1 it has no effect."""
        count = 0
        for attachment in self.of.get(owner, []):
            if attachment.volume.version == V2 and any(
                _related(place, attachment.mount_path) for place in places
            ):
                count += len(check_in(attachment))
        return count

    def reload(self, owner: str, volume_id: str = "") -> bool:
        """What the box has not committed yet is committed first. False when there is nothing to
        reload. Raises OpenFilesError, and then nothing is reloaded."""
        mine = [held for held in self.of.get(owner, []) if volume_id in ("", held.volume.volume_id)]
        for attachment in mine:
            check_closed(self._boxes[owner], attachment.mount_path)
        for attachment in mine:
            check_in(attachment)
            check_out(attachment)
        return bool(mine)

    def drop(self, owner: str) -> None:
        self._boxes.pop(owner, None)
        if self.of.pop(owner, None) is not None:
            shutil.rmtree(self.directory / owner, ignore_errors=True)

    def holders(self, volume_id: str) -> list[str]:
        return [
            owner
            for owner, held in self.of.items()
            if any(attachment.volume.volume_id == volume_id for attachment in held)
        ]

    def sync_command(self, owner: str, *, port: int) -> dict[str, Path]:
        """Files to bind into the box so that its `sync` commits; {} when no volume listens.
        `port` is the emulator's HTTP port, which serves sync_path(owner)."""
        if not any(held.volume.version == V2 for held in self.of.get(owner, [])):
            return {}
        script = self.directory / owner / "sync"
        python = getattr(sys, "_base_executable", sys.executable)
        script.write_text(_SYNC.format(python=python, port=port, path=sync_path(owner)))
        script.chmod(0o755)
        return {SYNC_IN_BOX: script}


def sync_path(owner: str) -> str:
    return f"/boxes/{owner}/sync"


def _related(place: str, mount_path: str) -> bool:
    one, other = place.rstrip("/") + "/", mount_path.rstrip("/") + "/"
    return one.startswith(other) or other.startswith(one)
