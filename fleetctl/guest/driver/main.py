"""The driver: one long-lived process in a sandbox that executes what its host sends, in turn.

Part of the guest; the last part of `assemble.driver_source`, run as a program with Python 3.9 or
later. Messages are JSON objects, one a line:

  host -> driver  {"op": "setup", "id", "manner", "mount", "root", "workspace", "env", "idle_s"}
                  {"op": "execute", "id", "code", "variables", "tools", "fields", "profile"}
                  {"op": "exists" | "put" | "sync", "id", ...}
                  {"op": "interrupt", "id"}   {"op": "answer", "call", "value" | "error"}
                  {"op": "begin" | "end", "context"}   {"op": "pass", "context", "line"}
  driver -> host  {"hello": version}          {"id", "done": value} or {"id", "problem": text}
                  {"call", "tool", "args", "kwargs"}   {"bye": why}
                  {"context", "line"}         {"context", "over": why}

When the host closes the line, the process ends at once, whatever code is doing.

Where the line may break and be made again, `hold` keeps the driver and every line that the other
end has not confirmed, and each connection is a `connect`, with the host on its standard streams:

  host -> hold  COUNT            of the driver's lines that the host has, as its first line
                =LINE            for the driver    +COUNT  of the driver's lines that it has now
  hold -> host  {"took": COUNT}  of the host's lines, as its first line, with the directories
                =LINE            of the driver     +COUNT  of the host's lines that it has now
                !TEXT            why the driver has ended, as its last line
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Optional

from fleetctl.guest.driver.channel import Capture, Channel, Contexts, HostCalls, Uploads
from fleetctl.guest.driver.execution import Execution, sync_directory

Message = dict[str, Any]

HOLD_SOCKET = "line"  # in the directory of the holder
CONFIRM_LINES = 64  # between two confirmations to the host
HOLD_LOOK_S = 0.05
HOLD_DRAIN_S = 2.0  # for last lines, when a process that the driver left holds its streams open
LAST_WORDS_BYTES = 2000


class Driver:
    def __init__(self) -> None:
        self._channel = Channel()
        self._capture = Capture()
        self._calls = HostCalls(self._channel)
        self._contexts = Contexts(self._channel)
        self._orders: queue.Queue[Message] = queue.Queue()
        self._execution: Optional[Execution] = None
        self._uploads = Uploads("")
        self._root = ""
        self._idle_s: Optional[float] = None

    def serve(self) -> None:
        """Serves orders; never returns."""
        signal.signal(signal.SIGINT, self._interrupted)
        threading.Thread(target=self._listen, daemon=True).start()
        self._channel.send({"hello": sys.version.split()[0]})
        while True:
            try:
                order = self._orders.get(timeout=self._idle_s)
            except queue.Empty:
                self._channel.send({"bye": f"nothing was executed for {self._idle_s:g} s"})
                os._exit(0)
            except KeyboardInterrupt:
                continue
            self._channel.send({"id": order["id"], **self._answer(order)})

    def _answer(self, order: Message) -> Message:
        try:
            return {"done": self._obey(order)}
        except (OSError, ValueError) as error:
            return {"problem": str(error)}

    def _obey(self, order: Message) -> Any:
        """Executes one order. Raises OSError or ValueError when it cannot."""
        operation = order["op"]
        if operation == "setup":
            self._set_up(order)
        elif operation == "execute" and self._execution is not None:
            return self._execution.run(order)
        elif operation == "exists":
            return self._uploads.exists(order["path"])
        elif operation == "put":
            self._uploads.put(order)
        elif operation == "sync":
            if self._root:
                return sync_directory(self._root)
            return ""
        else:
            raise ValueError(f"the driver knows no `{operation}` now")
        return None

    def _set_up(self, order: Message) -> None:
        os.environ.update(order["env"])
        self._root, self._idle_s = order["root"], order["idle_s"]
        self._uploads = Uploads(self._root)
        # Code imports from the current directory, not from our own file's.
        sys.path[0] = ""
        sys.argv = [""]
        self._execution = Execution(order, self._calls, self._capture)

    def _listen(self) -> None:
        while (message := self._channel.receive()) is not None:
            operation = message.get("op")
            if self._contexts.take(message):
                continue
            if operation == "answer":
                self._calls.answered(message)
            elif operation == "interrupt":
                if self._execution is not None and self._execution.running == message["id"]:
                    os.kill(os.getpid(), signal.SIGINT)
            elif operation is not None and "id" in message:
                self._orders.put(message)
        os._exit(0)

    def _interrupted(self, _number: int, _frame: Any) -> None:
        # Between executions there is no code to interrupt.
        if self._execution is not None and self._execution.running:
            raise KeyboardInterrupt


class Holder:
    """Keeps a driver and its unconfirmed lines. alone_s: seconds without a connection after which
    both end.
    """

    def __init__(self, program: str, facts: Message, alone_s: float) -> None:
        self._facts = facts
        self._alone_s = alone_s
        self._alone_since_s: Optional[float] = time.monotonic()
        self._driver = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-u", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._connection: Optional[socket.socket] = None
        self._output = threading.Lock()  # of all that goes to the host
        self._input = threading.Lock()  # of all that goes to the driver
        self._lines: collections.deque[bytes] = collections.deque()
        self._confirmed = 0  # lines of the driver that the host has; those after it are in _lines
        self._took = 0  # lines of the host that the driver has
        self._words = b""

    def serve(self, path: str) -> None:
        """Serves connections until the driver has ended, and the host knows why. path: of the
        socket, relative where the directory's own is long.
        """
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen()
        readers = [
            threading.Thread(target=work, args=given, daemon=True)
            for work, given in ((self._read_lines, ()), (self._read_words, ()))
        ]
        for thread in (*readers, threading.Thread(target=self._accept, args=(listening,))):
            thread.daemon = True
            thread.start()
        while self._driver.poll() is None and not self._is_alone():
            time.sleep(HOLD_LOOK_S)
        self._driver.kill()
        code = self._driver.wait()
        for thread in readers:
            thread.join(HOLD_DRAIN_S)
        self._report_end(code)

    def _is_alone(self) -> bool:
        since_s = self._alone_since_s
        return since_s is not None and time.monotonic() - since_s > self._alone_s

    def _report_end(self, code: int) -> None:
        how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
        words = " ".join(self._words.decode("utf-8", "replace").split())
        last = f"; its last words: {words}" if words else ""
        end = f"its process {how}{last}".encode()
        while not self._is_alone():
            with self._output:
                sent = self._send(b"!" + end + b"\n")
            if sent:
                return
            time.sleep(HOLD_LOOK_S)

    def _read_lines(self) -> None:
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            with self._output:
                self._lines.append(line)
                self._send(b"=" + line)

    def _read_words(self) -> None:
        assert self._driver.stderr is not None
        while data := os.read(self._driver.stderr.fileno(), 1 << 16):
            self._words = (self._words + data)[-LAST_WORDS_BYTES:]

    def _send(self, data: bytes) -> bool:
        """Sends to the host, with its lock held; False when no whole line can reach it."""
        if self._connection is None:
            return False
        try:
            self._connection.sendall(data)
        except OSError:
            return False  # its reader notes the end
        return True

    def _accept(self, listening: socket.socket) -> None:
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection: socket.socket) -> None:
        """Takes the lines of a connection, until it ends or a later one takes its place."""
        received = connection.makefile("rb")
        first = received.readline()
        if not first.endswith(b"\n"):
            connection.close()
            return
        self._take_over(connection, int(first))
        for line in received:
            if not line.endswith(b"\n") or not self._take(connection, line):
                break
        with self._output:
            if self._connection is connection:
                self._connection = None
                self._alone_since_s = time.monotonic()
        received.close()
        connection.close()

    def _take_over(self, connection: socket.socket, has: int) -> None:
        old = self._connection
        if old is not None:
            with contextlib.suppress(OSError):  # it may have ended by itself
                old.shutdown(socket.SHUT_RDWR)  # whoever sends to it now holds the lock
        with self._input, self._output:
            self._connection = connection
            self._alone_since_s = None
            self._confirm(has)
            self._send(json.dumps({"took": self._took, **self._facts}).encode() + b"\n")
            self._send(b"".join(b"=" + line for line in self._lines))

    def _take(self, connection: socket.socket, line: bytes) -> bool:
        """Takes a line of the host; False where it cannot arrive any more."""
        if line.startswith(b"+"):
            with self._output:
                self._confirm(int(line[1:]))
            return True
        with self._input:
            if self._connection is not connection:
                return False
            try:
                assert self._driver.stdin is not None
                self._driver.stdin.write(line[1:])
                self._driver.stdin.flush()
            except OSError:
                return True  # it has ended, which is reported
            self._took += 1
        if self._took % CONFIRM_LINES == 0:
            with self._output:
                self._send(b"+%d\n" % self._took)
        return True

    def _confirm(self, count: int) -> None:
        while self._confirmed < count and self._lines:
            self._lines.popleft()
            self._confirmed += 1


def hold_driver(top: str, program: str, facts: Message, alone_s: float) -> None:
    """Keeps a driver for connections, until it has ended. top: the directory of the socket."""
    back = os.getcwd()
    holder = Holder(program, facts, alone_s)
    os.chdir(top)  # the path of a socket is short
    try:
        holder.serve(HOLD_SOCKET)
    finally:
        os.chdir(back)


def connect_line(top: str) -> None:
    """Carries the lines of a connection to the holder; never returns."""
    os.chdir(top)
    line = socket.socket(socket.AF_UNIX)
    line.connect(HOLD_SOCKET)

    def carry_input() -> None:
        while data := os.read(0, 1 << 16):
            line.sendall(data)
        line.shutdown(socket.SHUT_WR)

    threading.Thread(target=carry_input, daemon=True).start()
    while data := line.recv(1 << 16):
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]
    os._exit(0)


def main() -> None:
    if sys.argv[1:2] == ["connect"]:
        connect_line(sys.argv[2])
    Driver().serve()
