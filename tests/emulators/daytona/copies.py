"""Copying a box's files, as they are: links, modes, and the marks of what was deleted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

# Most images hold the guest and little else: to start `cp` takes ten times as long as to copy it.
ENTRIES_MAX, BYTES_MAX = 64, 1 << 20


async def copy_tree(source: Path, goal: Path) -> None:
    """`goal` must not be there yet. Files that change meanwhile are copied in either state."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    if _is_small_and_plain(source):
        # As below: what vanished meanwhile is no failure.
        with contextlib.suppress(shutil.Error):
            shutil.copytree(source, goal, symlinks=True)
        return
    # `cp` also copies hard links and the device nodes by which an overlay marks a deleted file.
    process = await asyncio.create_subprocess_exec(
        "cp",
        "-a",
        "--reflink=auto",
        "--",
        str(source),
        str(goal),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _out, problem = await process.communicate()
    # A file that vanished while it was copied is no failure: the box goes on running.
    if process.returncode and not goal.is_dir():
        raise OSError(f"copying a box's files failed: {problem.decode(errors='replace')}")


def _is_small_and_plain(directory: Path) -> bool:
    """Few directories, links, and files that have no other name."""
    entries = size = 0
    for parent, directories, files in os.walk(directory):
        entries += len(directories) + len(files)
        for name in files:
            status = os.lstat(f"{parent}/{name}")
            plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
            if not plain and not stat.S_ISLNK(status.st_mode):
                return False
            size += status.st_size
        if entries > ENTRIES_MAX or size > BYTES_MAX:
            return False
    return True


def remove_tree(directory: Path) -> None:
    """Also where a program took its own rights away; nothing happens when it is not there."""

    def permit(remove: Callable[[str], object], path: str, _problem: object) -> None:
        if os.path.lexists(path):
            os.chmod(os.path.dirname(path), 0o700)
            if os.path.isdir(path) and not os.path.islink(path):
                os.chmod(path, 0o700)
                shutil.rmtree(path, ignore_errors=True)
            else:
                remove(path)

    shutil.rmtree(directory, onerror=permit)
