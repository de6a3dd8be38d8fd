"""The provider's connection to one living supervisor: orders out in batches, answers and changes
in.

Used by supervisors.py alone. When the supervisor goes away, every caller that waits learns it at
once.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from fleetctl.providers.local import locks


class Living(NamedTuple):
    """A sandbox that a supervisor keeps. index and work: of the task that it was made for; "" where
    the supervisor is of an older version, which tells neither.
    """

    sandbox: str
    created_at_s: float
    owner: str
    index: str  # type: ignore[assignment]  # hides tuple.index, which nobody wants of one
    work: str


class SupervisorGone(Exception):
    """The connection broke; what was asked for may or may not have happened."""


class Cannot(Exception):
    """A supervisor that was to be started says why it cannot."""


class NeverReady(Cannot):
    """The supervisor said nothing: it ended, or it hangs."""


Changed = Callable[[str], None]


class Link(asyncio.Protocol):
    """token: the random name of the supervisor's life, "" of one that found another in its place;
    note: its tier, for people; resource: whose it is, "" where its version does not tell.
    """

    def __init__(self, name: str, changed: Changed, lost: Callable[[Link], None]) -> None:
        self.name = name
        self.resource = ""
        self.token = ""
        self.note = ""
        self.owner = ""
        self._changed = changed
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._listings: list[asyncio.Future[list[Living]]] = []
        self._unsent: list[str] = []
        self._rest = b""

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def start(self, message: dict[str, Any]) -> dict[str, Any]:
        """The supervisor's answer. Raises SupervisorGone."""
        run = message["run"]
        answer = self._answers.get(run)
        if answer is None:
            answer = self._answers[run] = asyncio.get_running_loop().create_future()
            self.send(message)
        return await asyncio.shield(answer)

    async def listing(self) -> list[Living]:
        """All sandboxes that live. Raises SupervisorGone."""
        listing: asyncio.Future[list[Living]] = asyncio.get_running_loop().create_future()
        self._listings.append(listing)
        self.send({"op": "list"})
        return await listing

    def send(self, message: dict[str, Any]) -> None:
        """All that is sent in one turn of the loop goes out in one write."""
        if not self.alive:
            raise SupervisorGone
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(json.dumps(message))

    def close(self) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.close()

    async def greeted(self) -> None:
        """Wait until the supervisor has said who it is. Raises SupervisorGone, or Cannot of a
        new one.
        """
        await asyncio.shield(self._greeted)

    def _flush(self) -> None:
        if self._unsent and self._transport is not None:
            self._transport.write(("\n".join(self._unsent) + "\n").encode())
            self._unsent.clear()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are such, too, and inherit from nothing of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio calls it
        waiting: list[asyncio.Future[Any]] = [self._greeted]
        waiting += [*self._answers.values(), *self._listings]
        self._answers.clear()
        self._listings.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(SupervisorGone())
                future.exception()  # nobody may wait for it any more, which is not a fault
        self._lost(self)

    def _take(self, message: dict[str, Any]) -> None:
        if "answer" in message:
            answer = self._answers.pop(message["answer"], None)
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif "changed" in message:
            for run in message["changed"]:
                self._changed(run)
        elif "listed" in message:
            self._listings.pop(0).set_result([self._living(*one) for one in message["listed"]])
        elif "hello" in message:
            self.token, self.note, self.owner = message["hello"], message["note"], message["owner"]
            self.resource = str(message.get("resource", ""))
            self._greet(None)
        elif "taken" in message:
            self._greet(None)
        elif "problem" in message:
            self._greet(Cannot(message["problem"]))

    def _greet(self, problem: Cannot | None) -> None:
        if self._greeted.done():
            return
        if problem is None:
            self._greeted.set_result(None)
        else:
            self._greeted.set_exception(problem)

    def _living(
        self, name: str, at_s: float, owner: str = "", first: dict[str, Any] | None = None
    ) -> Living:
        first = first or {}
        index, work = str(first.get("index", "")), str(first.get("work", ""))
        return Living(name, at_s, owner or self.owner, index, work)


async def greet(
    connection: socket.socket,
    about: tuple[str, Changed, Callable[[Link], None]],
    message: dict[str, Any],
) -> Link:
    """A link to a new fork of a zygote, which is told whose supervisor it is; it has yet to greet.

    about: as for `Link`.
    """
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(lambda: Link(*about), sock=connection)
    with suppress(SupervisorGone):  # which `greeted` tells
        link.send(message)
    return link


async def connect(directory: Path, changed: Changed, lost: Callable[[Link], None]) -> Link | None:
    """A link to the supervisor that serves this directory; None when there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        with locks.short_path(directory / "sock") as path:
            connection.connect(path)
    except OSError:
        connection.close()
        return None
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(
        lambda: Link(directory.name, changed, lost), sock=connection
    )
    try:
        await link.greeted()
    except SupervisorGone:
        return None
    return link
