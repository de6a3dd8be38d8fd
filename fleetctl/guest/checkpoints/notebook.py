"""Stores, beside a run's checkpoints, which ones it was writing when its attempt ended.

A small file in their directory, since that alone outlives a sandbox at every provider. watch.py
records what changes while it looks; prepare.py may move these names and no others. A file that is
torn, of another object or a link is ignored, so no checkpoint is moved for it. While the lists are
empty there is no file: a program may take each name for one of its own.
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
    """A run's lists. writing: names that changed at the last look; moved: paths set aside."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.writing: set[str] = set()
        self.moved: list[str] = []

    def save(self, disk: Disk) -> None:
        """Writes the file. When the disk refuses, later attempts move no checkpoint for it."""
        if not self.writing and not self.moved:
            _remove_file(disk)
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
            _overwrite_file(disk.path, (text + "\n").encode())
        except OSError:
            return


def notebook_of(disk: Disk, owner: str) -> Notebook:
    """Reads the directory's notebook; an empty one where the file is another object's."""
    made = Notebook(owner)
    # A link could lead to another owner's file.
    data = None if os.path.islink(disk.at(NAME)) else disk.text(NAME)
    try:
        _fill_notebook(made, parse((data or b"").decode()))
    except (ValueError, TypeError, KeyError, RecursionError):
        return Notebook(owner)
    return made


def _fill_notebook(made: Notebook, found: Any) -> None:
    """Copies the lists. Raises ValueError, TypeError or KeyError for malformed ones."""
    if not made.owner or found["owner"] != made.owner:
        return
    made.writing = {str(one) for one in found["writing"]}
    made.moved = [str(one) for one in found["moved"]]


def _remove_file(disk: Disk) -> None:
    try:
        os.unlink(disk.at(NAME))
    except OSError:
        return


def _overwrite_file(directory: str, data: bytes) -> None:
    """Overwrites the file itself, which volumes without rename allow, too; raises OSError."""
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
