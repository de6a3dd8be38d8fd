"""Calls from code in the sandbox to functions of the host: the interpreter's tools.

Part of the guest; used by the driver. Each call has a number, so any thread may call at any time
and answers may come in any order.
"""

from __future__ import annotations

import json
import threading
from typing import Any, Callable

from fleetctl.guest.driver.channel import Channel

ARGUMENTS_BYTES_MAX = 16 * 1024 * 1024  # the limit of a line to the host


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
