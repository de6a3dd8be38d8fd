"""The talk with one driver: requests and answers, calls of tools, and the end of it.

Used by interpreter.py, on the shared event loop alone. A request is sent once and never again.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Unavailable
from fleetctl.interpreter import loop
from fleetctl.interpreter.errors import START_ANEW, InterpreterError
from fleetctl.interpreter.session.contexts import Contexts

if TYPE_CHECKING:
    from fleetctl.providers.contract.session import Session

HELLO_S = 120.0  # for the driver to come up; slow images read much from the network
INTERRUPT_S = 2.0  # for code to end after it was interrupted; then the sandbox goes
TOOLS_AT_ONCE = 128  # a thread each; code that asks a language model has many under way
log = logging.getLogger(__name__)

Tool = Callable[..., Any]


class Problem(InterpreterError):
    """The driver could not do what was asked; it lives on."""


class Conversation:
    def __init__(self, session: Session, tools: Mapping[str, Tool]) -> None:
        self._session = session
        self._tools = tools
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last = 0
        self._sending = asyncio.Lock()
        self.contexts = Contexts(session, self._send)
        self._hello: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._calls: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(TOOLS_AT_ONCE)
        self._bye = ""
        # Tools see the context variables of whoever executes the code that calls them.
        self.context = contextvars.copy_context()
        self.over = False
        self.lost = False  # it ended, and neither we nor its driver meant it to
        self._reader = asyncio.create_task(self._read())

    async def greeted(self) -> None:
        """Wait for the driver's first words. Raises InterpreterError."""
        try:
            await asyncio.wait_for(asyncio.shield(self._hello), HELLO_S)
        except TimeoutError as error:
            raise InterpreterError(
                f"the driver did not begin within {HELLO_S:.0f} s",
                hint="the image needs Python 3.9 or newer as `python`",
            ) from error

    async def ask(self, operation: str, **content: Any) -> Any:
        """The driver's answer. Raises Problem, or InterpreterError when the sandbox ends first.

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
        """End the sandbox. Idempotent. Raises Unavailable when it does not end."""
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
        """Why nothing can be committed before the session ends; "" when it can."""
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
            # Its end is near and says more than this does.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._reader), INTERRUPT_S)
            raise self._ended() from None

    async def _read(self) -> None:
        async for line in self._session.lines():
            try:
                message = json.loads(line)
            except ValueError:
                continue  # what something else in the sandbox wrote there
            if isinstance(message, dict):
                self._take(message)
        # Its driver says goodbye when it has had nothing to do for long; nobody else does.
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
                answer.set_exception(Problem(str(message["problem"])))
            else:
                answer.set_result(message.get("done"))

    def _fail_all(self, why: str) -> None:
        self._bye = why
        self.contexts.end(f"it was a context of another one, which ended: {why}")
        for future in (self._hello, *self._waiting.values()):
            if not future.done():
                future.set_exception(self._ended())
                future.exception()  # nobody may wait for it, which is not a fault

    @property
    def why(self) -> str:
        """Why it is over."""
        return self._bye or "no reason given"

    def _ended(self) -> InterpreterError:
        return InterpreterError(f"the sandbox ended: {self.why}", hint=START_ANEW)

    async def _call(self, message: dict[str, Any]) -> None:
        """Run a tool and send its answer, whatever it is."""
        async with self._slots:
            answer = await self._answer(message)
        with contextlib.suppress(InterpreterError):  # nobody is there to hear it
            await self._send({"op": "answer", "call": message["call"], **answer})

    async def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        name, tool = message["tool"], self._tools.get(message["tool"])
        if tool is None:
            return {"error": f"no tool is called `{name}`"}
        args, kwargs = message.get("args", []), message.get("kwargs", {})
        try:
            context = self.context.copy()
            value = await loop.in_thread(lambda: context.run(_called, tool, args, kwargs))
        except Exception as error:  # a tool's errors are those of the code that called it
            log.debug("tool failed", exc_info=True, extra={"tool": name})
            return {"error": f"{type(error).__name__}: {error}"}
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            value = str(value)
        return {"value": value}


def _called(tool: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The tool's value; a coroutine function's too."""
    value = tool(*args, **kwargs)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value
