"""Notifies the supervisor's visitors: followers, which learn when to look, and requesting verbs.

Used by supervise.py. A request is one JSON line; the only reply is the journal.
"""

from __future__ import annotations

import _socket
import os

from fleetctl.guest.remote import place
from fleetctl.guest.task.text import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from fleetctl.guest.remote.loop import Loop
    from fleetctl.guest.remote.stream import Telling

SOON_S = 0.05  # between two notices of new output: a chatty task must not cost more than a quiet
REQUEST_BYTES_MAX = 64 * 1024 * 1024  # an order with its code and parameters


class Visitors:
    def __init__(self, loop: Loop, obey: Callable[[dict[str, Any]], None]) -> None:
        self._loop = loop
        self._obey = obey
        self.telling: Optional[Telling] = None  # streams to the reader of our own frames
        self._lines: dict[int, _socket.socket] = {}
        self._received: dict[int, bytes] = {}
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._listener.bind(place.SOCKET)
        self._listener.listen(64)
        self._listener.setblocking(False)
        loop.watch(self._listener.fileno(), self._accept)

    def adopt(self, line: _socket.socket) -> None:
        line.setblocking(False)
        self._lines[line.fileno()] = line
        self._received[line.fileno()] = b""
        self._loop.watch(line.fileno(), lambda: self._receive(line))

    def tell_soon(self) -> None:
        """Notifies visitors soon that there is new output."""
        if not self._loop.waits_for("tell"):
            self._loop.after("tell", SOON_S, self.tell)

    def tell(self) -> None:
        """Notifies visitors of new events in a journal."""
        self._loop.cancel("tell")
        for line in list(self._lines.values()):
            self._poke(line)
        if self.telling is not None:
            self.telling.look()

    def close(self) -> None:
        """Reads the pending requests, then takes no more."""
        os.unlink(place.SOCKET)
        self._accept()
        for line in list(self._lines.values()):
            self._receive(line)

    def _accept(self) -> None:
        while True:
            try:
                handle, _ = self._listener._accept()  # type: ignore[attr-defined]
            except BlockingIOError:
                return
            except OSError:
                return  # it has closed already
            line = _socket.socket(fileno=handle)
            self.adopt(line)
            # While it waited here it may have missed events.
            self._poke(line)

    def _poke(self, line: _socket.socket) -> None:
        try:
            line.send(b".")
        except OSError:
            # It has enough bytes pending, or has closed: then its request is still to be read.
            return

    def _receive(self, line: _socket.socket) -> None:
        handle = line.fileno()
        try:
            data = line.recv(1024 * 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self._received[handle]) > REQUEST_BYTES_MAX:
            self._drop(line)
            return
        *requests, self._received[handle] = (self._received[handle] + data).split(b"\n")
        for request in requests:
            self._obey(parse_json(request.decode()))

    def _drop(self, line: _socket.socket) -> None:
        if self._lines.pop(line.fileno(), None) is not None:
            del self._received[line.fileno()]
            self._loop.forget(line.fileno())
            line.close()
