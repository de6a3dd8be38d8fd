"""Sessions within a session: each a context of its own in the same sandbox, over the same line.

Made by conversation.py for recursive queries; guest/driver/contexts.py is the other end. On the
shared event loop alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Unavailable
from fleetctl.interpreter.interpreter_errors import InterpreterError

if TYPE_CHECKING:
    from fleetctl.providers.contract.session import Session

STOP_S = 30.0  # for the driver to confirm that a context is gone

Send = Callable[[dict[str, Any]], Awaitable[None]]


class SandboxContexts:
    """The contexts of a sandbox. send: raises InterpreterError when the sandbox has ended."""

    def __init__(self, session: Session, send: Send) -> None:
        self._session = session
        self._send = send
        self._open: dict[int, ContextSession] = {}
        self._last = 0

    async def begin(self) -> ContextSession:
        """Raises InterpreterError when the sandbox has ended."""
        self._last += 1
        context = ContextSession(self._last, self._session, self._send)
        self._open[self._last] = context
        await context.order("begin")
        return context

    def take(self, message: Mapping[str, Any]) -> None:
        """Takes a message of the driver about a context."""
        context = self._open.get(message["context"])
        if context is None:
            return
        if "line" in message:
            context.hear(str(message["line"]))
        else:
            del self._open[message["context"]]
            context.end(f"its process ended: {message.get('over')}")

    def end(self, why: str) -> None:
        """Ends all contexts, as the sandbox has ended."""
        for context in self._open.values():
            context.end(why)
        self._open.clear()


class ContextSession:
    """providers/contract/session.py's Session."""

    def __init__(
        self,
        number: int,
        session: Session,
        send: Send,
    ) -> None:
        self.place_root = session.place_root
        self.workspace = session.workspace
        self.committed_late = session.committed_late
        self._number = number
        self._session = session
        self._send = send
        self._heard: asyncio.Queue[str | None] = asyncio.Queue()
        self._over = asyncio.Event()
        self._why = ""

    async def send(self, line: str) -> None:
        if self._over.is_set():
            raise Unavailable(f"the context has ended: {self._why}")
        await self.order("pass", line=line)

    async def lines(self) -> AsyncIterator[str]:
        while (line := await self._heard.get()) is not None:
            yield line

    def ending(self) -> str:
        return self._why

    async def reload(self) -> None:
        await self._session.reload()

    async def stop(self) -> None:
        if self._over.is_set():
            return
        try:
            async with asyncio.timeout(STOP_S):
                await self.order("end")
                await self._over.wait()
        except InterpreterError as error:
            self.end(str(error))  # with the sandbox that it was in
        except TimeoutError as error:
            raise Unavailable(f"a context did not end within {STOP_S:.0f} s") from error

    async def order(self, operation: str, **content: Any) -> None:
        await self._send({"op": operation, "context": self._number, **content})

    def hear(self, line: str) -> None:
        self._heard.put_nowait(line)

    def end(self, why: str) -> None:
        if not self._over.is_set():
            self._why = why
            self._heard.put_nowait(None)
            self._over.set()
