"""The calls that look through many files: for text, for names, and to replace text."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path

from aiohttp import web

from .calls import Call, Route
from .errors import ToolboxError, of_os_error, reply

TEXT_PROBE_BYTES = 512  # a file with a NUL in its first bytes is not text


async def find(call: Call) -> web.Response:
    path, pattern = call.query("path"), call.query("pattern")
    host = _existing(call, path)
    found: list[dict[str, object]] = []
    for file in _files(host):
        shown = _shown(path, host, file)
        for number, line in enumerate(_lines(file), start=1):
            if pattern in line:
                found.append({"file": shown, "line": number, "content": line})
    return reply(found)


async def search(call: Call) -> web.Response:
    """By name; the pattern is a glob of one path component."""
    path, pattern = call.query("path"), call.query("pattern")
    host = _existing(call, path)
    found = [
        _shown(path, host, Path(directory) / name)
        for directory, folders, names in os.walk(host)
        for name in sorted([*folders, *names])
        if fnmatch.fnmatchcase(name, pattern)
    ]
    return reply({"files": found})


async def replace(call: Call) -> web.Response:
    body = await call.body("ReplaceRequest", "files", "pattern")
    old, new = body.text("pattern"), body.text("newValue")
    return reply([_replaced(call, path, old, new) for path in body.texts("files")])


def _replaced(call: Call, path: str, old: str, new: str) -> dict[str, object]:
    host = call.toolbox.host(path)
    try:
        content = host.read_bytes()
        # Through the open file, so that its mode and its other names stay.
        with host.open("r+b") as file:
            file.truncate()
            file.write(content.replace(old.encode(), new.encode()))
    except OSError as error:
        return {"file": path, "success": False, "error": str(of_os_error(error, f"open {path}"))}
    return {"file": path, "success": True}


def _existing(call: Call, path: str) -> Path:
    host = call.toolbox.host(path)
    if not host.exists():
        raise ToolboxError(400, f"stat {path}: no such file or directory")
    return host


def _files(host: Path) -> Iterator[Path]:
    if host.is_file():
        yield host
        return
    for directory, folders, names in os.walk(host):
        folders.sort()
        for name in sorted(names):
            file = Path(directory) / name
            if file.is_file():
                yield file


def _lines(file: Path) -> Iterator[str]:
    with file.open("rb") as opened:
        if b"\0" in opened.read(TEXT_PROBE_BYTES):
            return
        opened.seek(0)
        for line in opened:
            yield line.decode(errors="replace").rstrip("\r\n")


def _shown(path: str, host: Path, file: Path) -> str:
    """As the client wrote the directory: relative when it was relative."""
    return path if file == host else os.path.join(path, file.relative_to(host))


ROUTES: list[Route] = [
    ("GET", "/files/find", find),
    ("GET", "/files/search", search),
    ("POST", "/files/replace", replace),
]
