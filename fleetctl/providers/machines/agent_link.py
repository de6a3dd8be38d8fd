"""A line to the agent of a machine, opened when it is first needed and again after it broke:
requests by number, replies, and streams as they come.

One process here, and one session on the machine, serve any number of runs: an SSH server takes ten
sessions of a connection by default. A machine that cannot be reached is not asked again at once by
each of its runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Protocol

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.guest.ship.library import order_input
from fleetctl.providers.machines.agent_bundle import MARK, build_bundle
from fleetctl.providers.remote.runs.follower import GuestEnded, SandboxOver
from fleetctl.providers.remote.sandboxes import exec_channel
from fleetctl.providers.remote.sandboxes.sandbox_protocol import RunWork, StreamOffsets

READ_BYTES = 1 << 16
LINE_BYTES_MAX = 1 << 22
PIECES_AHEAD = 64  # of a stream that comes faster than it is taken
ERROR_BYTES_MAX = 16_384
NOISE_LINES_MAX = 200  # that a shell's own files may print before our program begins
END_S = 2.0
# Between two reports to an agent that this process works; a short lease has four of them.
BEAT_S = 20.0
BEATS_PER_LEASE = 4.0

log = logging.getLogger("fleetctl.providers")

CALL_S = 60.0
AGAIN_S = 2.0  # between two tries to reach a machine
AWAY_S = 5.0

GONE, CLOSED = 97, 98  # exit codes of an agent's `attach`
_BOOT_FAULTS = {"old": "python", "shell": "shell"}
LOST = b'{"e":"lost"'  # begins the frame of a run whose supervisor died; in no text of a journal


class LineBroken(ConnectionError):
    """Raised when the line to an agent breaks or cannot be made. said: the words of the program
    that made it.
    """

    def __init__(self, message: str, said: str = "") -> None:
        super().__init__(message)
        self.said = said


class AgentFault(Exception):
    """An agent's report that it cannot do what was asked. sort: a word of shipped/boxes.py,
    `image`, `machine`, or, of one that does not begin, `python` or `shell`.
    """

    def __init__(self, sort: str, message: str) -> None:
        super().__init__(message)
        self.sort = sort


class _Pending:
    """A request without an end yet. code: its exit code, once it has ended."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue(PIECES_AHEAD)
        self.fields: dict[str, Any] = {}
        self.code: int | None = None


class AgentLink:
    """An open line. Made by `open_link`."""

    posix = False  # the form of the orders that it takes

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._input = process.stdin
        self._output = process.stdout
        self._pending: dict[int, _Pending] = {}
        self._number = 0
        self._said = b""
        self._why = ""
        self._errors = asyncio.ensure_future(self._read_errors())
        self._reading: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self.facts: dict[str, Any] = {}

    @property
    def broken(self) -> bool:
        return self._reading is None or self._reading.done()

    # -- opening -----------------------------------------------------------------------------------

    async def begin(self, hello: Mapping[str, object]) -> None:
        """Sends the agent its program, where the machine does not have it, and the first message.
        Raises LineBroken and AgentFault.
        """
        version, texts = build_bundle()
        del version
        state = await self._first_line()
        if state.startswith("need"):
            for text in texts:
                self._input.write(b"%012d" % len(text) + text)
        elif not state.startswith("have"):
            sort, _, detail = state.partition(" ")
            raise AgentFault(_BOOT_FAULTS.get(sort, "machine"), detail)
        self._reading = asyncio.ensure_future(self._read())
        self.facts = await self.call("hello", hello)
        self._beating = asyncio.ensure_future(self._beat(float(str(hello["lease_s"]))))

    async def _beat(self, lease_s: float) -> None:
        """Reports again and again that this process works, for as long as the line lives: agents
        renew the lease of a store by that alone.
        """
        every_s = min(BEAT_S, lease_s / BEATS_PER_LEASE) if lease_s else BEAT_S
        with suppress(LineBroken):
            while True:
                await asyncio.sleep(every_s)
                self.write(0, "here", {})

    async def _first_line(self) -> str:
        for _ in range(NOISE_LINES_MAX):
            line = await self._output.readline()
            if not line:
                break
            before, found, state = line.decode("utf-8", "replace").partition(f"{MARK} ")
            if found and not before.strip():
                return state.strip()
        await self._await_end()
        raise LineBroken(self.last_words() or "the machine's shell began no agent", self.said)

    @property
    def said(self) -> str:
        """Returns all that the program of the line wrote on its standard error."""
        return self._said.decode("utf-8", "replace").strip()

    def last_words(self) -> str:
        """Returns its last line."""
        lines = [line.strip() for line in self.said.splitlines() if line.strip()]
        return lines[-1] if lines else ""

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(READ_BYTES):
            self._said = (self._said + data)[-ERROR_BYTES_MAX:]

    async def _await_end(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self._process.wait()
                await self._errors

    # -- requests ----------------------------------------------------------------------------------

    async def call(
        self, op: str, fields: Mapping[str, object] | None = None, payload: bytes = b""
    ) -> dict[str, Any]:
        """Returns the reply. Raises LineBroken and AgentFault."""
        number, pending = self._send(op, fields or {}, payload)
        return await self._read_reply(number, pending)

    async def _read_reply(self, number: int, pending: _Pending) -> dict[str, Any]:
        text = b""
        try:
            while (piece := await self._next(pending)) is not None:
                text += piece
        finally:
            self._leave(number, pending)
        reply = {**pending.fields, **(json.loads(text) if text else {})}
        if "error" in reply:
            raise AgentFault(str(reply["error"]), str(reply["message"]))
        if pending.code and not text:
            raise AgentFault("machine", f"its process ended with code {pending.code}")
        return {**reply, "code": pending.code}

    def stream(self, op: str, fields: Mapping[str, object], payload: bytes = b"") -> AgentStream:
        """Begins a request whose output comes in pieces."""
        number, pending = self._send(op, fields, payload)
        return AgentStream(self, number, pending)

    def _send(self, op: str, fields: Mapping[str, object], payload: bytes) -> tuple[int, _Pending]:
        self._number += 1
        pending = self._pending[self._number] = _Pending()
        self.write(self._number, op, fields, payload)
        return self._number, pending

    def write(
        self, number: int, op: str, fields: Mapping[str, object], payload: bytes = b""
    ) -> None:
        """Writes a request to the agent. Raises LineBroken when the connection has ended."""
        if self._reading is not None and self._reading.done():
            raise LineBroken(self._why, self.said)
        head = json.dumps({**fields, "id": number, "op": op, "size": len(payload)})
        self._input.write(head.encode() + b"\n" + payload)

    async def drain(self) -> None:
        try:
            await self._input.drain()
        except ConnectionError as error:
            raise LineBroken(str(error), self.said) from error

    async def _next(self, pending: _Pending) -> bytes | None:
        """Returns the next piece; None at the end. Raises LineBroken."""
        piece = await pending.pieces.get()
        if piece is None and pending.code is None:
            raise LineBroken(self._why, self.said)
        return piece

    def _leave(self, number: int, pending: _Pending) -> None:
        if self._pending.pop(number, None) is None or pending.code is not None:
            return
        while not pending.pieces.empty():  # the reader may wait for room
            pending.pieces.get_nowait()
        with suppress(LineBroken):
            self.write(number, "cancel", {})

    # -- the reader --------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while line := await self._output.readline():
                head = json.loads(line)
                size = head.get("size", 0)
                data = await self._output.readexactly(size) if size else b""
                await self._take(head, data)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            self._why = f"the line broke: {error}"
        finally:
            await self._await_end()
            self._why = self.last_words() or self._why or "the line to its agent ended"
            for pending in self._pending.values():
                if pending.pieces.full():
                    pending.pieces.get_nowait()  # the position of its reader makes up for that
                pending.pieces.put_nowait(None)

    async def _take(self, head: Mapping[str, Any], data: bytes) -> None:
        pending = self._pending.get(head["id"])
        if pending is None:
            return
        if data:
            await pending.pieces.put(data)
        if "done" in head:
            pending.code = int(head["done"])
            pending.fields = {key: it for key, it in head.items() if key not in ("id", "size")}
            pending.fields.pop("done")
            await pending.pieces.put(None)

    async def close(self) -> None:
        """Ends the line. Runs go on."""
        if self._process.returncode is None:
            self._input.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await self._process.wait()
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        tasks = (self._reading, self._errors, self._beating)
        await cancel_tasks([it for it in tasks if it is not None])


class AgentStream:
    """The output of a request, and its input."""

    def __init__(self, link: AgentLink, number: int, pending: _Pending) -> None:
        self._link = link
        self._number = number
        self._pending = pending

    @property
    def code(self) -> int | None:
        """Its exit code, once `pieces` has ended."""
        return self._pending.code

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yields its output until it ends. Raises LineBroken."""
        try:
            while (piece := await self._link._next(self._pending)) is not None:
                yield piece
        finally:
            self.leave()

    async def send(self, data: bytes) -> None:
        """Writes to its input. Raises LineBroken."""
        self._link.write(self._number, "input", {}, data)
        await self._link.drain()

    async def reply(self) -> dict[str, Any]:
        """Returns its output as the reply of a call. Raises LineBroken and AgentFault."""
        return await self._link._read_reply(self._number, self._pending)

    def end_input(self) -> None:
        self._link.write(self._number, "close", {})

    def leave(self) -> None:
        """Ends the request, if it has not ended."""
        self._link._leave(self._number, self._pending)


async def open_link(
    argv: Sequence[str],
    *,
    hello: Mapping[str, object],
    deadline_s: float,
    env: Mapping[str, str] | None = None,
) -> AgentLink:
    """Starts the program `argv`, which reaches an agent. Raises LineBroken, AgentFault, OSError and
    TimeoutError; then no process is left.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
        env=env,
        start_new_session=True,  # a Ctrl-C of the terminal is not for it
    )
    link = AgentLink(process)
    try:
        async with asyncio.timeout(deadline_s):
            await link.begin(hello)
    except BaseException:
        await link.close()
        raise
    return link


class LinkStream(Protocol):
    """A request whose input and output come in pieces; see AgentStream."""

    @property
    def code(self) -> int | None: ...

    def pieces(self) -> AsyncGenerator[bytes, None]: ...

    async def send(self, data: bytes) -> None: ...

    async def reply(self) -> dict[str, Any]: ...

    def end_input(self) -> None: ...

    def leave(self) -> None: ...


class Link(Protocol):
    """A way to the agent of a machine: an open line, or a session for each request. posix: the form
    of the orders that it takes.
    """

    posix: bool
    facts: dict[str, Any]

    @property
    def broken(self) -> bool: ...

    async def call(
        self, op: str, fields: Mapping[str, object] | None = None, payload: bytes = b""
    ) -> dict[str, Any]: ...

    def stream(self, op: str, fields: Mapping[str, object], payload: bytes = b"") -> LinkStream: ...

    async def close(self) -> None: ...


class AgentLine:
    """The line to one machine. All verbs raise Unavailable when it cannot be reached now. name: in
    messages. open_link: raises Refused and Unavailable with what keeps the line from being opened.
    """

    def __init__(self, name: str, open_link: Callable[[], Awaitable[Link]]) -> None:
        self.name = name
        self._open = open_link
        self._link: Link | None = None
        self._opening = asyncio.Lock()
        self._failed: FleetctlError | None = None
        self._failed_at_s = 0.0
        self._silent_since_s: float | None = None

    @property
    def facts(self) -> Mapping[str, Any]:
        """The host's facts as last asked; empty before."""
        return self._link.facts if self._link is not None else {}

    @property
    def silent_s(self) -> float:
        """Returns how long this process has tried in vain to reach it."""
        if self._silent_since_s is None:
            return 0.0
        return time.monotonic() - self._silent_since_s

    async def link(self) -> Link:
        async with self._opening:
            if self._link is not None and not self._link.broken:
                return self._link
            if self._failed is not None and time.monotonic() - self._failed_at_s < AGAIN_S:
                raise self._failed
            if self._link is not None:
                await self._link.close()
            try:
                self._link = await self._open()
            except (Refused, Unavailable) as error:
                self._failed = error
                self._failed_at_s = time.monotonic()
                self._silent_since_s = self._silent_since_s or self._failed_at_s
                raise
            self._failed = self._silent_since_s = None
            log.info("host reached", extra={"host": self.name})
            return self._link

    async def call(
        self,
        op: str,
        fields: Mapping[str, object] | None = None,
        payload: bytes = b"",
        *,
        deadline_s: float = CALL_S,
    ) -> dict[str, Any]:
        """Sends a request to the agent and returns its reply. Raises Unavailable, and AgentFault
        for faults of the user.
        """
        async with self.asked(deadline_s=deadline_s):
            return await (await self.link()).call(op, fields, payload)
        raise AssertionError

    @asynccontextmanager
    async def asked(self, *, deadline_s: float = CALL_S) -> AsyncIterator[None]:
        """Translates what a line raises."""
        try:
            async with asyncio.timeout(deadline_s):
                yield
        except LineBroken as error:
            raise Unavailable(
                f"the line to host `{self.name}` broke: {error}",
                reason="Unreachable",
                retry_after_s=AGAIN_S,
            ) from error
        except TimeoutError as error:
            raise Unavailable(
                f"host `{self.name}` does not answer", reason="Unreachable", retry_after_s=AWAY_S
            ) from error
        except AgentFault as error:
            if error.sort != "machine":
                raise
            raise Unavailable(
                f"host `{self.name}` cannot do that now: {error}",
                reason="MachineFailed",
                retry_after_s=AWAY_S,
            ) from error

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()
            self._link = None


class SupervisorLost(SandboxOver):
    """Raised by a stream that has shown all of a run whose supervisor died without a last frame."""


async def follow_run(
    link: Link,
    box: str,
    run: str,
    work: RunWork | None,
    at: StreamOffsets,
) -> AsyncGenerator[bytes, None]:
    """Yields the frames of a run, which begins if `work` is given and it has not begun. Raises
    SandboxOver, GuestEnded and LineBroken.
    """
    fields = {
        "box": box,
        "run": run,
        "words": at.words(),
        "secrets": dict(work.secrets) if work is not None else {},
    }
    order = order_input(work.order, posix=link.posix) if work is not None else b""
    stream = link.stream("attach", fields, order)
    held = b""
    async with aclosing(stream.pieces()) as pieces:
        async for piece in pieces:
            data = held + piece
            held = b""
            found = data.find(LOST)
            if found >= 0:
                yield data[:found]
                raise SupervisorLost(box)
            cut = data.rfind(b"\n") + 1
            if len(data) - cut < len(LOST):
                held = data[cut:]
                data = data[:cut]
            if data:
                yield data
    if stream.code in (GONE, CLOSED):
        raise SandboxOver(box)
    raise GuestEnded(stream.code or 0)


class AgentChannel:
    """The line of a run's model calls."""

    def __init__(self, stream: LinkStream) -> None:
        self._stream = stream

    async def send(self, text: str) -> None:
        try:
            await self._stream.send(text.encode())
        except LineBroken as error:
            raise Unavailable(f"the sandbox cannot be written to: {error}") from error

    async def pieces(self) -> AsyncGenerator[str, None]:
        async for data in self._stream.pieces():
            yield data.decode("ascii", "replace")

    async def close(self) -> None:
        self._stream.leave()


_: type[exec_channel.ExecChannel] = AgentChannel
