"""A container's log, as the container runtime keeps it: each line with its time, in a file."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from tests.emulators.kubernetes.store.errors import ApiError
from tests.emulators.kubernetes.store.times import seconds_of

READ_BYTES = 64 * 1024
LINE_BYTES_MAX = 16 * 1024  # longer ones are kept in parts
STAMP_CHARS = 30


def _stamp(at_s: float) -> bytes:
    when = datetime.fromtimestamp(at_s, timezone.utc)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()


class ContainerLog:
    """Reads pipes of one container's life until both have ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._rest: dict[int, bytes] = {}
        self._waiting: set[asyncio.Event] = set()
        self._finished = asyncio.Event()
        self.listeners: set[asyncio.Queue[tuple[int, bytes]]] = set()  # of who is attached
        self._channels: dict[int, int] = {}

    def follow(self, descriptor: int, *, channel: int) -> None:
        """Takes the reading end of a pipe over. channel: 1 is stdout, 2 is stderr."""
        os.set_blocking(descriptor, False)
        self._rest[descriptor], self._channels[descriptor] = b"", channel
        asyncio.get_running_loop().add_reader(descriptor, self._on_readable, descriptor)

    async def finished(self) -> None:
        """When nothing more can come; a child that keeps the pipe open is not waited for long."""
        if self._rest:
            try:
                async with asyncio.timeout(1.0):
                    await self._finished.wait()
            except TimeoutError:
                pass
        for descriptor in list(self._rest):
            self._close(descriptor)
        self._file.close()
        self._tell()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def _on_readable(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._close(descriptor)
            return
        channel = self._channels[descriptor]
        for one in self.listeners:
            one.put_nowait((channel, data))
        whole, newline, rest = (self._rest[descriptor] + data).rpartition(b"\n")
        if whole or newline:
            self._write(whole, channel)
        if len(rest) > LINE_BYTES_MAX:
            self._write(rest, channel, part=True)
            rest = b""
        self._rest[descriptor] = rest

    def _write(self, whole: bytes, channel: int, *, part: bool = False) -> None:
        """part: the line goes on in the next record, as the runtime's tag `P` says."""
        stream, tag = (b"stdout" if channel == 1 else b"stderr"), (b"P" if part else b"F")
        head = b" ".join((_stamp(time.time()), stream, tag, b""))
        self._file.write(b"".join(head + line + b"\n" for line in whole.split(b"\n")))
        self._tell()

    def _close(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        rest, channel = self._rest.pop(descriptor), self._channels[descriptor]
        if rest:
            self._write(rest, channel)
        if not self._rest:
            self._finished.set()

    def _tell(self) -> None:
        for one in self._waiting:
            one.set()

    async def changes(self) -> AsyncIterator[None]:
        """Once for each time that there may be more, and once after the end."""
        news = asyncio.Event()
        self._waiting.add(news)
        try:
            while not self.closed:
                await news.wait()
                news.clear()
                yield
        finally:
            self._waiting.discard(news)


@dataclass(frozen=True, slots=True)
class LogWish:
    """What of a log is asked for."""

    follow: bool = False
    timestamps: bool = False
    tail: int | None = None
    since_s: float = 0.0  # since the epoch
    bytes_max: int | None = None


def wish_of(query: Mapping[str, str]) -> LogWish:
    """Raises ApiError 422 for what makes no sense."""
    on = ("true", "1")
    since_s = 0.0
    if "sinceSeconds" in query:
        since_s = time.time() - int(query["sinceSeconds"])
    elif "sinceTime" in query:
        since_s = seconds_of(query["sinceTime"])
    tail = int(query["tailLines"]) if "tailLines" in query else None
    if tail is not None and tail < 0:
        raise ApiError(
            422,
            'PodLogOptions "" is invalid: tailLines: Invalid value: -1: must be greater than or'
            " equal to 0",
        )
    return LogWish(
        query.get("follow") in on,
        query.get("timestamps") in on,
        tail,
        since_s,
        int(query["limitBytes"]) if "limitBytes" in query else None,
    )


def lines(path: Path, offset: int, wish: LogWish, *, tail: bool) -> tuple[list[bytes], int]:
    """(lines as they are answered, where the next reading goes on). Parts of a line (tag `P`) are
    joined, as the kubelet does, and have one time."""
    if not path.exists():
        return [], offset
    content = path.read_bytes()
    before, data = content[:offset], content[offset:]
    whole = data.rpartition(b"\n")[0]
    records = whole.split(b"\n") if whole else []
    if tail and wish.tail is not None:
        records = list(deque(records, maxlen=wish.tail)) if wish.tail else []
    found = []
    goes_on = _is_part(before.removesuffix(b"\n").rpartition(b"\n")[2])
    for record in records:
        stamp, _, rest = record.partition(b" ")
        if wish.since_s and seconds_of(stamp[:26].decode() + "Z") < wish.since_s:
            continue
        text = rest.split(b" ", 2)[2]
        head = stamp + b" " if wish.timestamps and not goes_on else b""
        goes_on = _is_part(record)
        found.append(head + text + (b"" if goes_on else b"\n"))
    return found, offset + len(whole) + (1 if whole or data[:1] == b"\n" else 0)


def _is_part(record: bytes) -> bool:
    return record.split(b" ", 3)[2:3] == [b"P"]


def tail_text(path: Path, *, lines_max: int = 80, bytes_max: int = 2048) -> str:
    """The end of a log, for a termination message."""
    found, _ = lines(path, 0, LogWish(tail=lines_max), tail=True)
    return b"".join(found)[-bytes_max:].decode("utf-8", "replace")
