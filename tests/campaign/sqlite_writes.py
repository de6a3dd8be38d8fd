"""Records what SQLite does to its files, in order: creations, writes, truncations, deletions and
syncs.

Wrappers around the functions of the system's own VFS record each call. Only files below one
directory count. Syncs are recorded but not executed, since the disk of a test never really loses
its power. Used by power_cuts.py.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.campaign.disk import Change, Sort

_POINTERS_OF_METHODS = (
    "xClose", "xRead", "xWrite", "xTruncate", "xSync", "xFileSize", "xLock", "xUnlock",
    "xCheckReservedLock", "xFileControl", "xSectorSize", "xDeviceCharacteristics", "xShmMap",
    "xShmLock", "xShmBarrier", "xShmUnmap", "xFetch", "xUnfetch",
)  # fmt: skip
_POINTERS_OF_VFS = (
    "pNext", "zName", "pAppData", "xOpen", "xDelete", "xAccess", "xFullPathname", "xDlOpen",
    "xDlError", "xDlSym", "xDlClose", "xRandomness", "xSleep", "xCurrentTime", "xGetLastError",
    "xCurrentTimeInt64", "xSetSystemCall", "xGetSystemCall", "xNextSystemCall",
)  # fmt: skip


class FileMethods(ctypes.Structure):
    """sqlite3_io_methods of sqlite3.h, version 3."""

    _fields_ = [("iVersion", ctypes.c_int)] + [(it, ctypes.c_void_p) for it in _POINTERS_OF_METHODS]


class Vfs(ctypes.Structure):
    """sqlite3_vfs of sqlite3.h, version 3."""

    _fields_ = [
        ("iVersion", ctypes.c_int),
        ("szOsFile", ctypes.c_int),
        ("mxPathname", ctypes.c_int),
    ] + [(it, ctypes.c_void_p) for it in _POINTERS_OF_VFS]


_OPEN = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p
)
_DELETE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_WRITE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
)
_TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_OK = 0


class Recorder:
    """The default VFS while `recorded` lasts. changes: the changes so far."""

    def __init__(self, library: ctypes.CDLL, root: Path) -> None:
        self.changes: list[Change] = []
        self._root = f"{root}/"
        self._paths: dict[int, str] = {}  # by the address of an open file
        self._patched: dict[int, FileMethods] = {}  # by the address of the methods they stand for
        self._replace = os.replace
        self._system = Vfs.from_address(library.sqlite3_vfs_find(None))
        self._open = _OPEN(self._system.xOpen)
        self._delete = _DELETE(self._system.xDelete)
        self._kept: list[Any] = []  # functions that C calls
        self.vfs = Vfs()
        ctypes.memmove(ctypes.byref(self.vfs), ctypes.byref(self._system), ctypes.sizeof(Vfs))
        self._name = ctypes.create_string_buffer(b"recording")
        self.vfs.zName = ctypes.addressof(self._name)
        self.vfs.xOpen = self._as_pointer(_OPEN, self._on_open)
        self.vfs.xDelete = self._as_pointer(_DELETE, self._on_delete)

    def note(self, change: Change) -> None:
        self.changes.append(change)

    def replace(self, source: str | Path, target: str | Path) -> None:
        """In place of os.replace."""
        self._replace(source, target)
        if str(source).startswith(self._root):
            old, new = (str(it).removeprefix(self._root) for it in (source, target))
            self.note(Change(Sort.RENAME, old, target=new))

    def _as_pointer(self, sort: Any, function: Callable[..., int]) -> int | None:
        made = sort(function)
        self._kept.append(made)
        return ctypes.cast(made, ctypes.c_void_p).value

    def _on_open(self, _: int, name: int, file: int, flags: int, out: int) -> int:
        path = os.fsdecode(ctypes.string_at(name)) if name else ""
        is_ours = path.startswith(self._root)
        # An empty one was made a moment ago, so that it has the mode that it should.
        is_new = is_ours and not (os.path.exists(path) and os.path.getsize(path))
        code = int(self._open(ctypes.addressof(self._system), name, file, flags, out))
        self._paths.pop(file, None)
        if code == _OK and is_ours:
            self._paths[file] = path.removeprefix(self._root)
            if is_new:
                self.note(Change(Sort.CREATE, self._paths[file]))
            methods = ctypes.c_void_p.from_address(file)
            assert methods.value is not None
            methods.value = ctypes.addressof(self._recording(methods.value))
        return code

    def _recording(self, methods: int) -> FileMethods:
        """Returns the methods with recording added to those that change a file."""
        found = self._patched.get(methods)
        if found is not None:
            return found
        theirs, ours = FileMethods.from_address(methods), FileMethods()
        ctypes.memmove(ctypes.byref(ours), ctypes.byref(theirs), ctypes.sizeof(FileMethods))
        write, truncate = _WRITE(theirs.xWrite), _TRUNCATE(theirs.xTruncate)

        def on_write(file: int, data: int, amount: int, offset: int) -> int:
            written = ctypes.string_at(data, amount)
            self.note(Change(Sort.WRITE, self._paths[file], offset, written))
            return int(write(file, data, amount, offset))

        def on_truncate(file: int, size: int) -> int:
            self.note(Change(Sort.TRUNCATE, self._paths[file], size))
            return int(truncate(file, size))

        def on_sync(file: int, _: int) -> int:
            self.note(Change(Sort.SYNC, self._paths[file]))
            return _OK

        ours.xWrite = self._as_pointer(_WRITE, on_write)
        ours.xTruncate = self._as_pointer(_TRUNCATE, on_truncate)
        ours.xSync = self._as_pointer(_SYNC, on_sync)
        self._patched[methods] = ours
        return ours

    def _on_delete(self, _: int, name: int, sync: int) -> int:
        path = os.fsdecode(ctypes.string_at(name))
        is_ours = path.startswith(self._root) and os.path.exists(path)
        code = int(self._delete(ctypes.addressof(self._system), name, 0))
        if code == _OK and is_ours:
            inside = path.removeprefix(self._root)
            self.note(Change(Sort.DELETE, inside))
            if sync:
                self.note(Change(Sort.SYNC, inside))
        return code


@contextmanager
def recorded(root: Path) -> Iterator[Recorder]:
    """What connections that are opened in the block do to files below `root`. They must be closed
    in it, too. Raises RuntimeError where the sqlite3 of this Python has no library of its own.
    """
    library = _library()
    recorder = Recorder(library, root)
    system = library.sqlite3_vfs_find(None)
    library.sqlite3_vfs_register(ctypes.byref(recorder.vfs), 1)
    try:
        with mock.patch.object(os, "replace", recorder.replace):
            yield recorder
    finally:
        library.sqlite3_vfs_register(system, 1)
        library.sqlite3_vfs_unregister(ctypes.byref(recorder.vfs))


def _library() -> ctypes.CDLL:
    """Returns the library that Python's own module calls, not a second copy."""
    for name in (None, ctypes.util.find_library("sqlite3")):
        library = ctypes.CDLL(name)
        try:
            library.sqlite3_vfs_find.restype = ctypes.c_void_p
        except AttributeError:
            continue
        library.sqlite3_vfs_register.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.sqlite3_vfs_unregister.argtypes = [ctypes.c_void_p]
        library.sqlite3_vfs_find.argtypes = [ctypes.c_char_p]
        library.sqlite3_libversion.restype = ctypes.c_char_p
        if library.sqlite3_libversion().decode() == sqlite3.sqlite_version:
            return library
    raise RuntimeError("the sqlite3 of this Python has no library that can be reached")
