"""Helpers of a task: `peek`, `grep` and the four ways to cut a text into chunks, volume files,
workspace files and named buffers.

The first volume of the task is the root of the helpers for files; no file outside is read or
written. Mistakes come back as text in brackets, as the programs that use these helpers expect. A
refusal of the volume itself is an OSError: a task must not succeed without its data stored.
"""

from __future__ import annotations

import errno
import os
import time

TYPE_CHECKING = False  # only modules that every task needs are imported

if TYPE_CHECKING:
    import re
    from typing import Any, Callable, Optional


# The errors of a volume that can neither rename nor append, as mounted object stores: there a file
# becomes visible, as a whole, when it is closed.
_OBJECTS_ALONE = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL)
# There a directory disappears with its last file, also between two calls of a writer, when
# another task removes a file. Each round of tries needs such a moment again.
_VANISHED_TIMES = 8


def peek(
    text: str,
    start: int = 0,
    length: int = 2000,
) -> str:
    """Returns `length` characters of `text` from `start`."""
    return text[start : start + length]


def grep(
    text: str,
    pattern: str,
    *,
    context: int = 0,
) -> list[str]:
    """Returns the lines that contain `pattern`, literally and in any case, each with `context`
    lines around it.

    Hits whose surroundings touch are joined into one item.
    """
    lines = text.splitlines()
    wanted = pattern.lower()
    groups: list[list[int]] = []
    for number, line in enumerate(lines):
        if wanted not in line.lower():
            continue
        first = max(0, number - context)
        end = min(len(lines), number + context + 1)
        if context and groups and first <= groups[-1][1]:
            groups[-1][1] = end
        else:
            groups.append([first, end])
    return ["\n".join(lines[first:end]) for first, end in groups]


def chunk_by_size(
    text: str,
    size: int = 4000,
    overlap: int = 200,
) -> list[str]:
    """Returns pieces of `size` characters, each beginning `overlap` before the last one ended."""
    if size <= 0 or not 0 <= overlap < size:
        raise ValueError(
            f"chunk_by_size: overlap is {overlap} and size is {size}; 0 <= overlap < size"
        )
    chunks = []
    for start in range(0, len(text), size - overlap):
        chunks.append(text[start : start + size])
        if start + size >= len(text):
            break
    return chunks


def chunk_by_headers(
    text: str,
    pattern: str = r"^#{1,3}\s",
    flags: int = 0,
) -> list[dict[str, str]]:
    """Returns one {"header", "body"} for each line that matches; text before the first has the
    header "".
    """
    import re

    return [
        {"header": head, "body": body}
        for head, body, _ in _split_sections(text, re.compile(pattern, flags))
    ]


def chunk_by_timestamps(
    text: str,
    pattern: str = r"^\d{4}-\d{2}-\d{2}[T ]",
    flags: int = 0,
) -> list[dict[str, Any]]:
    """Returns one {"timestamp", "content", "start_pos"} for each line with a leading time stamp."""
    import re

    matcher = re.compile(pattern, flags)
    chunks = []
    for head, body, position in _split_sections(text, matcher):
        stamp = head.split(maxsplit=1)[0] if head else ""
        content = head + ("\n" + body if body else "") if head else body
        chunks.append({"timestamp": stamp, "content": content, "start_pos": position})
    return chunks


def chunk_by_json_keys(text: str) -> list[dict[str, str]]:
    """Returns one {"key", "content", "value_type"} for each key of the JSON object in `text`."""
    import json

    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(
            f"chunk_by_json_keys: the text is a JSON {type(value).__name__}, not an object"
        )
    return [
        {"key": key, "content": json.dumps(item, indent=2), "value_type": type(item).__name__}
        for key, item in value.items()
    ]


def _split_sections(text: str, matcher: re.Pattern[str]) -> list[tuple[str, str, int]]:
    """Returns (matching line, text up to the next one, position of the line), top to bottom."""
    sections: list[tuple[str, list[str], int]] = []
    position = 0
    for line in text.splitlines(keepends=True):
        if matcher.search(line):
            sections.append((line.strip(), [], position))
        elif sections:
            sections[-1][1].append(line)
        elif line.strip():
            sections.append(("", [line], position))
        position += len(line)
    return [(head, "".join(body).strip(), start) for head, body, start in sections]


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
        return self._access_path(path, "", _read_text)

    def workspace_write(self, path: str, content: Any) -> str:
        return self._write_through(path, "workspace", lambda real: _write_file(real, content))

    def workspace_read(self, path: str) -> str:
        return self._access_path(path, "workspace", _read_text)

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

        shown = self._access_path(path, below, act)
        if failed:
            text = f"{shown} is not saved: {failed[0].strerror}"
            raise OSError(failed[0].errno, text) from failed[0]
        if shown.startswith("[") and self._remark is not None:
            self._remark(f"`{path}` is not saved: {shown}")
        return shown

    def _access_path(
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


# Names that a task has, and does not import.
TEXT_HELPERS = (
    peek,
    grep,
    chunk_by_size,
    chunk_by_headers,
    chunk_by_timestamps,
    chunk_by_json_keys,
)
STORAGE_HELPERS = (
    "save_to_volume",
    "load_from_volume",
    "workspace_write",
    "workspace_read",
    "workspace_list",
    "workspace_append",
)
BUFFER_HELPERS = ("add_buffer", "get_buffer", "clear_buffer")
