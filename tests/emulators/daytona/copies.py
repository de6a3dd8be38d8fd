"""Copying a box's files, as they are: links, modes, and the marks of what was deleted."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path


async def copy_tree(source: Path, goal: Path) -> None:
    """`goal` must not be there yet. Files that change meanwhile are copied in either state."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    # `cp` also copies the device nodes by which an overlay marks a deleted file.
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
