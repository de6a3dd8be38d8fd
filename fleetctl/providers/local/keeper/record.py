"""Writing a run's journal, and judging what a task says about itself.

Called by the keeper; the task never writes here. The journal file is also the latch: whoever
creates it begins the run, and nobody can create it twice.
"""

from __future__ import annotations

import json
import os
import stat
import time
from typing import Any, Optional

from .digest import sha256
from .text import canonical, compact, quote

RESULT_BYTES_MAX = 256 * 1024
RESULT_DEPTH_MAX = 32
DIGITS_MAX = 4000  # of one integer; Python 3.9 would parse longer ones in quadratic time
METRIC_LINE_BYTES_MAX = 64 * 1024
TEMPORARY = "tmp"  # in there
TAIL_BYTES = 16 * 1024  # an `ended` event is shorter
METRICS_READ_BYTES_MAX = 1024 * 1024  # a poll
PRIVATE = ".fleetctl"  # in the work directory: parameters, result, metrics, temporary files


class Journal:
    """Append-only JSON lines; one write call a line, so that a reader sees whole lines or a torn
    last one.
    """

    def __init__(self, directory: int, run: str) -> None:
        """Raises FileExistsError when the run has begun before."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(f"{run}.jsonl", flags, 0o600, dir_fd=directory)
        self._metrics = 0
        self._torn = b""

    def begin(self, at_s: float, identity: str) -> None:
        """identity: who keeps the run and how, as the inside of a JSON object."""
        self._write(f'{{"e":"started","at":{at_s!r},{identity}}}\n')

    def metric(self, step: Any, values: Any, at_s: Any) -> bool:
        """Record one report; False when it is none, or the disk refuses.

        `seq` counts values over the whole journal.
        """
        numbers = _numbers(values)
        if not numbers or not isinstance(step, int):
            return False
        at_s = at_s if isinstance(at_s, float) else time.time()
        event = {"e": "metric", "seq": self._metrics, "step": step, "at": at_s, "values": numbers}
        try:
            self._write(compact(event) + "\n")
        except OSError:
            return False
        self._metrics += len(numbers)
        return True

    def end(self, result: str, ended: dict[str, Any], *, sandbox_open: bool) -> None:
        """The last words, in one write: the result (a JSON text, or "") and how the run ended.

        Raises OSError when the disk refuses; then it can be said again.
        """
        last = compact({"e": "ended", **ended})[:-1]
        self._write(f'{result}{last},"open":{"true" if sandbox_open else "false"}}}\n')
        os.close(self._handle)

    def close(self) -> None:
        os.close(self._handle)

    def _write(self, text: str) -> None:
        """After a write that failed half-way, the torn line is ended first."""
        data = self._torn + text.encode()
        self._torn = b"\n"
        done = os.write(self._handle, data)
        while done < len(data):
            done += os.write(self._handle, data[done:])
        self._torn = b""


def _numbers(values: Any) -> dict[str, float]:
    """The values of a report when all of them are finite numbers, else nothing."""
    if not isinstance(values, dict):
        return {}
    numbers = {}
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value - value != 0:
            return {}
        try:
            numbers[name] = float(value)
        except OverflowError:
            return {}
    return numbers


def write_lost(journal: Journal) -> None:
    """The run began before the machine was started the last time; nobody knows how it ended."""
    journal.begin(time.time(), '"keeper":"lost/","note":""')
    journal.close()


def write_unbegun(journal: Journal, identity: str, why: str) -> None:
    """The run ends here without its work ever having begun, through no fault of its own."""
    now = time.time()
    journal.begin(now, identity)
    ended = {"at": now, "started_at": now, "ok": False, "infra": True, "exit": None}
    journal.end("", {**ended, "reason": "SandboxClosed", "message": why}, sandbox_open=False)


def append(directory: int, run: str, event: dict[str, Any]) -> None:
    """One more line in the journal of a run that has ended."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(f"{run}.jsonl", flags, dir_fd=directory)
    try:
        os.write(handle, (json.dumps(event, separators=(",", ":")) + "\n").encode())
    finally:
        os.close(handle)


def forget_result(work: str) -> None:
    """So that the next task of a sandbox does not hand in the last one's."""
    try:
        os.unlink(os.path.join(work, PRIVATE, "result.json"))
    except OSError:
        return


def result_line(text: str) -> str:
    """The journal's line for a result."""
    data = text.encode()
    sha = sha256(data).hexdigest()
    return f'{{"e":"result","sha256":"{sha}","bytes":{len(data)},"text":{quote(text)}}}\n'


def parse_result(data: bytes) -> tuple[Any, str]:
    """(the value in a task's result file, "") or (None, what is wrong with it)."""
    if len(data) > RESULT_BYTES_MAX:
        return None, _too_big(len(data))
    try:
        text = data.decode("utf-8")
        return json.loads(text, parse_constant=_no_constant, parse_int=_integer), ""
    except UnicodeError:
        return None, "the result is not UTF-8"
    except RecursionError:
        return None, _TOO_DEEP
    except ValueError as error:
        return None, f"the result is not JSON: {error}"


def judge(value: Any) -> tuple[str, str]:
    """(canonical JSON object, "") or ("", what is wrong with it)."""
    if not isinstance(value, dict):
        return "", f"the result is a JSON {_KINDS.get(type(value), 'value')}; it must be an object"
    try:
        text = canonical(value)
        size = len(text.encode("utf-8"))
    except UnicodeError:
        return "", "the result is not UTF-8"
    except RecursionError:
        return "", _TOO_DEEP
    except ValueError as error:
        return "", f"the result is not JSON: {error}"
    if size > RESULT_BYTES_MAX:
        return "", _too_big(size)
    return ("", _TOO_DEEP) if _deeper_than(value, RESULT_DEPTH_MAX) else (text, "")


def _too_big(size: int) -> str:
    limit = f"at most {RESULT_BYTES_MAX} are kept"
    return (
        f"the result has {size} bytes; {limit} (write large data to a volume and submit its path)"
    )


def read_private(work: int, name: str, offset: int, limit: int) -> Optional[bytes]:
    """At most `limit` + 1 bytes of a task's file; None when there is none, or no regular file.

    The task could have put a link or a pipe at any step of the path, so every step is opened
    without following.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        directory = os.open(PRIVATE, flags | os.O_DIRECTORY, dir_fd=work)
    except OSError:
        return None
    try:
        handle = os.open(name, flags, dir_fd=directory)
    except OSError:
        return None
    finally:
        os.close(directory)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return _read(handle, offset, limit + 1)
    finally:
        os.close(handle)


def _read(handle: int, offset: int, size: int) -> bytes:
    parts = []
    while size > 0:
        part = os.pread(handle, size, offset)
        if not part:
            break
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
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


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _integer(digits: str) -> int:
    if len(digits) > DIGITS_MAX:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


_TOO_DEEP = f"the result is nested more than {RESULT_DEPTH_MAX} deep"
_KINDS = {
    list: "list",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
