"""Exchanges messages with one driver: requests and replies, calls of tools, further contexts in the
same sandbox, files onto its volume, and its end.

All of this runs on the shared event loop. A request is sent once and never again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import contextvars
import inspect
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Unavailable
from fleetctl.interpreter import loop
from fleetctl.interpreter.result import START_ANEW, InterpreterError, InvalidArgument

if TYPE_CHECKING:
    from fleetctl.providers.contract.sandbox_access import Session


HELLO_S = 120.0  # for the driver to come up; slow images read much from the network
INTERRUPT_S = 2.0  # for code to end after it was interrupted; then the sandbox goes
TOOLS_AT_ONCE = 128  # a thread each; code that calls a language model has many under way
log = logging.getLogger(__name__)

Tool = Callable[..., Any]

STOP_S = 30.0  # for the driver to confirm that a context is gone

Send = Callable[[dict[str, Any]], Awaitable[None]]

PIECE_BYTES = 3 * 256 * 1024  # of a file in one message; a multiple of three encodes without rest


class DriverProblem(InterpreterError):
    """The driver could not carry out a request; it lives on."""


class Conversation:
    def __init__(self, session: Session, tools: Mapping[str, Tool]) -> None:
        self._session = session
        self._tools = tools
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last = 0
        self._sending = asyncio.Lock()
        self.contexts = SandboxContexts(session, self._send)
        self._hello: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._calls: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(TOOLS_AT_ONCE)
        self._bye = ""
        # Tools see the context variables of the code's caller.
        self.context = contextvars.copy_context()
        self.over = False
        self.lost = False  # it ended, and neither we nor its driver meant it to
        self._reader = asyncio.create_task(self._read())

    async def await_greeting(self) -> None:
        """Waits for the driver's first message. Raises InterpreterError."""
        try:
            await asyncio.wait_for(asyncio.shield(self._hello), HELLO_S)
        except TimeoutError as error:
            raise InterpreterError(
                f"the driver did not begin within {HELLO_S:.0f} s",
                hint="the image needs Python 3.9 or newer as `python`",
            ) from error

    async def ask(self, operation: str, **content: Any) -> Any:
        """Sends a request and returns the driver's reply. Raises DriverProblem, or
        InterpreterError when the sandbox ends first.

        A caller that is cancelled interrupts the code; when it goes on nevertheless, the sandbox is
        stopped.
        """
        self._last += 1
        number = self._last
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"op": operation, "id": number, **content})
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            await self._interrupt(number, answer)
            raise
        finally:
            self._waiting.pop(number, None)

    async def stop(self) -> None:
        """Ends the sandbox. Idempotent. Raises Unavailable when it does not end."""
        self.over = True
        for call in self._calls:
            call.cancel()
        await self._session.stop()
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        self._fail_all("it was stopped")

    async def reload(self) -> None:
        await self._session.reload()

    @property
    def committed_late(self) -> str:
        """Returns why no commit is possible before the session ends; "" when it is."""
        return self._session.committed_late

    async def _interrupt(self, number: int, answer: asyncio.Future[Any]) -> None:
        with contextlib.suppress(InterpreterError):
            await self._send({"op": "interrupt", "id": number})
        await asyncio.wait([answer], timeout=INTERRUPT_S)
        if not answer.done():
            await self.stop()

    async def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message)
        try:
            async with self._sending:
                await self._session.send(line)
        except Unavailable:
            # Its end is near and is more informative than this error.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._reader), INTERRUPT_S)
            raise self._make_end_error() from None

    async def _read(self) -> None:
        async for line in self._session.lines():
            try:
                message = json.loads(line)
            except ValueError:
                continue  # output of another process in the sandbox
            if isinstance(message, dict):
                self._take(message)
        # Only an idle driver sends goodbye, after a long time without requests.
        self.lost = not (self.over or self._bye)
        self.over = True
        self._fail_all(self._bye or self._session.ending())

    def _take(self, message: dict[str, Any]) -> None:
        if "call" in message and "tool" in message:
            task = asyncio.create_task(self._call(message))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        elif "hello" in message:
            if not self._hello.done():
                self._hello.set_result(str(message["hello"]))
        elif "context" in message:
            self.contexts.take(message)
        elif "bye" in message:
            self._bye = str(message["bye"])
        else:
            answer = self._waiting.get(message.get("id", 0))
            if answer is None or answer.done():
                return
            if "problem" in message:
                answer.set_exception(DriverProblem(str(message["problem"])))
            else:
                answer.set_result(message.get("done"))

    def _fail_all(self, why: str) -> None:
        self._bye = why
        self.contexts.end(f"it was a context of another one, which ended: {why}")
        for future in (self._hello, *self._waiting.values()):
            if not future.done():
                future.set_exception(self._make_end_error())
                future.exception()  # it may have no waiter, which is not a fault

    @property
    def why(self) -> str:
        """Returns why it has ended."""
        return self._bye or "no reason given"

    def _make_end_error(self) -> InterpreterError:
        return InterpreterError(f"the sandbox ended: {self.why}", hint=START_ANEW)

    async def _call(self, message: dict[str, Any]) -> None:
        """Runs a tool and sends its result, even an error."""
        async with self._slots:
            answer = await self._answer(message)
        with contextlib.suppress(InterpreterError):  # there is no receiver
            await self._send({"op": "answer", "call": message["call"], **answer})

    async def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        name = message["tool"]
        tool = self._tools.get(message["tool"])
        if tool is None:
            return {"error": f"no tool is called `{name}`"}
        args = message.get("args", [])
        kwargs = message.get("kwargs", {})
        try:
            context = self.context.copy()
            value = await loop.call_in_thread(lambda: context.run(_call_tool, tool, args, kwargs))
        except Exception as error:  # a tool's errors are those of the code that called it
            log.debug("tool failed", exc_info=True, extra={"tool": name})
            if isinstance(error, InvalidArgument):
                return {"error": str(error), "invalid": True}
            return {"error": f"{type(error).__name__}: {error}"}
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            value = str(value)
        return {"value": value}


def _call_tool(
    tool: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Returns the tool's value; a coroutine function's too."""
    value = tool(*args, **kwargs)
    if inspect.isawaitable(value):
        return asyncio.run(_await_value(value))
    return value


async def _await_value(value: Any) -> Any:
    return await value


class SandboxContexts:
    """The contexts of a sandbox. send: raises InterpreterError when the sandbox has ended."""

    def __init__(self, session: Session, send: Send) -> None:
        self._session = session
        self._send = send
        self._open: dict[int, ContextSession] = {}
        self._last = 0

    async def begin(self) -> ContextSession:
        """Begins a new context. Raises InterpreterError when the sandbox has ended."""
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
    """providers/contract/sandbox_access.py's Session."""

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


def list_uploads(
    local_dirs: Mapping[str, str], local_files: Mapping[str, str]
) -> dict[str, list[tuple[Path, str]]]:
    """Returns remote path as requested -> (local file, its remote path). Raises
    FileNotFoundError.
    """
    wanted = {}
    for local, remote in local_files.items():
        path = Path(local)
        if not path.is_file():
            raise FileNotFoundError(f"`{local}` is not a file")
        wanted[remote] = [(path, remote)]
    for local, remote in local_dirs.items():
        top = Path(local)
        if not top.is_dir():
            raise FileNotFoundError(f"`{local}` is not a directory")
        wanted[remote] = [
            (path, str(PurePosixPath(remote) / path.relative_to(top).as_posix()))
            for path in sorted(top.rglob("*"))
            if path.is_file()
        ]
    return wanted


async def upload_files(
    talk: Conversation, wanted: Mapping[str, list[tuple[Path, str]]]
) -> tuple[str, ...]:
    """Uploads files; returns the remote paths that were written: those of `wanted` that did not
    exist yet.
    """
    written = []
    for remote, files in wanted.items():
        if await talk.ask("exists", path=remote):
            continue
        for local, path in files:
            for piece, first, last in _read_pieces(local):
                await talk.ask(
                    "put",
                    path=path,
                    data=piece,
                    first=first,
                    last=last,
                )
        written.append(remote)
    if written and (problem := await talk.ask("sync")):
        raise InterpreterError(f"the volume does not take what was written: {problem}")
    return tuple(written)


def _read_pieces(path: Path) -> Iterator[tuple[str, bool, bool]]:
    """Yields (base64 text, true for the first piece, true for the last)."""
    with path.open("rb") as file:
        piece = file.read(PIECE_BYTES)
        first = True
        while True:
            following = file.read(PIECE_BYTES)
            yield base64.b64encode(piece).decode(), first, not following
            if not following:
                return
            piece = following
            first = False
