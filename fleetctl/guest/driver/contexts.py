"""Runs further contexts in the driver's sandbox: processes of this program with own globals.

Part of the guest; used by the driver. A recursive query works in one while the code that started
the query waits. Each has a number from the host, and the host exchanges lines with it over the
driver's own line. Directories, variables and the sandbox's resources are shared.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from typing import Any, Optional

from fleetctl.guest.driver.channel import Channel


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
            self._over(number, f"its process cannot be started: {error}")
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
        self._over(number, why)

    def _over(self, number: int, why: str) -> None:
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
        """Clears away its remaining processes, and returns how it ended."""
        self.lines.put(None)
        self.kill()
        code = self._process.wait()
        if code < 0:
            return f"signal {-code}"
        return f"exit code {code}"
