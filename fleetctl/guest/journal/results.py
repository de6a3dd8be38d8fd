"""Judges what a task hands in: its result, the reports of a command, and the lines that it appends
to $FLEETCTL_METRICS.

A value that cannot be recorded is left out and reported.
"""

from __future__ import annotations

import os
import stat

from fleetctl.guest.task.plain import ResultCopy, Unkeepable, flat_metrics
from fleetctl.guest.task.text import encode_canonical, parse_as_python

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Optional


RESULT_BYTES_MAX = 256 * 1024
RESULT_DEPTH_MAX = 32
METRICS_READ_BYTES_MAX = 1024 * 1024  # a poll

LINE_BYTES_MAX = 64 * 1024
# Wrong lines of a run that are reported; beside them the first line with valid and wrong numbers.
REPORTED_MAX = 3
SHOWN_CHARACTERS_MAX = 60
STEP_CHARACTERS_MAX = 20
EXAMPLE = '{"step": 3, "loss": 0.5}'


def parse_result(data: bytes) -> tuple[Any, str]:
    """Returns (the value in a task's result file, "") or (None, its problem)."""
    if len(data) > RESULT_BYTES_MAX:
        return None, describe_excess(len(data))
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


def judge_result(value: Any) -> tuple[str, str, str]:
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
            text = encode_canonical(value)
            size = len(text.encode("utf-8"))
        except UnicodeError:
            return "", "the result is not UTF-8", ""
        except ValueError:
            copy = ResultCopy()
            value = copy.made(value)
            changed = "; ".join(copy.remarks)
            text = encode_canonical(value)
            size = len(text.encode("utf-8"))
    except RecursionError:
        return "", _TOO_DEEP, ""
    except (ValueError, Unkeepable) as error:
        return "", f"the result is not JSON: {error}", ""
    if size > RESULT_BYTES_MAX:
        return "", describe_excess(size), ""
    if _is_deeper_than(value, RESULT_DEPTH_MAX):
        return "", _TOO_DEEP, ""
    return text, "", changed and f"result: {changed}"


def describe_excess(size: int) -> str:
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


def explain_odd_file(path: str) -> str:
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


def _is_deeper_than(value: Any, limit: int) -> bool:
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


class MetricLines:
    """A reader of $FLEETCTL_METRICS, as far as the file has been read. Problems are reported during
    the run and at its end.
    """

    def __init__(self) -> None:
        self.offset = 0
        self.lines = 0
        self.wrong = self.mixed = 0
        self.first_problem = ""
        self._step = -1

    def take(
        self, data: bytes, *, last: bool = False
    ) -> tuple[list[tuple[int, dict[str, float]]], list[str]]:
        """Returns (step and values of each whole line in `data`, problems of other lines). last:
        a line without an end counts, too.
        """
        whole = len(data) if last else data.rfind(b"\n") + 1
        if not whole and len(data) > LINE_BYTES_MAX:
            whole = len(data)  # no line at all: skipped, so that it is not read again
        self.offset += whole
        found = []
        problems = []
        for line in data[:whole].removesuffix(b"\n").split(b"\n") if whole else ():
            after = max(self.lines, self._step + 1)
            step, values, problem = read_line(line, self.lines, after)
            self.lines += 1
            if values:
                self._step = step
                found.append((step, values))
            if problem:
                self.first_problem = self.first_problem or problem
                self.mixed += bool(values)
                self.wrong += not values
                if (self.mixed == 1) if values else (self.wrong <= REPORTED_MAX):
                    problems.append(problem)
        return found, problems

    @property
    def remark(self) -> str:
        """Returns the file's problems, in one sentence; "" when all lines were valid."""
        return format_problems(self.wrong + self.mixed, self.first_problem)


def format_problems(wrong: int, first_problem: str) -> str:
    """Returns the first problem of a file, and how many lines have one where several do."""
    more = f" ({wrong} lines in all)" if wrong > 1 else ""
    return first_problem + more


def read_line(
    line: bytes,
    number: int,
    after: int,
) -> tuple[int, dict[str, float], str]:
    """Returns (step, values, problem or ""). number: how many lines came before; after: the step of
    a line that names none: its position in the file, or the last step + 1.
    """
    where = f"line {number + 1} of $FLEETCTL_METRICS"
    if not line.strip():
        return after, {}, ""
    if len(line) > LINE_BYTES_MAX:
        return after, {}, f"{where} is not recorded: it has {len(line)} bytes of {LINE_BYTES_MAX}"
    try:
        values = parse_as_python(line.decode())
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        what = f"{where} is not recorded: it is `{shorten_line(line)}`, and not {EXAMPLE}"
        return after, {}, what
    step = parse_step(values.pop("step", after))
    if step is None:
        return after, {}, f"{where} is not recorded: its step must be a whole number ({EXAMPLE})"
    kept, left_out = flat_metrics(values, _as_number)
    if left_out:
        name, value = left_out[0]
        text = shorten_line(str(value).encode())
        what = f"`{name}` at step {step} is `{text}` and is not recorded"
        return step, kept, f"{where}: {what}; a metric is a number"
    return step, kept, "" if kept else f"{where} is not recorded: it names no metric ({EXAMPLE})"


def shorten_line(data: bytes) -> str:
    """Returns the first SHOWN_CHARACTERS_MAX characters of a text on one line, for messages."""
    text = data[: 4 * SHOWN_CHARACTERS_MAX].decode("utf-8", "replace").strip()
    text = "".join(one if one.isprintable() else " " for one in text)
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return text[:SHOWN_CHARACTERS_MAX] + "…"


def parse_step(value: Any) -> Optional[int]:
    """Converts `4`, `4.0` and `"4"` to a step, within the whole numbers that a store holds."""
    if isinstance(value, str) and len(value) <= STEP_CHARACTERS_MAX:
        try:
            value = int(value) if value.strip("+-").isdigit() else float(value)
        except ValueError:
            return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 63:
        return None
    return value


def _as_number(value: Any) -> Optional[float]:
    """Returns a number as float, NaN and infinities included: the user has to see that a loss is
    not finite. None for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
