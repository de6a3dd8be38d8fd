"""Numbers the open requests of a run, and sends them over a line to the controller.

A line may be lost at any moment. The next line gets every request without a whole answer, with the
number of bytes that the client has; the controller's end keeps answers by the requests' numbers.
"""

from __future__ import annotations

import asyncio
import binascii
import os

from fleetctl.guest.task.text import encode_compact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    RelayMessage = Dict[str, Any]

AT_ONCE_MAX = 64  # requests of a run; further ones wait, their bodies unread
# Bytes of all bodies at once; further requests wait. The sandbox's memory is for the task.
BODIES_BYTES_MAX = 64 * 1024 * 1024
LEFT_MAX = 1024  # numbers whose client left while there was no line
# Bytes of a line before it is replaced: some services store the line in a file.
LINE_BYTES_MAX = 256 * 1024 * 1024


class OpenRequest:
    """A request of a client. have: bytes of its answer that the client was given. over: the rest of
    the answer is not to be sent. messages: pieces of the answer; None means that the client left.
    """

    def __init__(
        self,
        number: str,
        fields: dict[str, Any],
        body: bytes,
    ) -> None:
        self.number = number
        self._fields = fields
        self._body = body
        self.have = 0
        self.over = False
        self.messages: asyncio.Queue[Optional[RelayMessage]] = asyncio.Queue()

    def to_line(self) -> bytes:
        """Returns the line that sends the request; b"" when no client waits for the answer."""
        if self.over:
            return b""
        body = {"b64": binascii.b2a_base64(self._body, newline=False).decode()}
        if self._body.isascii():
            body = {"body": self._body.decode()}
        return _encode_message({"n": self.number, **self._fields, **body, "have": self.have})


class OpenRequests:
    """The requests of a run. slots and body_bytes: what requests at once may use."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(AT_ONCE_MAX)
        self.body_bytes = ByteAllowance(BODIES_BYTES_MAX)
        self._requests: dict[str, OpenRequest] = {}
        self._left: list[str] = []
        self._line: Optional[RelayStream] = None
        # Also after the death of a process like this one no number comes twice in a run.
        self._life = os.urandom(6).hex()
        self._count = 0

    def add_request(self, fields: dict[str, Any], body: bytes) -> OpenRequest:
        self._count += 1
        request = OpenRequest(f"{self._life}.{self._count}", fields, body)
        self._requests[request.number] = request
        if self._line is not None:
            self._line.send(request.to_line)
        return request

    def drop_request(self, request: OpenRequest) -> None:
        """Drops a request that no client waits for any more, whether or not it has its answer."""
        del self._requests[request.number]
        if request.over:
            return
        request.over = True
        if self._line is not None:
            self._line.send(lambda: _cancel_line(request.number))
        elif len(self._left) < LEFT_MAX:
            self._left.append(request.number)

    def attach_line(self, line: RelayStream) -> None:
        """Sends everything over this line from now on; closes the line before it."""
        if self._line is not None:
            self._line.close()
        self._line = line
        for number in self._left:
            line.send(lambda number=number: _cancel_line(number))  # type: ignore[misc]
        self._left = []
        for request in self._requests.values():
            line.send(request.to_line)

    def detach_line(self, line: RelayStream) -> None:
        if self._line is line:
            self._line = None

    def receive(self, line: RelayStream, message: RelayMessage) -> None:
        """Passes on a message of the line, unless another line was attached since."""
        request = self._requests.get(str(message.get("n")))
        if request is None or request.over or line is not self._line:
            return
        request.have += len(decode_piece(message))
        request.over = bool(message.get("end") or message.get("broken"))
        request.messages.put_nowait(message)

    def end(self) -> None:
        """Ends the run: clients that still wait get a broken answer."""
        for request in self._requests.values():
            request.over = True
            request.messages.put_nowait({"broken": True})
        if self._line is not None:
            self._line.send(lambda: _encode_message({"e": "over"}))
            self._line.finish()


class RelayStream:
    """Sends messages to the attached line. A message is made when it can be written: it may be
    long, and obsolete by then.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._waiting: asyncio.Queue[Optional[Callable[[], bytes]]] = asyncio.Queue()
        self._bytes = 0
        self._task = asyncio.ensure_future(self._write())

    def send(self, message: Callable[[], bytes]) -> None:
        if self._bytes > LINE_BYTES_MAX:
            self.close()  # the next line gets the message, too
        self._waiting.put_nowait(message)

    def finish(self) -> None:
        """Closes the line once all messages are sent."""
        self._waiting.put_nowait(None)

    def close(self) -> None:
        self._task.cancel()
        self._writer.close()

    async def _write(self) -> None:
        try:
            while True:
                message = await self._waiting.get()
                if message is None:
                    break
                data = message()
                self._bytes += len(data)
                self._writer.write(data)
                await self._writer.drain()
        except OSError:
            pass  # the reader notices that, too
        self._writer.close()


class ByteAllowance:
    """A number of bytes that requests share, first come, first served."""

    def __init__(self, most: int) -> None:
        self._left, self._freed = most, asyncio.Condition()

    async def take(self, count: int) -> None:
        async with self._freed:
            await self._freed.wait_for(lambda: self._left >= count)
            self._left -= count

    async def give(self, count: int) -> None:
        async with self._freed:
            self._left += count
            self._freed.notify_all()


def decode_piece(message: RelayMessage) -> bytes:
    """Returns a message's bytes of the answer."""
    if "b64" in message:
        return binascii.a2b_base64(message["b64"])
    return str(message.get("piece", "")).encode()


def _cancel_line(number: str) -> bytes:
    return _encode_message({"n": number, "cancel": True})


def _encode_message(message: dict[str, Any]) -> bytes:
    return encode_compact(message).encode() + b"\n"
