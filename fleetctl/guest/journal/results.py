"""Judges the files that a task hands in: its result, and the reports of a command.

Called by the run's supervisor when its work has ended, and by the host for results that a guest
without Python passed on unread.
"""

from __future__ import annotations

import os
import stat

from fleetctl.guest.journal.metriclines import shorten_line
from fleetctl.guest.task.finite import ResultCopy
from fleetctl.guest.task.plain import Unkeepable
from fleetctl.guest.task.text import canonical, parse_as_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

RESULT_INVALID = "ResultInvalid"  # the reason of a run whose result cannot be kept whole
RESULT_BYTES_MAX = 256 * 1024
RESULT_DEPTH_MAX = 32
METRICS_READ_BYTES_MAX = 1024 * 1024  # a poll


def parse_result(data: bytes) -> tuple[Any, str]:
    """Returns (the value in a task's result file, "") or (None, its problem)."""
    if len(data) > RESULT_BYTES_MAX:
        return None, too_big(len(data))
    try:
        return parse_as_python(_decode_text(data)), ""
    except UnicodeError:
        return None, f"{_FILE} is not UTF-8; it must be {_EXAMPLE}"
    except RecursionError:
        return None, _TOO_DEEP
    except ValueError as error:
        if not data.strip():
            return None, f"{_FILE} is empty; it must be {_EXAMPLE}"
        return None, f"{_FILE} is not JSON ({error}): it begins `{shorten_line(data)}`; {_RIGHT}"


def _decode_text(data: bytes) -> str:
    """Decodes the text, without the mark that some editors and shells begin a file with."""
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return data.decode("utf-16" if wide else "utf-8-sig")


def judge(value: Any) -> tuple[str, str, str]:
    """Returns (canonical JSON object, "", a remark on changes or "") or ("", the problem, "").

    A number that is not finite becomes null: the loss of a training that diverged is not a fault of
    the run, which would only be repeated.
    """
    if not isinstance(value, dict):
        kind = _KINDS.get(type(value), "value")
        return "", f"the result is a JSON {kind}; {_RIGHT}", ""
    changed = ""
    try:
        try:
            text = canonical(value)
            size = len(text.encode("utf-8"))
        except UnicodeError:
            return "", "the result is not UTF-8", ""
        except ValueError:
            copy = ResultCopy()
            value = copy.made(value)
            changed = "; ".join(copy.remarks)
            text = canonical(value)
            size = len(text.encode("utf-8"))
    except RecursionError:
        return "", _TOO_DEEP, ""
    except (ValueError, Unkeepable) as error:
        return "", f"the result is not JSON: {error}", ""
    if size > RESULT_BYTES_MAX:
        return "", too_big(size), ""
    if _deeper_than(value, RESULT_DEPTH_MAX):
        return "", _TOO_DEEP, ""
    return text, "", changed and f"result: {changed}"


def too_big(size: int) -> str:
    limit = f"at most {RESULT_BYTES_MAX} are kept"
    return (
        f"the result has {size} bytes; {limit} (write large data to a volume and submit its path)"
    )


def read_file(
    directory: int,
    name: str,
    offset: int,
    limit: int,
) -> Optional[bytes]:
    """Returns at most `limit` + 1 bytes of a task's file; None for a missing or irregular file.

    The task could have put a link or a pipe there, so it is opened without following or waiting.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(name, flags, dir_fd=directory)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return _read_exactly(handle, offset, limit + 1)
    finally:
        os.close(handle)


def odd_result(path: str) -> str:
    """Returns why the result file of a task is not read; "" where it is regular or missing."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return ""
    if stat.S_ISREG(mode):
        return ""
    sort = next((name for holds, name in _SORTS if holds(mode)), "no file")
    return NO_FILE.format(sort=sort)


def remove_result(path: str) -> None:
    """Removes the file, so that a sandbox's next task does not hand in the last one's."""
    try:
        os.unlink(path)
    except (IsADirectoryError, PermissionError):  # of a directory, on Linux and elsewhere
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return


def read_below(
    directory: str,
    name: str,
    offset: int,
    limit: int,
    *,
    dir_fd: Optional[int] = None,
) -> Optional[bytes]:
    """Reads as `read_file` does, with the directory opened first, without following either."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        files = os.open(directory, flags, dir_fd=dir_fd)
    except OSError:
        return None
    try:
        return read_file(files, name, offset, limit)
    finally:
        os.close(files)


def _read_exactly(
    handle: int,
    offset: int,
    size: int,
) -> bytes:
    parts = []
    while size > 0:
        part = os.pread(handle, size, offset)
        if not part:
            break
        parts.append(part)
        offset = offset + len(part)
        size = size - len(part)
    return b"".join(parts)


def _deeper_than(value: Any, limit: int) -> bool:
    layer = [value]
    for _ in range(limit):
        layer = [
            child
            for item in layer
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
        if not layer:
            return False
    return True


_SORTS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)
_FILE = "the result in $FLEETCTL_RESULT"
NO_FILE = f"{_FILE} is {{sort}}, which is not read: no result is kept; it must be a file"
_EXAMPLE = 'an object such as {"loss": 0.5}'
_RIGHT = f"it must be {_EXAMPLE}"
_TOO_DEEP = f"the result is nested more than {RESULT_DEPTH_MAX} deep"
_KINDS = {
    list: "list",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
