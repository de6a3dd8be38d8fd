"""Numbers the open requests of a run, and sends them over a line to the controller.

A line may be lost at any moment. The next one gets every request without a whole answer, with how
many bytes the client has; the other end keeps answers by their numbers.
"""

from __future__ import annotations

import asyncio
import binascii
import os

from fleetctl.guest.task.text import compact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    News = Dict[str, Any]

AT_ONCE_MAX = 64  # requests of a run; further ones wait, their bodies unread
# Bytes of all bodies at once: a request waits for room, and the sandbox is the task's.
BODIES_BYTES_MAX = 64 * 1024 * 1024
LEFT_MAX = 1024  # numbers whose client left while there was no line
# Bytes of a line before it is replaced: some services store the line in a file.
LINE_BYTES_MAX = 256 * 1024 * 1024


class Asked:
    """One request. have: bytes of its answer that the client was given."""

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
        self.over = False  # the rest is not to be sent
        self.news: asyncio.Queue[Optional[News]] = asyncio.Queue()  # None: the client left

    def told(self) -> bytes:
        """Returns the line that sends the request; b"" when no client waits for the answer."""
        if self.over:
            return b""
        body = {"b64": binascii.b2a_base64(self._body, newline=False).decode()}
        if self._body.isascii():
            body = {"body": self._body.decode()}
        return _line({"n": self.number, **self._fields, **body, "have": self.have})


class Calls:
    """The requests of a run."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(AT_ONCE_MAX)
        self.room = Room(BODIES_BYTES_MAX)
        self._asked: dict[str, Asked] = {}
        self._left: list[str] = []
        self._line: Optional[RelayStream] = None
        # Also after the death of a process like this one no number comes twice in a run.
        self._life = os.urandom(6).hex()
        self._count = 0

    def ask(self, fields: dict[str, Any], body: bytes) -> Asked:
        self._count += 1
        asked = Asked(f"{self._life}.{self._count}", fields, body)
        self._asked[asked.number] = asked
        if self._line is not None:
            self._line.tell(asked.told)
        return asked

    def leave(self, asked: Asked) -> None:
        """Drops a request that no client waits for any more, answered or not."""
        del self._asked[asked.number]
        if asked.over:
            return
        asked.over = True
        if self._line is not None:
            self._line.tell(lambda: _cancelled(asked.number))
        elif len(self._left) < LEFT_MAX:
            self._left.append(asked.number)

    def join(self, line: RelayStream) -> None:
        """Sends everything over this line from now on; closes the one before."""
        if self._line is not None:
            self._line.close()
        self._line = line
        for number in self._left:
            line.tell(lambda number=number: _cancelled(number))  # type: ignore[misc]
        self._left = []
        for asked in self._asked.values():
            line.tell(asked.told)

    def part(self, line: RelayStream) -> None:
        if self._line is line:
            self._line = None

    def hear(self, line: RelayStream, news: News) -> None:
        """Passes on a message of the line, unless another one has joined since."""
        asked = self._asked.get(str(news.get("n")))
        if asked is None or asked.over or line is not self._line:
            return
        asked.have += len(piece_of(news))
        asked.over = bool(news.get("end") or news.get("broken"))
        asked.news.put_nowait(news)

    def end(self) -> None:
        """Ends the run: clients that still wait get a broken answer."""
        for asked in self._asked.values():
            asked.over = True
            asked.news.put_nowait({"broken": True})
        if self._line is not None:
            self._line.tell(lambda: _line({"e": "over"}))
            self._line.finish()


class RelayStream:
    """Sends to the joined line. A message is made when it can be written: it may be long, and
    obsolete by then.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._waiting: asyncio.Queue[Optional[Callable[[], bytes]]] = asyncio.Queue()
        self._bytes = 0
        self._task = asyncio.ensure_future(self._write())

    def tell(self, message: Callable[[], bytes]) -> None:
        if self._bytes > LINE_BYTES_MAX:
            self.close()  # the next line gets it, too
        self._waiting.put_nowait(message)

    def finish(self) -> None:
        """Closes once all is sent."""
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


class Room:
    """A number of bytes, given to requests as they come."""

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


def piece_of(news: News) -> bytes:
    """Returns a message's bytes of the answer."""
    if "b64" in news:
        return binascii.a2b_base64(news["b64"])
    return str(news.get("piece", "")).encode()


def _cancelled(number: str) -> bytes:
    return _line({"n": number, "cancel": True})


def _line(message: dict[str, Any]) -> bytes:
    return compact(message).encode() + b"\n"
