"""Helpers that keep things: volume files, workspace files and named buffers.

Part of the guest. The first volume of the task is the helpers' root; nothing outside of it is read
or written. Mistakes come back as text in brackets, as the programs that use these helpers expect.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional


class Outside(Exception):
    """A path that leaves the volume; the text says so in brackets."""


class Storage:
    """One task's view of its first volume. mount: the path that the manifest names; root: where it
    is.
    """

    def __init__(self, mount: str = "", root: str = "") -> None:
        self.mount = mount
        self.root = root

    def save_to_volume(self, path: str, content: Any) -> str:
        """Write a text (or bytes) so that readers see the old or the new file; the full path."""
        return self._guarded(path, "", lambda real: _write(real, content))

    def load_from_volume(self, path: str) -> str:
        """The text of a file, or `[file not found: ...]`."""
        return self._guarded(path, "", _read)

    def workspace_write(self, path: str, content: Any) -> str:
        return self._guarded(path, "workspace", lambda real: _write(real, content))

    def workspace_read(self, path: str) -> str:
        return self._guarded(path, "workspace", _read)

    def workspace_append(self, path: str, content: Any) -> str:
        return self._guarded(path, "workspace", lambda real: _append(real, content))

    def workspace_list(self, pattern: str = "*") -> Any:
        """Paths of files below the workspace that match, relative to it, sorted."""
        if not self.root:
            return self._missing()
        top = os.path.join(self.root, "workspace")
        import fnmatch

        found = []
        for directory, _, names in os.walk(top):
            found += [os.path.relpath(os.path.join(directory, name), top) for name in names]
        return sorted(name for name in found if fnmatch.fnmatch(name, pattern))

    def _guarded(self, path: str, below: str, act: Callable[[str], Optional[str]]) -> str:
        """What `act(real path)` says, else the path itself; or what is wrong, in brackets."""
        if not self.root:
            return self._missing()
        try:
            relative = self._relative(str(path), below)
        except Outside as error:
            return str(error)
        shown = os.path.join(self.mount, relative)
        try:
            said = act(os.path.join(self.root, relative))
            return shown if said is None else said
        except FileNotFoundError:
            return f"[file not found: {shown}]"
        except OSError as error:
            return f"[error: {shown}: {error.strerror}]"

    def _relative(self, path: str, below: str) -> str:
        """`path` relative to the volume, links followed. Raises Outside."""
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
        """A copy; [] when there is none."""
        return list(self._items.get(name, []))

    def clear_buffer(self, name: Optional[str] = None) -> None:
        """Forget one buffer, or all."""
        if name is None:
            self._items.clear()
        else:
            self._items.pop(name, None)


def _read(real: str) -> str:
    with open(real, encoding="utf-8", errors="replace") as file:
        return file.read()


def _write(real: str, content: Any) -> None:
    """Temporary file, fsync, rename: concurrent writers leave one of their texts, never a
    mixture.
    """
    directory = os.path.dirname(real)
    os.makedirs(directory, exist_ok=True)
    temporary = os.path.join(directory, f".saving-{os.getpid()}-{time.monotonic_ns()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_bytes(content))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, real)
    except BaseException:
        os.unlink(temporary)
        raise


def _append(real: str, content: Any) -> None:
    os.makedirs(os.path.dirname(real), exist_ok=True)
    with open(real, "ab") as file:
        file.write(_bytes(content))


def _bytes(content: Any) -> bytes:
    return bytes(content) if isinstance(content, (bytes, bytearray)) else str(content).encode()
