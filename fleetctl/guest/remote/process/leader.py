"""A process that works for a run, and the channel on which it sends events.

Made by attempt.py. A command leads one run; a worker leads one Python task after another.
"""

from __future__ import annotations

import _signal
import _socket
import sys

from fleetctl.guest.remote.process.child import spawn
from fleetctl.guest.supervision.processes import send
from fleetctl.guest.task.text import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn, Optional

    from fleetctl.guest.remote.loop import Loop

READ_BYTES_MAX = 1024 * 1024
LINE_BYTES_MAX = 1024 * 1024  # a result of the largest size, escaped, with room to spare


class Leader:
    """A process for runs; `hear` and `ended` are set by the run that it works for."""

    def __init__(
        self,
        loop: Loop,
        work: Callable[[], NoReturn],
        output: int,
    ) -> None:
        """Starts the process. Raises OSError when it cannot be started."""
        self._loop = loop
        self._received = b""
        self.hear: Callable[[dict[str, Any]], None] = _ignore_event
        self.ended: Callable[[], None] = _ignore_end
        self.status: Optional[int] = None  # the wait status, once it has ended
        ours, theirs = _socket.socketpair()
        try:
            self.pid = spawn(work, output, theirs.fileno())
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._channel: Optional[_socket.socket] = ours
        ours.setblocking(False)
        loop.watch(ours.fileno(), self._listen)
        loop.when_ended(self.pid, self._note_end)

    @property
    def lives(self) -> bool:
        return self.status is None

    def hand(self, message: str, output: int) -> None:
        """Hands a worker one more task. Raises OSError when the worker does not take it."""
        if self._channel is None:
            raise BrokenPipeError("the worker has left")
        data = message.encode() + b"\n"
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, output.to_bytes(4, _BYTE_ORDER))]
        self._channel.settimeout(HAND_S)
        sent = self._channel.sendmsg([data], rights)
        if sent < len(data):
            self._channel.sendall(data[sent:])
        self._channel.setblocking(False)

    def signal(self, number: int) -> None:
        """Sends a signal to the process and its group."""
        if self.lives:
            send(-self.pid, number)
            send(self.pid, number)

    def kill(self) -> None:
        self.signal(_signal.SIGKILL)

    def drain(self) -> None:
        """Receives its last events."""
        while self._listen():
            pass

    def hang_up(self) -> None:
        """Closes the channel, at which a waiting worker leaves."""
        if self._channel is not None:
            self._loop.forget(self._channel.fileno())
            self._channel.close()
            self._channel = None

    def _note_end(self, status: int) -> None:
        self.status = status
        self.ended()

    def _listen(self) -> bool:
        """Receives some events; False when there are none now."""
        if self._channel is None:
            return False
        try:
            data = self._channel.recv(READ_BYTES_MAX)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.hang_up()
            return False
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            event = _parse_event(line)
            if event:
                self.hear(event)
        if len(self._received) > LINE_BYTES_MAX:
            self.hear(_TOO_LONG)
            self.hang_up()
        return True


def _parse_event(line: bytes) -> dict[str, Any]:
    """Parses an event of a process, which may be anything; {} for an invalid one."""
    try:
        event = parse(line.decode())
    except (ValueError, RecursionError):
        return {}
    if isinstance(event, dict):
        return event
    return {}


def _ignore_event(_: dict[str, Any]) -> None:
    """Ignores events of a worker between two tasks."""


def _ignore_end() -> None:
    """Ignores the end of a worker between two tasks."""


HAND_S = 5.0  # for a worker to take its next task
_BYTE_ORDER = sys.byteorder
_TOO_LONG = {
    "e": "error",
    "reason": "ResultInvalid",
    "message": "the task sent more than a result may hold",
}
