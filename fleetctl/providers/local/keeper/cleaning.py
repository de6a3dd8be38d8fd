"""Removes work directories without making the keeper wait.

The usual one holds nothing but what we made, and goes in a few calls; a bigger one is removed by a
child.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import Any, Callable

from .record import PRIVATE


class Janitor:
    """Knows the children that it has sent to clean."""

    def __init__(self) -> None:
        self._sent: set[int] = set()

    def knows(self, pid: int) -> bool:
        return pid in self._sent

    def ended(self, pid: int) -> None:
        self._sent.discard(pid)

    def __len__(self) -> int:
        return len(self._sent)

    def remove(self, work: str) -> None:
        try:
            _remove_small(work)
        except FileNotFoundError:
            return
        except OSError:
            pid = os.fork()
            if pid == 0:
                try:
                    remove_tree(work)
                finally:
                    os._exit(0)
            self._sent.add(pid)


def remove_tree(path: str) -> None:
    """Remove a directory that a task may have made hard to remove."""
    shutil.rmtree(path, onerror=_open_up)


def _remove_small(work: str) -> None:
    """Raises OSError when there is more than we made."""
    private = os.path.join(work, PRIVATE)
    for name in ("params.json", "result.json", "metrics.jsonl"):
        try:
            os.unlink(os.path.join(private, name))
        except FileNotFoundError:
            continue
    os.rmdir(os.path.join(private, "tmp"))
    os.rmdir(private)
    os.rmdir(work)


def _open_up(again: Callable[..., Any], path: str, _: Any) -> None:
    """A directory without permissions: give them, and try once more. What still refuses is left."""
    try:
        os.chmod(os.path.dirname(path), stat.S_IRWXU)
        if not os.path.islink(path):
            os.chmod(path, stat.S_IRWXU)
        if again in (os.open, os.scandir, os.lstat):
            shutil.rmtree(path, ignore_errors=True)
        else:
            again(path)
    except OSError:
        return
