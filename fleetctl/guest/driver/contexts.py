"""Further contexts in the driver's sandbox: processes of this program with globals of their own.

Part of the guest; used by the driver. A recursive query works in one while the code that asked for
it waits. Each has a number that the host gave it, and the host talks with it in lines over the
driver's own line. Directories, variables and what the sandbox may use are shared.
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
    """Told by the one thread that receives, which none of them can hold up."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._directory = os.getcwd()  # as the driver itself began
        self._contexts: dict[int, _Context] = {}

    def take(self, order: dict[str, Any]) -> bool:
        """Whether it was for a context. Problems are told as the context's end."""
        number = order.get("context")
        if number is None:
            return False
        operation, context = order.get("op"), self._contexts.get(number)
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
        threading.Thread(target=self._hear, args=(number, context), daemon=True).start()

    def _hear(self, number: int, context: _Context) -> None:
        for line in context.output:
            text = line.decode("utf-8", "replace").rstrip("\n")
            self._channel.send({"context": number, "line": text})
        why = context.ended()
        del self._contexts[number]
        self._over(number, why)

    def _over(self, number: int, why: str) -> None:
        self._channel.send({"context": number, "over": why})


class _Context:
    """lines: to be written to it, None is the end of them. output: what it writes."""

    def __init__(self, directory: str) -> None:
        """Raises OSError."""
        self._process = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-u", os.path.abspath(__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self.output = self._process.stdin, self._process.stdout
        self.lines: queue.SimpleQueue[Optional[str]] = queue.SimpleQueue()

    def write(self) -> None:
        while (line := self.lines.get()) is not None:
            try:
                self._input.write(line.encode() + b"\n")
                self._input.flush()
            except OSError:
                return  # it is gone, which is told by who hears it

    def kill(self) -> None:
        """It and all that it started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except OSError:
            return  # nothing of it is left

    def ended(self) -> str:
        """Clear away what is left of it, and say how it ended."""
        self.lines.put(None)
        self.kill()
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"
