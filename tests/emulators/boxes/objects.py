"""A bucket mounted as files, as mount-s3 does it with `--allow-delete --allow-overwrite`.

The box's pid 1 mounts it by FUSE (see inner/tree.py) and hands the device over; a thread of the
emulator answers for the kernel. So it holds for every program in the box, in any language, also
for what is linked statically. What programs meet, after mountpoint-s3's SEMANTICS.md:

- a file is written from its first byte on, without gaps, once; to open one that exists for writing
  takes O_TRUNC (else EPERM), to write elsewhere than at its end is EINVAL;
- it appears whole at close, or at fsync, after which nothing more can be written to it; until then
  nobody reads it, and what is killed before that leaves the object of before;
- rename is ENOSYS; link, symlink, chmod, chown, utime and truncate are EPERM;
- a directory is there while a file is below it; an empty one exists in its own mount alone.

Not covered: delays until other mounts see a change, part uploads that fail, quotas of requests.
Emulated file names of another mount's `mkdir` are not known here, as there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import IO

WRITE_BYTES_MAX = 128 * 1024
BUFFER_BYTES = WRITE_BYTES_MAX + 8192
ROOT = 1
FILE_MODE, FOLDER_MODE = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755
LANDING = ".landing-"  # how a file is named in its directory until all of it is there

# The kernel's structures, include/uapi/linux/fuse.h, of protocol 7.31.
MAJOR, MINOR = 7, 31
ATOMIC_O_TRUNC, BIG_WRITES = 1 << 3, 1 << 5
IN, OUT = Struct("<IIQQIIIHH"), Struct("<IiQ")
INIT_IN, INIT_OUT = Struct("<IIII"), Struct("<IIIIHHIIHHI28x")
ATTR = Struct("<QQQQQQIIIIIIIIII")
ENTRY, ATTR_OUT = Struct("<QQQQII"), Struct("<QII")
OPEN_IN, OPEN_OUT, CREATE_IN = Struct("<II"), Struct("<QIi"), Struct("<IIII")
READ_IN, WRITE_IN, WRITE_OUT = Struct("<QQIIQII"), Struct("<QQIIQII"), Struct("<II")
HANDLE, SETATTR_IN, STATFS_OUT = Struct("<Q"), Struct("<I"), Struct("<QQQQQIIII24x")
DIRENT = Struct("<QQII")
SET_TIMES = 16 | 32 | 128 | 256 | 1024  # atime, mtime, each also as "now"; ctime
SET_HANDLE = 64
FORGET, BATCH_FORGET, INTERRUPT = 2, 42, 36  # which take no answer


class _Upload:
    """A file that is being written. pid: who opened it."""

    def __init__(self, pid: int) -> None:
        self.pid, self.size, self.done = pid, 0, False
        self.spool: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed at release


class ObjectMount:
    """device: an open /dev/fuse on which the mount was made, which this closes; source: the
    directory that holds the objects, which others may change as well.
    """

    def __init__(self, device: int, source: Path) -> None:
        self._device, self._source = device, str(source)
        self._paths: dict[int, str] = {ROOT: ""}
        self._nodes: dict[str, int] = {"": ROOT}
        self._folders: set[str] = set()  # empty ones, of this mount alone
        self._uploads: dict[str, _Upload] = {}
        self._handles: dict[int, _Upload | int] = {}  # or the descriptor of one that is read
        self._answers: dict[int, Callable[[int, int, bytes], bytes]] = {
            1: self._lookup,
            3: self._getattr,
            4: self._setattr,
            9: self._mkdir,
            10: self._unlink,
            11: self._rmdir,
            14: self._open,
            15: self._read,
            16: self._write,
            17: self._statfs,
            18: self._release,
            20: self._fsync,
            25: self._flush,
            26: self._init,
            27: lambda *_: OPEN_OUT.pack(0, 0, 0),
            28: self._readdir,
            29: lambda *_: b"",
            30: lambda *_: b"",
            34: lambda *_: b"",
            35: self._create,
            38: lambda *_: b"",
            6: _denied,
            13: _denied,
        }

    def start(self) -> None:
        """The thread ends when the box's mounts do."""
        threading.Thread(target=self._serve, name="object mount", daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the mount is gone
            while True:
                try:
                    request = os.read(self._device, BUFFER_BYTES)
                except InterruptedError:
                    continue
                except OSError as error:
                    if error.errno in (errno.ENOENT, errno.EAGAIN):  # given up by who asked
                        continue
                    raise
                self._reply(request)
        os.close(self._device)
        for held in self._handles.values():
            if isinstance(held, int):
                os.close(held)
            else:
                held.spool.close()  # what was not closed is lost with the machine

    def _reply(self, request: bytes) -> None:
        _size, kind, number, node, _uid, _gid, pid, _ext, _pad = IN.unpack_from(request)
        if kind in (FORGET, BATCH_FORGET, INTERRUPT):
            return
        problem, body = 0, b""
        try:
            answer = self._answers.get(kind)
            if answer is None:
                raise OSError(errno.ENOSYS, "")
            body = answer(node, pid, request[IN.size :])
        except OSError as error:
            problem = -(error.errno or errno.EIO)
        with contextlib.suppress(FileNotFoundError):  # who asked has been interrupted
            os.write(self._device, OUT.pack(OUT.size + len(body), problem, number) + body)

    def _init(self, _node: int, _pid: int, data: bytes) -> bytes:
        _major, minor, ahead, flags = INIT_IN.unpack_from(data)
        flags &= ATOMIC_O_TRUNC | BIG_WRITES
        return INIT_OUT.pack(
            MAJOR, min(minor, MINOR), ahead, flags, 16, 12, WRITE_BYTES_MAX, 1, 0, 0, 0
        )

    def _lookup(self, node: int, _pid: int, data: bytes) -> bytes:
        return self._entry(self._below(node, data))

    def _getattr(self, node: int, _pid: int, _data: bytes) -> bytes:
        return ATTR_OUT.pack(0, 0, 0) + self._attr(self._paths[node])

    def _setattr(self, node: int, pid: int, data: bytes) -> bytes:
        """The time of a file that is being written may be set; it will be that of its upload."""
        (what,) = SETATTR_IN.unpack_from(data)
        if what & ~(SET_TIMES | SET_HANDLE) or self._paths[node] not in self._uploads:
            raise PermissionError(errno.EPERM, "")
        return self._getattr(node, pid, data)

    def _mkdir(self, node: int, _pid: int, data: bytes) -> bytes:
        path = self._below(node, data[8:])
        if self._sort(path):
            raise FileExistsError(errno.EEXIST, "")
        self._folders.add(path)
        return self._entry(path)

    def _unlink(self, node: int, _pid: int, data: bytes) -> bytes:
        path = self._below(node, data)
        if path in self._uploads:
            raise PermissionError(errno.EPERM, "")
        os.unlink(self._real(path))
        folder = os.path.dirname(path)
        while folder and not os.listdir(self._real(folder)):
            os.rmdir(self._real(folder))
            folder = os.path.dirname(folder)
        return b""

    def _rmdir(self, node: int, _pid: int, data: bytes) -> bytes:
        path = self._below(node, data)
        if self._sort(path) is None:
            raise FileNotFoundError(errno.ENOENT, "")
        if self._names(path):
            raise OSError(errno.ENOTEMPTY, "")
        self._folders.discard(path)
        return b""

    def _create(self, node: int, pid: int, data: bytes) -> bytes:
        path = self._below(node, data[CREATE_IN.size :])
        flags = CREATE_IN.unpack_from(data)[0]
        return self._entry_of_new(path, pid, flags)

    def _entry_of_new(self, path: str, pid: int, flags: int) -> bytes:
        opened = self._opened(path, pid, flags | os.O_TRUNC)
        return self._entry(path) + opened

    def _open(self, node: int, pid: int, data: bytes) -> bytes:
        return self._opened(self._paths[node], pid, OPEN_IN.unpack_from(data)[0])

    def _opened(self, path: str, pid: int, flags: int) -> bytes:
        if path in self._uploads:
            raise PermissionError(errno.EPERM, "")  # neither read nor written by a second one
        held: _Upload | int
        if flags & os.O_ACCMODE == os.O_RDONLY:
            held = os.open(self._real(path), os.O_RDONLY | os.O_CLOEXEC)
        elif not flags & os.O_TRUNC:
            raise PermissionError(errno.EPERM, "")
        else:
            held = self._uploads[path] = _Upload(pid)
        handle = max(self._handles, default=0) + 1
        self._handles[handle] = held
        return OPEN_OUT.pack(handle, 0, 0)

    def _read(self, _node: int, _pid: int, data: bytes) -> bytes:
        handle, offset, size = READ_IN.unpack_from(data)[:3]
        held = self._handles[handle]
        if not isinstance(held, int):
            raise OSError(errno.EBADF, "")
        return os.pread(held, size, offset)

    def _write(self, _node: int, _pid: int, data: bytes) -> bytes:
        handle, offset, size = WRITE_IN.unpack_from(data)[:3]
        upload = self._upload(handle)
        if upload.done:
            raise OSError(errno.EIO, "")
        if offset != upload.size:
            raise OSError(errno.EINVAL, "")
        upload.spool.write(data[WRITE_IN.size : WRITE_IN.size + size])
        upload.size += size
        return WRITE_OUT.pack(size, 0)

    def _fsync(self, node: int, _pid: int, data: bytes) -> bytes:
        held = self._handles[HANDLE.unpack_from(data)[0]]
        if not isinstance(held, int):
            self._land(self._paths[node], held)
        return b""

    def _flush(self, node: int, pid: int, data: bytes) -> bytes:
        """At every close. One by another process, or of what is still empty, is that of a copy of
        the descriptor, as shells make them: the file goes on.
        """
        held = self._handles[HANDLE.unpack_from(data)[0]]
        if not isinstance(held, int) and held.size and held.pid == pid:
            self._land(self._paths[node], held)
        return b""

    def _release(self, node: int, _pid: int, data: bytes) -> bytes:
        held = self._handles.pop(HANDLE.unpack_from(data)[0])
        if isinstance(held, int):
            os.close(held)
        else:
            self._land(self._paths[node], held)
            held.spool.close()
        return b""

    def _readdir(self, node: int, _pid: int, data: bytes) -> bytes:
        _handle, offset, size = READ_IN.unpack_from(data)[:3]
        path, found = self._paths[node], b""
        for at, name in enumerate([".", "..", *self._names(path)][offset:], start=offset + 1):
            raw = os.fsencode(name)
            mode = FOLDER_MODE if at <= 2 else self._sort(os.path.join(path, name)) or FILE_MODE
            entry = DIRENT.pack(at + 1, at, len(raw), stat.S_IFMT(mode) >> 12) + raw
            entry += bytes(-len(entry) % 8)
            if len(found) + len(entry) > size:
                break
            found += entry
        return found

    def _statfs(self, *_: object) -> bytes:
        huge = 1 << 40
        return STATFS_OUT.pack(huge, huge, huge, huge, huge, 4096, 255, 4096, 0)

    def _upload(self, handle: int) -> _Upload:
        held = self._handles[handle]
        if isinstance(held, int):
            raise OSError(errno.EBADF, "")
        return held

    def _land(self, path: str, upload: _Upload) -> None:
        """Make the object. What was there before is seen until all of the new one is."""
        if upload.done:
            return
        upload.done = True
        upload.spool.seek(0)
        real = self._real(path)
        folder, name = os.path.split(real)
        os.makedirs(folder, exist_ok=True)
        landing = os.path.join(folder, LANDING + name)
        with open(landing, "wb") as file:
            shutil.copyfileobj(upload.spool, file)
        os.replace(landing, real)
        self._uploads.pop(path, None)
        self._folders = {one for one in self._folders if not path.startswith(one + "/")}

    def _below(self, node: int, data: bytes) -> str:
        return os.path.join(self._paths[node], os.fsdecode(data.rstrip(b"\0")))

    def _real(self, path: str) -> str:
        return os.path.join(self._source, path) if path else self._source

    def _names(self, path: str) -> list[str]:
        try:
            kept = [one for one in os.listdir(self._real(path)) if not one.startswith(LANDING)]
        except FileNotFoundError:
            kept = []
        own = [
            os.path.basename(one)
            for one in (*self._folders, *self._uploads)
            if one and os.path.dirname(one) == path
        ]
        return sorted({*own, *(one for one in kept if self._sort(os.path.join(path, one)))})

    def _sort(self, path: str) -> int | None:
        """The mode of what is at a path; None when nothing is."""
        real = self._real(path)
        if path in self._uploads or os.path.isfile(real):
            return FILE_MODE
        if not path or path in self._folders:
            return FOLDER_MODE
        own = (*self._folders, *self._uploads)
        if any(one.startswith(path + "/") for one in own):
            return FOLDER_MODE
        return FOLDER_MODE if any(files for _, _, files in os.walk(real)) else None

    def _entry(self, path: str) -> bytes:
        attr = self._attr(path)
        node = self._nodes.setdefault(path, len(self._nodes) + 1)
        self._paths[node] = path
        return ENTRY.pack(node, 0, 0, 0, 0, 0) + attr

    def _attr(self, path: str) -> bytes:
        mode = self._sort(path)
        if mode is None:
            raise FileNotFoundError(errno.ENOENT, "")
        upload, size, at_s = self._uploads.get(path), 4096, 0
        if upload is not None:
            size = upload.size
        elif os.path.exists(self._real(path)):
            about = os.stat(self._real(path))
            size, at_s = about.st_size, int(about.st_mtime)
        node = self._nodes.get(path, len(self._nodes) + 1)
        links = 2 if mode == FOLDER_MODE else 1
        blocks = -(-size // 512)
        return ATTR.pack(
            node, size, blocks, at_s, at_s, at_s, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0
        )


def _denied(*_: object) -> bytes:
    raise PermissionError(errno.EPERM, "")
