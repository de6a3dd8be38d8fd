"""Keeps beside the checkpoints of a run which of them it was seen writing when its attempt ended.

A small file in their directory, since that alone outlives a sandbox at every provider. watch.py
writes down what changes while it looks; prepare.py may move that away, and nothing else. A file
that is torn, of another object or a link says nothing, so nothing is moved for it. While there is
nothing to say there is no file: a program may take each name for one of its own.
"""

from __future__ import annotations

import os

from fleetctl.guest.task.text import compact, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fleetctl.guest.checkpoints.disk import Disk

NAME = ".fleetctl-checkpoints.json"
NAMES_MAX = 10_000  # of each list; older ones are forgotten


class Notebook:
    """writing: names that changed at the last look; moved: where that is which was set aside."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.writing: set[str] = set()
        self.moved: list[str] = []

    def save(self, disk: Disk) -> None:
        """Write it down. What the disk refuses is not known later, so nothing is moved for it."""
        if not self.writing and not self.moved:
            _forget(disk)
            return
        text = compact(
            {
                "about": "written by fleetctl: what its run left unfinished here",
                "owner": self.owner,
                "writing": sorted(self.writing)[:NAMES_MAX],
                "moved": self.moved[-NAMES_MAX:],
            }
        )
        try:
            _write(disk.path, (text + "\n").encode())
        except OSError:
            return


def notebook_of(disk: Disk, owner: str) -> Notebook:
    """The one that lies in the directory; an empty one where that is another object's."""
    made = Notebook(owner)
    # A link could lead to a file of somebody else's.
    data = None if os.path.islink(disk.at(NAME)) else disk.text(NAME)
    try:
        _fill(made, parse((data or b"").decode()))
    except (ValueError, TypeError, KeyError, RecursionError):
        return Notebook(owner)
    return made


def _fill(made: Notebook, found: Any) -> None:
    """Raises ValueError, TypeError or KeyError for what makes no sense."""
    if not made.owner or found["owner"] != made.owner:
        return
    made.writing = {str(one) for one in found["writing"]}
    made.moved = [str(one) for one in found["moved"]]


def _forget(disk: Disk) -> None:
    try:
        os.unlink(disk.at(NAME))
    except OSError:
        return


def _write(directory: str, data: bytes) -> None:
    """Over what is there, which volumes without rename can do, too; raises OSError."""
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(NAME, flags, 0o644, dir_fd=top)
    finally:
        os.close(top)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)
