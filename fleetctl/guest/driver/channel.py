"""The driver's side of the line to its host: JSON lines on what were stdin and stdout, the output
of code on descriptors 1 and 2, calls of the host's functions, contexts beside the first, and
files.

The line is moved to descriptors that no program inherits, so output and child processes of code
cannot reach it.

A context is a process of this program with globals of its own; a recursive query works in one while
the code that started the query waits. Each has a number from the host, and the host exchanges lines
with it over the driver's own line. Directories, variables and the sandbox's resources are shared.
"""

from __future__ import annotations

import base64
import fcntl
import io
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, Callable, Optional

from fleetctl.guest.task.helpers import write_whole

# Above the numbers that programs give their own files.
LOWEST_DESCRIPTOR = 64
LINE_BYTES_MAX = 64 * 1024 * 1024  # of a message from the host


# The output of code goes to files rather than pipes, so that a library that prints much while it
# holds the interpreter can never wait for a reader that cannot run.

OUTPUT_BYTES_MAX = 2 * 1024 * 1024  # of each stream and execution; the beginning is kept
SPILL_BYTES = 64 * 1024 * 1024  # a file that grew beyond this is emptied
LOOK_S = 0.2  # how often files are looked at: a print loop writes some 20 MB meanwhile


# Each call of a host's function has a number, so any thread may call at any time and answers may
# come in any order.

ARGUMENTS_BYTES_MAX = 16 * 1024 * 1024  # the limit of a line to the host

COPY_BYTES = 1 << 20


class Channel:
    """Owns both ends. Any thread may send; one thread receives."""

    def __init__(self) -> None:
        self._received = os.fdopen(_duplicate_high(0), "rb", buffering=1 << 16)
        self._in = self._received.fileno()
        self._out = _duplicate_high(1)
        self._sending = threading.Lock()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)
        os.register_at_fork(after_in_child=self._let_go)

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message. Raises RuntimeError in a process that was forked from the driver."""
        data = memoryview((json.dumps(message) + "\n").encode())
        if self._out < 0:
            raise RuntimeError("only the process that the host started can call it, not its forks")
        with self._sending:
            while data:
                data = data[os.write(self._out, data) :]

    def receive(self) -> Optional[dict[str, Any]]:
        """Returns the next message; None when the host has closed the line. Skips invalid lines."""
        while True:
            line = self._received.readline(LINE_BYTES_MAX)
            if not line:
                return None
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                return message

    def _let_go(self) -> None:
        """Closes a fork's copy of its parent's line. By number: the file's lock may be held."""
        for descriptor in (self._in, self._out):
            if descriptor >= 0:
                os.close(descriptor)
        self._in = self._out = -1
        self._sending = threading.Lock()


def _duplicate_high(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR)


class Capture:
    """Owns descriptors 1 and 2 for the life of the process."""

    def __init__(self) -> None:
        self._streams = (_Stream(1), _Stream(2))
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(
                    encoding="utf-8",
                    errors="backslashreplace",
                    line_buffering=True,
                )
        self._guard = threading.Thread(target=self._look, daemon=True)
        self._guard.start()

    def take(self) -> tuple[str, str]:
        """Returns (stdout, stderr) since the last call."""
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                if stream is not None:
                    stream.flush()
            except (OSError, ValueError):
                continue  # code has closed or replaced it; earlier output is in the file
        out, errors = (stream.take() for stream in self._streams)
        return out, errors

    def _look(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            for stream in self._streams:
                stream.spill()


class _Stream:
    def __init__(self, number: int) -> None:
        self._file = tempfile.TemporaryFile(prefix="fleetctl-")
        self._handle = self._file.fileno()
        # With O_APPEND, writers go on at the new end after the file was emptied.
        flags = fcntl.fcntl(self._handle, fcntl.F_GETFL)
        fcntl.fcntl(self._handle, fcntl.F_SETFL, flags | os.O_APPEND)
        os.dup2(self._handle, number)
        self._lock = threading.Lock()
        self._head = b""
        self._bytes = 0

    def spill(self) -> None:
        """Keeps the disk from filling up: drops all but the beginning of too large a file."""
        if os.fstat(self._handle).st_size > SPILL_BYTES:
            with self._lock:
                self._empty()

    def take(self) -> str:
        with self._lock:
            self._empty()
            text = self._head.decode("utf-8", "replace")
            total = self._bytes
            self._head = b""
            self._bytes = 0
        if total > OUTPUT_BYTES_MAX:
            text += f"\n[output cut: {total - OUTPUT_BYTES_MAX} more bytes]\n"
        return text

    def _empty(self) -> None:
        size = os.fstat(self._handle).st_size
        wanted = OUTPUT_BYTES_MAX - len(self._head)
        if wanted > 0 and size:
            self._head += os.pread(self._handle, min(wanted, size), 0)
        os.ftruncate(self._handle, 0)
        self._bytes += size


class _Call:
    def __init__(self) -> None:
        self.answered = threading.Event()
        self.answer: dict[str, Any] = {}


class HostCalls:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._waiting: dict[int, _Call] = {}
        self._last = 0

    def function(self, name: str) -> Callable[..., Any]:
        """Returns a function that calls the host's tool of that name and waits for its answer.

        It raises RuntimeError with the tool's own error, ValueError for arguments that a helper
        of ours does not take, and TypeError or ValueError for those that are not JSON or too large.
        """

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, args, kwargs)

        call.__name__ = call.__qualname__ = name
        return call

    def answered(self, message: dict[str, Any]) -> None:
        """Takes the host's answer to one call; called by the thread that receives."""
        with self._lock:
            call = self._waiting.pop(message.get("call", 0), None)
        if call is not None:
            call.answer = message
            call.answered.set()

    def _call(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        try:
            size = len(json.dumps([args, kwargs]))
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"{name}: the arguments cannot be written as JSON: {error}") from None
        if size > ARGUMENTS_BYTES_MAX:
            limit = f"{ARGUMENTS_BYTES_MAX} is the most"
            raise ValueError(f"{name}: the arguments have {size} bytes as JSON, and {limit}")
        call = _Call()
        with self._lock:
            self._last += 1
            number = self._last
            self._waiting[number] = call
        try:
            message = {"call": number, "tool": name, "args": list(args), "kwargs": kwargs}
            self._channel.send(message)
            call.answered.wait()
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if "error" in call.answer:
            is_invalid = call.answer.get("invalid")
            raise (ValueError if is_invalid else RuntimeError)(call.answer["error"])
        return call.answer.get("value")


class Contexts:
    """All contexts, called by the one receiving thread, which no context can hold up."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._directory = os.getcwd()  # as the driver itself began
        self._contexts: dict[int, _Context] = {}

    def take(self, order: dict[str, Any]) -> bool:
        """Returns whether the order was for a context. Problems are sent as the context's end."""
        number = order.get("context")
        if number is None:
            return False
        operation = order.get("op")
        context = self._contexts.get(number)
        if operation == "begin":
            self._begin(number)
        elif context is not None and operation == "pass":
            context.lines.put(order["line"])
        elif context is not None and operation == "end":
            context.kill()
        return True

    def _begin(self, number: int) -> None:
        try:
            context = self._contexts[number] = _Context(self._directory)
        except OSError as error:
            self._report_end(number, f"its process cannot be started: {error}")
            return
        threading.Thread(target=context.write, daemon=True).start()
        threading.Thread(
            target=self._forward_output,
            args=(number, context),
            daemon=True,
        ).start()

    def _forward_output(self, number: int, context: _Context) -> None:
        for line in context.output:
            text = line.decode("utf-8", "replace").rstrip("\n")
            self._channel.send({"context": number, "line": text})
        why = context.ended()
        del self._contexts[number]
        self._report_end(number, why)

    def _report_end(self, number: int, why: str) -> None:
        self._channel.send({"context": number, "over": why})


class _Context:
    """One context. lines: the lines to write to it, then None; output: its own lines."""

    def __init__(self, directory: str) -> None:
        """Starts the process. Raises OSError."""
        self._process = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-u", os.path.abspath(__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input = self._process.stdin
        self.output = self._process.stdout
        self.lines: queue.SimpleQueue[Optional[str]] = queue.SimpleQueue()

    def write(self) -> None:
        while (line := self.lines.get()) is not None:
            try:
                self._input.write(line.encode() + b"\n")
                self._input.flush()
            except OSError:
                return  # it has ended, which the reader reports

    def kill(self) -> None:
        """Kills the process and all its children."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except OSError:
            return  # all have ended

    def ended(self) -> str:
        """Kills its remaining processes, and returns how it ended."""
        self.lines.put(None)
        self.kill()
        code = self._process.wait()
        if code < 0:
            return f"signal {-code}"
        return f"exit code {code}"


class Uploads:
    """Writes the host's files. root: the volume's path; "" when the session has none."""

    def __init__(self, root: str) -> None:
        self._root = root
        # Beside the volume: not every volume can go on with a file that was closed.
        self._spool: Any = None

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._place(path))

    def put(self, message: dict[str, Any]) -> None:
        """Writes one piece of a file: {"path", "data": base64, "first", "last"}. The last piece
        names the file, so that readers see all or none. Raises OSError or ValueError.
        """
        real = self._place(message["path"])
        if message["first"]:
            import tempfile  # a session without uploads starts sooner without it

            self._spool = tempfile.TemporaryFile()
        self._spool.write(base64.b64decode(message["data"]))
        if message["last"]:
            write_whole(real, self._copy)
            self._spool = None

    def _copy(self, file: Any) -> None:
        self._spool.seek(0)
        while data := self._spool.read(COPY_BYTES):
            file.write(data)

    def _place(self, path: str) -> str:
        top = os.path.realpath(self._root)
        real = os.path.realpath(os.path.join(top, path.lstrip("/")))
        if not self._root or not real.startswith(top + os.sep):
            raise ValueError(f"`{path}` is not a path inside of the volume")
        return real
