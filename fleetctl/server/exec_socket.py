"""Runs commands beside tasks for users on other machines, over websockets: input, output, the size
of the terminal and the exit code go both ways at the same time, which no request and answer do.

A command runs in a thread with a loop of its own: its output waits there for a slow reader, as at a
terminal of this machine. When the line is cut, it is cancelled, and ends where its provider can.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.websockets import WebSocket, WebSocketDisconnect

from fleetctl.common.errors import FleetctlError, NotFound, Refused, UsageError
from fleetctl.common.remote import (
    STDERR,
    STDIN,
    STDOUT,
    WINDOW_BYTES,
)
from fleetctl.controllers.model import LIVE_STATES
from fleetctl.providers.contract.sandbox_access import ENDED_HINT, Entering, ExecStreams, ExecTarget
from fleetctl.server.callers import EDITOR, Caller, HttpError
from fleetctl.server.guard import error_document
from fleetctl.server.response_types import ExecAbilities
from fleetctl.server.route_table import ApiCall, ServerParts
from fleetctl.views.exec_targets import account_named, make_exec_target
from fleetctl.views.store_reading import StoreReading
from fleetctl.wiring.account_registry import find_entering

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

EXECS_MAX = 64  # of a server; each has a thread
EXECS_OF_USER_MAX = 48  # so that one user's script leaves the others some
IDLE_S = 4 * 3600.0  # without a byte in any direction, as a cluster's API has it
LOOK_S = 30.0
COMMAND_S = 30.0  # for the first message
WORDS_MAX = 10_000
OUTPUT_PIECES = 16  # that wait for the line
NODES_MAX = 10_000


class ExecCommand(NamedTuple):
    """The first message of a client. tty: rows and columns; None for plain streams."""

    argv: tuple[str, ...]
    stdin: bool
    tty: tuple[int, int] | None


class EnteredRun(NamedTuple):
    """A run whose sandbox the caller may enter."""

    entering: Entering
    place: ExecTarget
    key: str
    namespace: str


OPEN = dict[object, str]()  # commands that run now, with their users
THREADS = ThreadPoolExecutor(EXECS_MAX, "exec")  # they wait as long as their commands run


async def show_channel(call: ApiCall) -> ExecAbilities:
    """Shows what commands beside a run can have, and with `port` a link to one of its ports that
    needs no command."""
    found = await enter_run(call.request, call.caller, call.parts)
    port = call.number("port", 0, most=65535)
    try:
        link = await found.entering.link(found.place, port) if port else ""
    finally:
        await found.entering.close()
    return {
        "ok": True,
        "code": 0,
        "terminal": found.entering.terminal,
        "binary": found.entering.binary,
        "link": link if "://" in link else "",
    }


async def enter_run(
    request: HTTPConnection,
    caller: Caller,
    parts: ServerParts,
) -> EnteredRun:
    """Returns the sandbox of the run in the query. Raises NotFound, HttpError 403, and Refused
    where it does not run."""
    name = request.query_params.get("run", "")
    text = request.query_params.get("node", "") or "0"
    if not text.isascii() or not text.isdigit() or int(text) > NODES_MAX:
        raise UsageError(f"`node` is `{text[:40]}`; it must be a number from 0 to {NODES_MAX}")
    node = int(text)

    def find(reading: StoreReading) -> tuple[str, ExecTarget, str, str]:
        run, uid = reading.rows.run(name), reading.rows.owner_of(name)
        seen = None if uid is None else reading.by_uid(uid)
        if run is None or seen is None:
            raise NotFound(f"there is no run `{name[:80]}`")
        caller.require_kind(seen.kind, EDITOR, seen.resource.namespace)
        task = reading.task(seen, run.index)
        if task is None or task.run.name != run.name or task.run.state not in LIVE_STATES:
            raise Refused(f"the run `{name[:80]}` has ended", hint=ENDED_HINT)
        place = make_exec_target(seen, task, node, reading)
        return run.provider, place, seen.key, seen.resource.namespace

    provider, place, key, namespace = await parts.readers.read(find)

    def open_channel() -> Entering:
        return find_entering(account_named(provider, parts.home), parts.home)

    return EnteredRun(await asyncio.to_thread(open_channel), place, key, namespace)


async def serve_exec(socket: WebSocket, caller: Caller, parts: ServerParts) -> None:
    """Runs the command that a client sends, to its end or the client's."""
    if len(OPEN) >= EXECS_MAX:
        raise HttpError(503, f"{EXECS_MAX} commands run on this server; try again later", code=1)
    if list(OPEN.values()).count(caller.user) >= EXECS_OF_USER_MAX:
        raise HttpError(
            429, f"{EXECS_OF_USER_MAX} commands of `{caller.user}` run; wait for one to end", code=1
        )
    mark = object()
    OPEN[mark] = caller.user
    try:
        found = await enter_run(socket, caller, parts)
        await socket.accept()
        code = 1
        try:
            async with asyncio.timeout(COMMAND_S):
                command = _parse_command(await socket.receive())
            await _record_command(caller, parts, found, command)
            code = await ExecRelay(socket, found, command).run()
            await socket.send_text(json.dumps({"exit": code}))
            await socket.close()
        except (FleetctlError, TimeoutError) as error:
            document = error_document(
                error if isinstance(error, FleetctlError) else _refuse_silence()
            )
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):
                await socket.send_text(json.dumps({"error": document}))
                await socket.close()
        except (RuntimeError, WebSocketDisconnect):
            return  # the line was cut
    finally:
        OPEN.pop(mark, None)


def _refuse_silence() -> UsageError:
    return UsageError(f"no command came within {COMMAND_S:g} s")


def _parse_command(message: Mapping[str, Any]) -> ExecCommand:
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect
    found = _parse_message(message.get("text") or "")
    argv, tty = found.get("argv"), found.get("tty")
    if not isinstance(argv, list) or not 0 < len(argv) <= WORDS_MAX:
        raise UsageError("the first message must be `argv`, the words of the command")
    return ExecCommand(
        tuple(map(str, argv)),
        found.get("stdin") is True,
        None if tty is None else _parse_size(tty),
    )


def _parse_message(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError("a message must be a JSON object")
    return found


def _parse_size(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise UsageError("the size of a terminal is its rows and columns")
    rows, columns = (it if isinstance(it, int) and 0 < it < 65536 else 24 for it in value)
    return rows, columns


async def _record_command(
    caller: Caller,
    parts: ServerParts,
    found: EnteredRun,
    command: ExecCommand,
) -> None:
    """Writes the command into the audit by its program: arguments may be secret."""
    await asyncio.to_thread(
        parts.access.add_audit,
        caller.author,
        "exec",
        keys=f"{found.key} {found.place.run} {command.argv[0][:80]}",
        namespace=found.namespace,
        token=caller.token,
        address=caller.address,
    )


class ExecRelay:
    """Carries the streams of one command between a websocket and the thread that runs it."""

    def __init__(self, socket: WebSocket, found: EnteredRun, command: ExecCommand) -> None:
        self._socket = socket
        self._found = found
        self._command = command
        self._ours = asyncio.get_running_loop()
        self._output: asyncio.Queue[bytes | str] = asyncio.Queue(OUTPUT_PIECES)
        self._waiting = 0  # bytes of input that the command has not taken
        self._used_s = time.monotonic()
        self._cut = threading.Event()
        # Of the thread's loop, once it runs.
        self._theirs: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[int] | None = None
        self._input: asyncio.Queue[bytes] = asyncio.Queue()
        self._sizes: asyncio.Queue[tuple[int, int]] = asyncio.Queue()

    async def run(self) -> int:
        """Returns the exit code. Raises WebSocketDisconnect for a cut line, and the errors of
        the command."""
        ready = asyncio.Event()
        running = asyncio.ensure_future(
            self._ours.run_in_executor(THREADS, self._run_in_thread, ready)
        )
        helpers: list[asyncio.Future[None]] = [
            asyncio.ensure_future(it)
            for it in (self._send_output(), self._receive_input(ready), self._watch_idle())
        ]
        try:
            either: list[asyncio.Future[Any]] = [running, *helpers]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await next(it for it in helpers if it.done())  # raises
            code = await running
            # What it wrote before its end.
            draining = asyncio.ensure_future(self._output.join())
            either = [draining, *helpers]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for it in helpers:
                if it.done():
                    await it
            return code
        finally:
            self._cut.set()
            self._cancel()
            for it in helpers:
                it.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            while not running.done():
                # A thread that waits to hand out its output is let go.
                while not self._output.empty():
                    self._output.get_nowait()
                await asyncio.wait([running], timeout=0.05)
            if not running.cancelled():
                running.exception()

    def _run_in_thread(self, ready: asyncio.Event) -> int:
        async def execute() -> int:
            self._theirs, self._task = asyncio.get_running_loop(), asyncio.current_task()
            self._ours.call_soon_threadsafe(ready.set)
            if self._cut.is_set():
                raise WebSocketDisconnect
            try:
                return await self._found.entering.execute(
                    self._found.place,
                    self._command.argv,
                    ExecStreams(
                        stdin=self._read_input() if self._command.stdin else None,
                        out=lambda data: self._hand_out(STDOUT, data),
                        err=lambda data: self._hand_out(STDERR, data),
                        tty=self._command.tty,
                        sizes=self._read_sizes() if self._command.tty is not None else None,
                    ),
                )
            finally:
                await self._found.entering.close()

        try:
            return asyncio.run(execute())
        except asyncio.CancelledError:
            raise WebSocketDisconnect from None

    def _cancel(self) -> None:
        if self._theirs is not None and self._task is not None:
            # The loop may have ended with the command.
            with contextlib.suppress(RuntimeError):
                self._theirs.call_soon_threadsafe(self._task.cancel)

    def _hand_out(self, stream: int, data: bytes) -> None:
        """Called in the thread: waits until the line takes the output."""
        self._pass_out(bytes((stream,)) + data)

    def _pass_out(self, message: bytes | str) -> None:
        if not self._cut.is_set():
            asyncio.run_coroutine_threadsafe(self._output.put(message), self._ours).result()

    async def _read_input(self) -> AsyncIterator[bytes]:
        while data := await self._input.get():
            yield data
            taken = json.dumps({"took": len(data)})
            self._ours.call_soon_threadsafe(self._note_taken, len(data))
            self._pass_out(taken)

    def _note_taken(self, count: int) -> None:
        self._waiting -= count

    async def _read_sizes(self) -> AsyncIterator[tuple[int, int]]:
        while True:
            yield await self._sizes.get()

    async def _send_output(self) -> None:
        while True:
            message = await self._output.get()
            if isinstance(message, str):
                await self._socket.send_text(message)
            else:
                await self._socket.send_bytes(message)
            self._used_s = time.monotonic()
            self._output.task_done()

    async def _receive_input(self, ready: asyncio.Event) -> None:
        await ready.wait()
        assert self._theirs is not None
        while True:
            message = await self._socket.receive()
            self._used_s = time.monotonic()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", 1005))
            with contextlib.suppress(RuntimeError):  # the command has just ended
                self._take_message(message)

    def _take_message(self, message: Mapping[str, Any]) -> None:
        assert self._theirs is not None
        data = message.get("bytes")
        if data is not None:
            if data[:1] != bytes((STDIN,)) or len(data) < 2:
                raise UsageError("bytes of a client are input, with 0 in front")
            self._waiting += len(data) - 1
            if self._waiting > WINDOW_BYTES:
                raise UsageError(f"more than {WINDOW_BYTES:,} bytes of input wait to be taken")
            self._theirs.call_soon_threadsafe(self._input.put_nowait, data[1:])
            return
        found = _parse_message(message.get("text") or "")
        if found.get("eof") is True:
            self._theirs.call_soon_threadsafe(self._input.put_nowait, b"")
        if "size" in found:
            size = _parse_size(found["size"])
            self._theirs.call_soon_threadsafe(self._sizes.put_nowait, size)

    async def _watch_idle(self) -> None:
        while time.monotonic() - self._used_s < IDLE_S:
            await asyncio.sleep(LOOK_S)
        raise Refused(
            f"no byte went either way for {IDLE_S / 3600:g} hours",
            hint="enter the task again: fleetctl exec",
        )
