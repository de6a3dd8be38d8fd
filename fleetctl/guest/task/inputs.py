"""Gives a task its files: beside the file of its parameters, with their paths in the parameters.

Called by the process that starts a program, in the sandbox or on the host. A program sees no other
file of its object, and the files are its own: what it does to them no other task sees.
"""

from __future__ import annotations

import os

from fleetctl.guest.task.text import spaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DIRECTORY = "inputs"
_PIECE_BYTES = 1024 * 1024


def name_inputs(
    order: dict[str, Any],
    files: str,
    roots: Mapping[str, str] = {},
) -> dict[str, str]:
    """Puts the paths of a task's files into its parameters, in place of their contents' names;
    returns the variables that differ from those of parameters. files: absolute path of the
    directory that holds the file of its parameters. roots: the directories of volumes by their
    mount paths, where they are not mounted there. May be called again.
    """
    given = order.get("files")
    if not given:
        return {}
    paths = [_path_of(it, files, roots) for it in given]
    params = dict(order["params"])
    variables = {}
    if "file" in params:
        params["file"] = paths[0]
    else:
        params["files"] = paths
        variables["TASK_FILES"] = "\n".join(paths)
    order["params"] = params
    if "params_text" in order:
        order["params_text"] = spaced(params)
    return variables


def _path_of(
    it: Mapping[str, str],
    files: str,
    roots: Mapping[str, str],
) -> str:
    if "mount" in it:
        return f"{roots.get(it['mount'], it['mount'])}/{it['path']}"
    return f"{files}/{DIRECTORY}/{it['name']}"


def write_inputs(order: dict[str, Any], files: str) -> None:
    """Writes a task's files, in place of those of an earlier task. Raises OSError."""
    given = order.get("files")
    directory = f"{files}/{DIRECTORY}"
    if os.path.islink(directory):
        os.unlink(directory)  # by an earlier task
    elif os.path.lexists(directory):
        remove_directory(directory)
    brought = [it for it in given or () if "mount" not in it]
    if not brought:
        return
    os.mkdir(directory, 0o700)
    for it in brought:
        path = f"{directory}/{it['name']}"
        if "/" in it["name"]:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(path, flags, 0o600)
        try:
            if "from" in it:
                _copy_file(it["from"], target)
            else:
                _write_all(target, _decode_base64(it.pop("b64")))  # an order is kept for long
        finally:
            os.close(target)


def remove_directory(directory: str) -> None:
    """Removes a directory that a task may have written to; links in it are not followed. Raises
    OSError.
    """
    os.chmod(directory, 0o700)
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                remove_directory(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(directory)


def _copy_file(origin: str, target: int) -> None:
    source = os.open(origin, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while piece := os.read(source, _PIECE_BYTES):
            _write_all(target, piece)
    finally:
        os.close(source)


def _write_all(target: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(target, left) :]


def _decode_base64(text: str) -> bytes:
    import binascii  # a module in C, which most tasks do without

    return binascii.a2b_base64(text)
