"""Files of a machine: volumes listed, read, written and removed, and copies of sources received.

Runs on the machine, each verb in a process of its own. A path is relative to a directory of ours or
to a shared one that its user named, and no link leads out of it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable, Dict

from fleetctl.providers.machines.shipped.boxes import BoxError, remove_tree
from fleetctl.providers.machines.shipped.file_digests import (
    TooMuchContent,
    TooSlowContent,
    digests_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, List

READ_BYTES = 1024 * 1024


def _write_json(value: Any) -> int:
    view = memoryview(json.dumps(value).encode())
    while view:
        view = view[os.write(1, view) :]
    return 0


def _resolve_path(request: Dict[str, Any]) -> str:
    """Returns the absolute path. Raises BoxError for one that leads out."""
    top = os.path.realpath(request["top"])
    path: str = os.path.join(top, request["path"]) if request["path"] else top
    above = os.path.realpath(os.path.dirname(path) if path != top else path)
    if above != top and not above.startswith(top + os.sep):
        raise BoxError("path", f"`{request['path']}` leads out of the volume")
    return path


def list_entries(_: Any, request: Dict[str, Any], __: bytes) -> int:
    """Writes [path, is a directory, size, when it changed, digest] of each entry; null without the
    path. The digest is "" unless names are given in `contents`, and files above their limit.
    """
    path = _resolve_path(request)
    top = os.path.realpath(request["top"])
    if not os.path.lexists(path):
        return _write_json({"entries": None, "top": os.path.isdir(top)})

    paths = [path]
    if os.path.isdir(path):
        paths = sorted(_walk_entries(path, request["recursive"]))
    if not request.get("contents"):
        return _write_json({"entries": [_describe_entry(it, top) for it in paths]})

    # A link is no file with a content: it may lead anywhere.
    entries = [_describe_entry(it, top) for it in paths if not os.path.islink(it)]
    files = [(name, size) for name, is_directory, size, *_ in entries if not is_directory]
    try:
        digests = digests_of(top, files, names=request["contents"], limits=request["limits"])
    except TooMuchContent:
        return _write_json({"entries": [], "fault": "much"})
    except TooSlowContent:
        return _write_json({"entries": [], "fault": "slow"})
    except OSError:
        return _write_json({"entries": [], "fault": "unread"})
    return _write_json({"entries": [[*it, digests.get(it[0], "")] for it in entries]})


def _walk_entries(path: str, recursive: bool) -> Iterator[str]:
    for entry in os.scandir(path):
        yield entry.path
        if recursive and entry.is_dir(follow_symlinks=False):
            yield from _walk_entries(entry.path, recursive)


def _describe_entry(path: str, top: str) -> List[Any]:
    about = os.lstat(path)
    is_directory = os.path.isdir(path) and not os.path.islink(path)
    size = 0 if is_directory else about.st_size
    return [os.path.relpath(path, top), is_directory, size, about.st_mtime]


def receive(_: Any, request: Dict[str, Any], __: bytes) -> int:
    """Writes its standard input to a file, which is there whole or not at all."""
    path = _resolve_path(request)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    making = f"{path}.{os.getpid()}.part"
    size = 0
    try:
        with open(making, "wb") as file:
            while True:
                data = os.read(0, READ_BYTES)
                if not data:
                    break
                file.write(data)
                size += len(data)
        if size != request["bytes"]:
            raise BoxError("machine", f"{size} of {request['bytes']} bytes came")
        os.chmod(making, request.get("mode", 0o644))
        if os.path.isdir(path):
            raise BoxError("path", f"`{request['path']}` is a directory")
        os.replace(making, path)
    finally:
        if os.path.exists(making):
            os.unlink(making)
    return _write_json({"bytes": size})


def send(_: Any, request: Dict[str, Any], __: bytes) -> int:
    """Writes a file to its standard output; exits with 1 where there is none."""
    path = _resolve_path(request)
    try:
        with open(path, "rb") as file:
            while True:
                data = file.read(READ_BYTES)
                if not data:
                    return 0
                view = memoryview(data)
                while view:
                    view = view[os.write(1, view) :]
    except (FileNotFoundError, IsADirectoryError):
        return 1


def remove(_: Any, request: Dict[str, Any], __: bytes) -> int:
    path = _resolve_path(request)
    if not os.path.lexists(path):
        return _write_json({"removed": False})
    if not os.path.isdir(path) or os.path.islink(path):
        os.unlink(path)
    elif not request["recursive"]:
        return _write_json({"removed": False, "directory": True})
    elif request["path"]:
        remove_tree(path)
    else:
        for entry in list(os.scandir(path)):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
            else:
                os.unlink(entry.path)
        if request.get("whole"):
            os.rmdir(path)
    return _write_json({"removed": True})


def measure(_: Any, request: Dict[str, Any], __: bytes) -> int:
    path = _resolve_path(request)
    if not os.path.isdir(path):
        return _write_json({"bytes": None})
    return _write_json(
        {"bytes": sum(os.lstat(it).st_size for it in _walk_entries(path, recursive=True))}
    )


def ensure(_: Any, request: Dict[str, Any], __: bytes) -> int:
    os.makedirs(os.path.join(request["top"], request["path"]), 0o700, exist_ok=True)
    return _write_json({"ok": True})


def touch(_: Any, request: Dict[str, Any], __: bytes) -> int:
    """Notes that a copy is used; writes whether it is there."""
    path = _resolve_path(request)
    try:
        os.utime(path)
    except FileNotFoundError:
        return _write_json({"there": False})
    return _write_json({"there": True})


VERBS: Dict[str, Callable[[Any, Dict[str, Any], bytes], int]] = {
    "entries": list_entries,
    "receive": receive,
    "send": send,
    "remove": remove,
    "measure": measure,
    "ensure": ensure,
    "touch": touch,
}
assert sys.version_info >= (3, 9)
