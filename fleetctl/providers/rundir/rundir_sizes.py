"""Measures the size of a directory on disk. It blocks: call it in a thread."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

BLOCK_BYTES = 512  # of st_blocks, whatever the file system


def disk_usage(path: Path | str) -> int:
    """Returns the bytes on disk of a file, or of all files below a directory. Files that
    are deleted meanwhile, or cannot be read, are not counted.
    """
    return sum(it.st_blocks for it in _walk_stats(os.fspath(path))) * BLOCK_BYTES


def _walk_stats(path: str) -> Iterator[os.stat_result]:
    try:
        top = os.lstat(path)
    except OSError:
        return
    yield top
    waiting = [path] if stat.S_ISDIR(top.st_mode) else []
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                try:
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                except OSError:
                    continue
