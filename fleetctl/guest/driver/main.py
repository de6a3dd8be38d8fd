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
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import Any, Optional

from fleetctl.guest.driver.channel import Capture, Channel, Contexts, HostCalls, Uploads
from fleetctl.guest.driver.execution import Execution, sync_directory

Message = dict[str, Any]


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


def main() -> None:
    Driver().serve()
