"""One interpreter's life on the shared loop: opening its session, executing, losing it.

Used by interpreter.py, whose methods are these with a thread or another loop around them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.common.state_paths import find_state_dir
from fleetctl.interpreter import loop
from fleetctl.interpreter.options import InterpreterOptions, session_order
from fleetctl.interpreter.result import START_ANEW, InterpreterError, redact_text
from fleetctl.interpreter.session import interpreter_record
from fleetctl.interpreter.session.conversation import Conversation, DriverProblem, Tool
from fleetctl.interpreter.session.execute_call import (
    Callback,
    ExecuteRequest,
    ExecuteResult,
    ExecutionEvents,
    plain_value,
    read_answer,
)
from fleetctl.interpreter.session.interpreter_record import InterpreterRecord

if TYPE_CHECKING:
    from fleetctl.providers.contract.sandbox_access import Session, SessionRequest

SYNC_S = 30.0  # for a volume to take what was written, before the sandbox goes
log = logging.getLogger(__name__)
T = TypeVar("T")

__all__ = ["InterpreterRuntime", "Opener", "Tool"]

Opener = Callable[["SessionRequest"], Awaitable["Session"]]


class ChildQueries(Protocol):
    """Recursive queries that the code has under way. `end` never raises."""

    async def end(self) -> None: ...


class InterpreterRuntime:
    """tools: the interpreter's own table, which may change at any time. below: children that end
    with the code that requested them. opener: the source of its sessions, when not the provider;
    record: of its sandboxes, without those of an opener.
    """

    def __init__(
        self,
        options: InterpreterOptions,
        tools: Mapping[str, Tool],
        below: ChildQueries | None = None,
        opener: Opener | None = None,
        record: InterpreterRecord | None = None,
    ) -> None:
        self._options = options
        self._tools = tools
        self._below = below
        self._opener = opener
        self._record = record or InterpreterRecord(options, None)
        self._retired = False
        self._turn = asyncio.Lock()  # executions of an interpreter follow one another
        self._talk: Conversation | None = None
        self._opening: asyncio.Task[Conversation] | None = None

    @property
    def started(self) -> bool:
        return self._talk is not None and not self._talk.over

    def sandbox(self) -> str:
        """Returns the name of the sandbox that its code is in; of a context, the one that it
        shares.
        """
        return self._record.name or self._record.parent

    @property
    def holds(self) -> bool:
        """Returns true if there may be a sandbox that `shutdown` would end: also one whose driver
        has ended by itself, and one that is only being made.
        """
        return self._talk is not None or self._opening is not None

    async def start(self) -> None:
        async with self._turn:
            await self._ensure(anew=True)

    async def execute(self, work: ExecuteRequest) -> ExecuteResult:
        async with self._turn:
            events = ExecutionEvents(work.code, work.profile)
            await self._notify_callback(work.callback, events.start())
            try:
                answer = await self._ask(work)
            except FleetctlError as error:
                fields = {"error_type": type(error).__name__, "error": str(error)}
                ended = events.complete("exception", success=False, **fields)
                await self._notify_callback(work.callback, ended)
                raise
            executed, ended = read_answer(answer, events, self._options)
            await self._notify_callback(work.callback, ended)
            return executed

    async def commit(self) -> None:
        """Makes the volume keep all written files. Raises InterpreterError."""
        async with self._turn:
            if self._options.volume and self.started:
                talk = await self._ensure()
                if why := talk.committed_late:
                    raise InterpreterError(
                        f"the volume is not committed before the sandbox ends: {why}",
                        hint="shutdown() ends it; a volume of version 2 can be committed before",
                    )
                if problem := await talk.ask("sync"):
                    raise InterpreterError(f"the volume does not take what was written: {problem}")

    async def reload(self) -> None:
        async with self._turn:
            if self._options.volume and self._talk is not None and not self._talk.over:
                await self._talk.reload()

    async def use(self, act: Callable[[Conversation], Awaitable[T]]) -> T:
        """Runs `act(conversation)`, between executions."""
        async with self._turn:
            try:
                return await act(await self._ensure())
            except DriverProblem as error:
                raise InterpreterError(str(error)) from None

    async def retire(self) -> None:
        """Shuts down at once and for ever: later calls find it ended."""
        self._retired = True
        await self.shutdown(at_once=True)

    async def open_context(self, order: SessionRequest) -> Session:
        """Opens a session in the existing sandbox. Raises InterpreterError without one."""
        if self._opener is not None:
            return await self._opener(order)  # contexts of a sandbox run side by side
        if self._talk is None:
            raise InterpreterError("the sandbox of the context ended")
        return await self._talk.contexts.begin()

    async def shutdown(self, *, at_once: bool = False) -> None:
        """Ends the session and its sandbox. at_once: without waiting for a start or an execution
        that goes on, which then fails.
        """
        if at_once:
            opening = self._opening
            if opening is not None:
                if not opening.cancelling():
                    opening.cancel()
                await asyncio.wait([opening])
            await self._lose()
            return
        async with self._turn:
            talk = self._talk
            if talk is not None and not talk.over and self._options.volume:
                # Files written with `open` are kept as well as those of the helpers.
                asked = asyncio.create_task(talk.ask("sync"))
                await asyncio.wait([asked], timeout=SYNC_S)
                if not asked.done() or asked.exception() is not None:
                    log.warning("volume not synced before shutdown")
            await self._lose()

    def leave_to_parent(self) -> tuple[object, ...]:
        """Releases the sandbox in a fork, as it is the parent's, and its waiting callers. Returns
        the released objects, for the caller to hold.
        """
        left = (self._talk, self._opening)
        self._talk = self._opening = None
        self._turn = asyncio.Lock()
        return left

    async def _ensure(self, *, anew: bool = False) -> Conversation:
        """Returns the conversation with a living driver. Raises FleetctlError; once, when the
        earlier conversation is lost: the definitions of its code are lost as well, which the caller
        has to know.

        anew: a new conversation is requested.
        """
        if self._talk is not None and not self._talk.over:
            return self._talk
        ended = self._talk
        await self._lose()
        if ended is not None and ended.lost and not anew:
            text = f"the sandbox ended between two calls: {ended.why}; its state is lost"
            raise self._redacted(InterpreterError(text, hint=START_ANEW))
        self._opening = asyncio.create_task(self._open())
        try:
            return await self._opening
        finally:
            self._opening = None

    async def _open(self) -> Conversation:
        """Returns a new sandbox with a ready driver; when that fails, or is given up, it is
        removed.
        """
        if self._retired:
            raise InterpreterError("the code that asked for this has ended")
        order = session_order(self._options)
        session = await (self._opener or self._open_sandbox)(order)
        talk = self._talk = Conversation(session, self._tools)
        try:
            await talk.await_greeting()
            await talk.ask("setup", **self._setup(session.place_root, session.workspace))
        except BaseException as error:
            await self._lose()
            if isinstance(error, InterpreterError):
                raise self._redacted(error) from None
            raise
        return talk

    async def _open_sandbox(self, order: SessionRequest) -> Session:
        from fleetctl.wiring import account_registry as wiring

        open_session = wiring.session_opener(self._options.provider, find_state_dir())
        interpreter_record.be_first()
        self._record.begin(order.name)
        try:
            session = await open_session(
                find_state_dir(), replace(order, parent=self._record.parent)
            )
        except BaseException as error:
            self._record.failed(error)
            raise
        self._record.started()
        return session

    async def _lose(self) -> None:
        talk = self._talk
        self._talk = None
        below = asyncio.create_task(self._below.end()) if self._below is not None else None
        try:
            if talk is not None:
                await talk.stop()
                self._record.ended()
        except (Unavailable, asyncio.CancelledError):
            self._talk = talk  # so that the next shutdown tries again
            raise
        finally:
            if below is not None:
                await below

    async def _ask(self, work: ExecuteRequest) -> Mapping[str, Any]:
        """Returns the driver's reply. The code is sent once; its outcome is final."""
        talk = await self._ensure()
        talk.context = work.context
        order = {
            "code": work.code,
            "variables": {name: plain_value(value) for name, value in work.variables.items()},
            "tools": sorted(self._tools),
            "fields": list(work.fields),
            "profile": work.profile,
        }
        limit_s = self._options.execute_timeout_s or self._options.timeout_s
        asked = asyncio.create_task(talk.ask("execute", **order))
        try:
            await asyncio.wait([asked], timeout=limit_s)
        except asyncio.CancelledError:
            asked.cancel()
            await asyncio.wait([asked])
            if self._below is not None:
                await self._below.end()
            raise
        if not asked.done():
            await self._lose()
            await asyncio.wait([asked])
            asked.exception()  # its report about the end that we made is redundant
            raise InterpreterError(
                f"the code did not end within {limit_s:g} s; its sandbox was stopped and its state"
                " is lost",
                hint=f"raise execute_timeout; {START_ANEW}",
            )
        try:
            answer: Mapping[str, Any] = asked.result()
        except InterpreterError as error:
            await self._lose()
            raise self._redacted(error) from None
        return answer

    def _setup(self, root: str, workspace: str) -> dict[str, Any]:
        options = self._options
        return {
            "manner": options.manner.value,
            "mount": options.mount_path,
            "root": root if options.volume else "",
            "fresh": root,
            "workspace": workspace,
            "env": dict(options.secrets),
            "idle_s": options.idle_timeout_s,
        }

    def _redacted(self, error: InterpreterError) -> InterpreterError:
        text = redact_text(str(error), self._options.secrets.values())
        return InterpreterError(text, hint=error.hint)

    async def _notify_callback(self, callback: Callback | None, event: dict[str, Any]) -> None:
        if callback is None:
            return
        try:
            await loop.call_in_thread(lambda: callback(event))
        except Exception:  # a callback of the user's may raise anything
            log.exception("execution event callback failed")
