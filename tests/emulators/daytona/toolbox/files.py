"""The calls about files and folders one by one: list, look at, make, delete, move, permit."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shutil
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from .calls import Call, Route, Toolbox
from .errors import ToolboxError, bad_request, of_os_error, reply


async def list_files(call: Call) -> web.Response:
    path = call.toolbox.path(call.request.query.get("path") or ".")
    depth = _number(call.request.query.get("depth") or "1")
    if depth < 1:
        raise bad_request("depth must be at least 1")
    try:
        found = [info(call.toolbox, one) for one in _entries(call.toolbox, path, depth)]
    except OSError as error:
        raise of_os_error(error, f"open {path}") from error
    return reply(found)


async def get_info(call: Call) -> web.Response:
    path = call.query("path")
    try:
        return reply(info(call.toolbox, call.toolbox.path(path), follow=True))
    except OSError as error:
        raise of_os_error(error, f"stat {path}") from error


async def create_folder(call: Call) -> web.Response:
    path, mode = call.query("path"), _mode(call.query("mode"))
    host = call.toolbox.host(path)
    try:
        new = not host.exists()
        host.mkdir(parents=True, exist_ok=True)
        if new:
            host.chmod(mode)
    except OSError as error:
        raise bad_request(f"mkdir {path}: {(error.strerror or '').lower()}") from error
    return web.Response(status=201)


async def delete(call: Call) -> web.Response:
    path = call.query("path")
    recursive = call.request.query.get("recursive") == "true"
    host = call.toolbox.host(path, follow_last=False)
    try:
        if not host.is_dir() or host.is_symlink():
            host.unlink()
        elif recursive:
            shutil.rmtree(host)
        else:
            raise bad_request("cannot delete directory without recursive flag")
    except OSError as error:
        raise of_os_error(error, f"stat {path}") from error
    return web.Response(status=204)


async def move(call: Call) -> web.Response:
    source, destination = call.query("source"), call.query("destination")
    here = call.toolbox.host(source, follow_last=False)
    there = call.toolbox.host(destination, follow_last=False)
    if not os.path.lexists(here):
        raise _missing(source)
    if not there.parent.is_dir():
        raise _missing(os.path.dirname(call.toolbox.path(destination)))
    if there.exists():
        raise ToolboxError(409, "destination already exists")
    try:
        if call.sandbox.box is not None and call.sandbox.box.is_object(call.toolbox.path(source)):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        shutil.move(here, there)
    except OSError as error:
        raise bad_request(f"failed to move file: {(error.strerror or '').lower()}") from error
    return web.Response(status=200)


async def set_permissions(call: Call) -> web.Response:
    path, query = call.query("path"), call.request.query
    host = call.toolbox.host(path)
    if not host.exists():
        raise _missing(path)
    owner = _number_of(query.get("owner"), lambda name: pwd.getpwnam(name).pw_uid)
    group = _number_of(query.get("group"), lambda name: grp.getgrnam(name).gr_gid)
    try:
        if call.sandbox.box is not None and call.sandbox.box.is_object(call.toolbox.path(path)):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        if query.get("mode"):
            host.chmod(_mode(query["mode"]))
        if owner >= 0 or group >= 0:
            os.chown(host, owner, group)
    except OSError as error:
        raise of_os_error(error, f"chmod {path}") from error
    return web.Response(status=200)


def info(toolbox: Toolbox, path: str, *, follow: bool = False) -> dict[str, object]:
    """What the API tells of the file at the absolute box path `path`. Raises OSError."""
    host = toolbox.host(path, follow_last=follow)
    found = host.stat() if follow else host.lstat()
    at = datetime.fromtimestamp(found.st_mtime_ns / 1e9, UTC)
    fraction = f"{found.st_mtime_ns % 10**9:09d}".rstrip("0")
    return {
        "name": os.path.basename(path) or "/",
        "path": path,
        "isDir": stat.S_ISDIR(found.st_mode),
        "size": found.st_size,
        "mode": _go_mode(found.st_mode),
        "permissions": f"{stat.S_IMODE(found.st_mode) & 0o777:04o}",
        "modTime": f"{at:%Y-%m-%d %H:%M:%S}{'.' + fraction if fraction else ''} +0000 UTC",
        "modifiedAt": at.isoformat().replace("+00:00", "Z"),
        "owner": _name(found.st_uid, lambda number: pwd.getpwuid(number).pw_name),
        "group": _name(found.st_gid, lambda number: grp.getgrgid(number).gr_name),
    }


def _entries(toolbox: Toolbox, directory: str, depth: int) -> Iterator[str]:
    for name in sorted(os.listdir(toolbox.host(directory))):
        path = f"{directory.rstrip('/')}/{name}"
        yield path
        host: Path = toolbox.host(path, follow_last=False)
        if depth > 1 and host.is_dir() and not host.is_symlink():
            yield from _entries(toolbox, path, depth - 1)


def _go_mode(mode: int) -> str:
    """`drwxr-xr-x`; a regular file begins with a hyphen, a symbolic link with a capital."""
    text = stat.filemode(mode)
    return "L" + text[1:] if text[0] == "l" else text


def _mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError as error:
        raise bad_request("invalid mode format") from error
    if not 0 <= mode <= 0o7777:
        raise bad_request("invalid mode format")
    return mode


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise bad_request(f"not a number: {text}") from error


def _number_of(text: str | None, named: Callable[[str], int]) -> int:
    """Of a user or group by number or name; -1, which changes nothing, when none is given."""
    if not text:
        return -1
    if text.isdigit() and int(text) < 2**31:
        return int(text)
    try:
        return named(text)
    except KeyError as error:
        raise bad_request(f"unknown user or group: {text}") from error


def _name(number: int, named: Callable[[int], str]) -> str:
    try:
        return named(number)
    except KeyError:
        return str(number)


def _missing(path: str) -> ToolboxError:
    return ToolboxError(404, f"stat {path}: no such file or directory", code="FILE_NOT_FOUND")


ROUTES: list[Route] = [
    ("GET", "/files", list_files),
    ("DELETE", "/files", delete),
    ("GET", "/files/info", get_info),
    ("POST", "/files/folder", create_folder),
    ("POST", "/files/move", move),
    ("POST", "/files/permissions", set_permissions),
]
