"""Helpers that store data: volume files, workspace files and named buffers.

Part of the guest. The first volume of the task is the helpers' root; no file outside is read or
written. Mistakes come back as text in brackets, as the programs that use these helpers expect.
A refusal of the volume itself is an OSError: a task must not succeed without its data stored.
"""

from __future__ import annotations

import errno
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional


# The errors of a volume that can neither rename nor append, as mounted object stores: there a file
# becomes visible, as a whole, when it is closed.
_OBJECTS_ALONE = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL)
# There a directory disappears with its last file, also between two calls of a writer, when
# another task removes a file. Each round of tries needs such a moment again.
_VANISHED_TIMES = 8


class Outside(Exception):
    """A path that leaves the volume; the text is the error in brackets."""


class Storage:
    """One task's view of its first volume. mount: the path that the manifest names; root: its real
    path; remark: takes the problem of a text that is not saved though no error is raised.
    """

    def __init__(
        self,
        mount: str = "",
        root: str = "",
        remark: Optional[Callable[[str], None]] = None,
    ) -> None:
        self.mount = mount
        self.root = root
        self._remark = remark

    def save_to_volume(self, path: str, content: Any) -> str:
        """Writes a text (or bytes) so that readers see the old or the new file; returns its full
        path. Raises OSError where the volume does not store it.
        """
        return self._write_through(path, "", lambda real: _write_file(real, content))

    def load_from_volume(self, path: str) -> str:
        """Returns the text of a file, or `[file not found: ...]`."""
        return self._guarded(path, "", _read_text)

    def workspace_write(self, path: str, content: Any) -> str:
        return self._write_through(path, "workspace", lambda real: _write_file(real, content))

    def workspace_read(self, path: str) -> str:
        return self._guarded(path, "workspace", _read_text)

    def workspace_append(self, path: str, content: Any) -> str:
        """Appends a text. Where a volume cannot append, the file is rewritten with the text at its
        end; then one of two writers at once loses. Raises OSError.
        """
        return self._write_through(path, "workspace", lambda real: _append_file(real, content))

    def workspace_list(self, pattern: str = "*") -> Any:
        """Returns paths of matching files below the workspace, relative to it, sorted."""
        if not self.root:
            return self._missing()
        top = os.path.join(self.root, "workspace")
        import fnmatch

        found = []
        for directory, _, names in os.walk(top):
            found += [os.path.relpath(os.path.join(directory, name), top) for name in names]
        return sorted(name for name in found if fnmatch.fnmatch(name, pattern))

    def _write_through(
        self,
        path: str,
        below: str,
        write: Callable[[str], None],
    ) -> str:
        """Returns the path that was written; or its problem, in brackets. Raises OSError."""
        failed: list[OSError] = []

        def act(real: str) -> None:
            try:
                write(real)
            except OSError as error:
                failed.append(error)

        shown = self._guarded(path, below, act)
        if failed:
            text = f"{shown} is not saved: {failed[0].strerror}"
            raise OSError(failed[0].errno, text) from failed[0]
        if shown.startswith("[") and self._remark is not None:
            self._remark(f"`{path}` is not saved: {shown}")
        return shown

    def _guarded(
        self,
        path: str,
        below: str,
        act: Callable[[str], Optional[str]],
    ) -> str:
        """Returns `act(real path)`, or the path where that is None; or a problem in brackets."""
        if not self.root:
            return self._missing()
        try:
            relative = self._relative(str(path), below)
        except Outside as error:
            return str(error)
        shown = os.path.join(self.mount, relative)
        try:
            answer = act(os.path.join(self.root, relative))
            return shown if answer is None else answer
        except FileNotFoundError:
            return f"[file not found: {shown}]"
        except OSError as error:
            return f"[error: {shown}: {error.strerror}]"

    def _relative(self, path: str, below: str) -> str:
        """Returns `path` relative to the volume, links followed. Raises Outside."""
        base = os.path.realpath(os.path.join(self.root, below))
        mounted = os.path.join(self.mount, below).rstrip("/")
        if path == mounted or path.startswith(mounted + "/"):
            path = path[len(mounted) :].lstrip("/")
        real = os.path.realpath(os.path.join(base, path))
        if real != base and not real.startswith(base + os.sep):
            raise Outside(f"[error: {path} is outside of {mounted}]")
        return os.path.relpath(real, os.path.realpath(self.root))

    def _missing(self) -> str:
        return f"[no volume mounted at {self.mount or '/data'}]"


class Buffers:
    """Named lists that live as long as the sandbox."""

    def __init__(self) -> None:
        self._items: dict[str, list[Any]] = {}

    def add_buffer(self, name: str, value: Any) -> None:
        self._items.setdefault(name, []).append(value)

    def get_buffer(self, name: str) -> list[Any]:
        """Returns a copy of the buffer; [] for a missing one."""
        return list(self._items.get(name, []))

    def clear_buffer(self, name: Optional[str] = None) -> None:
        """Deletes one buffer, or all."""
        if name is None:
            self._items.clear()
        else:
            self._items.pop(name, None)


def _read_text(real: str) -> str:
    with open(real, encoding="utf-8", errors="replace") as file:
        return file.read()


def _write_file(real: str, content: Any) -> None:
    data = _to_bytes(content)
    write_whole(real, lambda file: file.write(data))


def write_whole(real: str, fill: Callable[[Any], object]) -> None:
    """Writes by temporary file, fsync, rename: concurrent writers leave one of their texts, never a
    mixture. Where renaming is impossible, a file is whole when it is closed. fill: writes to the
    binary file that it is handed, from its first byte on; may be called again. Raises OSError.
    """
    for left in reversed(range(_VANISHED_TIMES)):
        try:
            _write_beside(real, fill)
            break
        except (FileNotFoundError, FileExistsError):
            if not left:
                raise


def _write_beside(real: str, fill: Callable[[Any], object]) -> None:
    directory = os.path.dirname(real)
    os.makedirs(directory, exist_ok=True)
    temporary = os.path.join(directory, f".saving-{os.getpid()}-{time.monotonic_ns()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        try:
            with os.fdopen(handle, "wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, real)
        except OSError as error:
            if error.errno not in _OBJECTS_ALONE or os.path.isdir(real):
                raise
            # The temporary file holds the directory, which else would disappear with its last one.
            _write_object(real, fill)
    finally:
        _remove_temporary(temporary)


def _remove_temporary(temporary: str) -> None:
    try:
        os.unlink(temporary)
    except FileNotFoundError:
        return  # it was renamed


def _write_object(real: str, fill: Callable[[Any], object]) -> None:
    """Writes the whole file from the first byte on, the only way that an object store knows."""
    os.makedirs(os.path.dirname(real), exist_ok=True)
    with open(real, "wb") as file:
        fill(file)
        file.flush()
        os.fsync(file.fileno())


def _append_file(real: str, content: Any) -> None:
    os.makedirs(os.path.dirname(real), exist_ok=True)
    data = _to_bytes(content)
    try:
        with open(real, "ab") as file:
            file.write(data)
    except OSError as error:
        if error.errno not in _OBJECTS_ALONE or not os.path.isfile(real):
            raise
        with open(real, "rb") as old:
            whole = old.read() + data
        _write_object(real, lambda file: file.write(whole))


def _to_bytes(content: Any) -> bytes:
    if isinstance(content, (bytes, bytearray)):
        return bytes(content)
    return str(content).encode()
