"""The provider's connection to one living supervisor: orders out in batches, answers and changes
in.

Used by supervisors.py alone. When the supervisor ends, every caller that waits learns it at
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

from fleetctl.providers.local import supervisor_locks


class LivingRun(NamedTuple):
    """A sandbox that a supervisor keeps. index and work: of the task that it was made for; "" from
    a supervisor of an older version, which reports neither.
    """

    sandbox: str
    created_at_s: float
    owner: str
    index: str  # type: ignore[assignment]  # hides tuple.index, which has no use here
    work: str


class SupervisorGone(Exception):
    """Raised when the connection broke; the request may or may not have been carried out."""


class StartFailed(Exception):
    """Raised with the reason of a supervisor that could not be started."""


class NeverReady(StartFailed):
    """Raised when the supervisor stayed silent: it ended, or it hangs."""


Changed = Callable[[str], None]


class SupervisorLink(asyncio.Protocol):
    """The connection to a supervisor. token: the random name of the supervisor's life, "" when it
    found another supervisor running.
    note: its tier, for messages. resource: its owner, "" where its version does not report it.
    """

    def __init__(
        self,
        name: str,
        changed: Changed,
        lost: Callable[[SupervisorLink], None],
    ) -> None:
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
        self._listings: list[asyncio.Future[list[LivingRun]]] = []
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

    async def listing(self) -> list[LivingRun]:
        """Returns all sandboxes that live. Raises SupervisorGone."""
        listing: asyncio.Future[list[LivingRun]] = asyncio.get_running_loop().create_future()
        self._listings.append(listing)
        self.send({"op": "list"})
        return await listing

    def send(self, message: dict[str, Any]) -> None:
        """Queues a message; all messages of one turn of the loop go out in one write."""
        if not self.alive:
            raise SupervisorGone
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(json.dumps(message))

    def close(self) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.close()

    async def await_greeting(self) -> None:
        """Waits until the supervisor has greeted. Raises SupervisorGone, or StartFailed of a new
        one.
        """
        await asyncio.shield(self._greeted)

    def _flush(self) -> None:
        if self._unsent and self._transport is not None:
            self._transport.write(("\n".join(self._unsent) + "\n").encode())
            self._unsent.clear()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are transports, too, though they inherit from no class of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def connection_lost(self, exc: Exception | None) -> None:  # asyncio calls it
        waiting: list[asyncio.Future[Any]] = [self._greeted]
        waiting += [*self._answers.values(), *self._listings]
        self._answers.clear()
        self._listings.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(SupervisorGone())
                future.exception()  # it may have no waiting caller any more, which is not a fault
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
            self._listings.pop(0).set_result(
                [self._make_living_run(*one) for one in message["listed"]]
            )
        elif "hello" in message:
            self.token, self.note, self.owner = message["hello"], message["note"], message["owner"]
            self.resource = str(message.get("resource", ""))
            self._greet(None)
        elif "taken" in message:
            self._greet(None)
        elif "problem" in message:
            self._greet(StartFailed(message["problem"]))

    def _greet(self, problem: StartFailed | None) -> None:
        if self._greeted.done():
            return
        if problem is None:
            self._greeted.set_result(None)
        else:
            self._greeted.set_exception(problem)

    def _make_living_run(
        self,
        name: str,
        at_s: float,
        owner: str = "",
        first: dict[str, Any] | None = None,
    ) -> LivingRun:
        first = first or {}
        index = str(first.get("index", ""))
        work = str(first.get("work", ""))
        return LivingRun(
            name,
            at_s,
            owner or self.owner,
            index,
            work,
        )


async def greet_fork(
    connection: socket.socket,
    about: tuple[str, Changed, Callable[[SupervisorLink], None]],
    message: dict[str, Any],
) -> SupervisorLink:
    """Returns a link to a new fork of a zygote and sends it its config; it has yet to greet.

    about: as for `SupervisorLink`.
    """
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(lambda: SupervisorLink(*about), sock=connection)
    with suppress(SupervisorGone):  # which `greeted` reports
        link.send(message)
    return link


async def connect_supervisor(
    directory: Path,
    changed: Changed,
    lost: Callable[[SupervisorLink], None],
) -> SupervisorLink | None:
    """Returns a link to the supervisor that serves this directory, or None."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        with supervisor_locks.short_path(directory / "sock") as path:
            connection.connect(path)
    except OSError:
        connection.close()
        return None
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(
        lambda: SupervisorLink(directory.name, changed, lost), sock=connection
    )
    try:
        await link.await_greeting()
    except SupervisorGone:
        return None
    return link
