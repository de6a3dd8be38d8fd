"""The guest's verbs as commands in a sandbox of Daytona, its frames as they come, and commands
whose input is written and output read.

A run is begun by a plain call, because only that takes an environment, and secrets belong nowhere
else; a task that ends within it needs no other call. Longer ones go on in a session of their own,
whose log is a stream.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from secrets import token_hex
from typing import TypeVar

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.guest.ship.library import order_argument, order_input
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_errors import (
    error_words,
    is_conflict,
    is_not_found,
    retryable_call,
    sdk_errors,
)
from fleetctl.providers.remote.runs.follower import GuestEnded
from fleetctl.providers.remote.sandboxes import exec_channel
from fleetctl.providers.remote.sandboxes.exec_channel import WRITE_CHARACTERS
from fleetctl.providers.remote.sandboxes.sandbox_names import sandbox_name
from fleetctl.providers.remote.sandboxes.sandbox_protocol import RunWork, StreamOffsets
from fleetctl.providers.remote.service_calls import ToleratedAnswer
from fleetctl.specs.blocks.template import Template

STATE_DIR = "/tmp/.fleetctl"  # in the sandbox, which has no other user
# Where the guest is: in images that we build, or uploaded where anybody may write.
IN_IMAGE = "/.fleetctl"
UPLOADED = STATE_DIR
ORDER_ARGUMENT_MAX = 64 * 1024  # Linux takes 128 KiB in one argument; a shell quotes it first
EXEC_SLACK_S = 30.0
FRAME = '{"e":"'
PIECES_AHEAD = 64  # of a stream that comes faster than it is taken

Piece = TypeVar("Piece")
Put = Callable[[Piece], Awaitable[None]]

CHANNEL_PIECES_AHEAD = 256


@dataclass(frozen=True, slots=True)
class Guest:
    """The guest of a sandbox: which of the two guests, and its path."""

    posix: bool
    uploaded: bool

    @property
    def path(self) -> str:
        if self.uploaded:
            return f"{UPLOADED}/{'guest.sh' if self.posix else 'guest.py'}"
        return f"{IN_IMAGE}/{'guest.sh' if self.posix else 'quick.py'}"

    def command(self, verb: str, *options: str) -> list[str]:
        program = ["sh"] if self.posix else ["python3", "-I", "-S"]
        return [*program, self.path, verb, "--dir", STATE_DIR, *options]

    @property
    def label(self) -> str:
        words = ("posix" if self.posix else "python", "uploaded" if self.uploaded else "")
        return "-".join(word for word in words if word)

    @classmethod
    def of_label(cls, label: str) -> Guest:
        return cls(posix=label.startswith("posix"), uploaded=label.endswith("uploaded"))

    @classmethod
    def of_template(cls, template: Template) -> Guest:
        """An image that we did not make need not have Python."""
        image = template.image
        foreign = image is not None and (
            image.snapshot is not None or (image.registry is not None and image.python is None)
        )
        return cls(
            posix=foreign and not template.needs_python,
            uploaded=image is not None and image.snapshot is not None,
        )


def stop_command(
    guest: Guest,
    run: str,
    grace_s: float,
) -> str:
    words = guest.command(
        "stop",
        "--run",
        run,
        "--grace",
        str(grace_s),
    )
    return f"{shlex.join(words)} </dev/null >/dev/null 2>&1"


def relay_command(guest: Guest, run: str) -> list[str]:
    return guest.command("relay", "--run", run)


async def begin_run(
    sandbox: sdk.AsyncSandbox,
    guest: Guest,
    run: str,
    work: RunWork,
    at: StreamOffsets,
    *,
    for_s: float,
) -> bytes:
    """Begins the run, unless it has begun; returns the frames of its first moments, whole ones
    only.

    Raises what the SDK raises, and GuestEnded for a command that failed without output; then the
    run may have begun. A repeated request begins no second run: the guest's latch sees to that.
    """
    text = order_argument(work.order, posix=guest.posix)
    path = ""
    if len(text) > ORDER_ARGUMENT_MAX:
        path = f"{STATE_DIR}/{run}.{token_hex(4)}.order"
        await sandbox.fs.upload_file(order_input(work.order, posix=guest.posix), path)
    # The guest in shell does not follow here: it would not know when to leave.
    words = guest.command(
        "attach",
        "--run",
        run,
        "--for",
        "0" if guest.posix else f"{for_s:.3f}",
    )
    words += at.words()
    command = begin_command(words, text, path)
    timeout_s = for_s + EXEC_SLACK_S
    answer = await sandbox.process.exec(command, env=dict(work.secrets), timeout=int(timeout_s))
    # A shell may print words of its own between the frames, and the last frame may be torn.
    whole = answer.result.rpartition("\n")[0]
    frames = [line for line in whole.split("\n") if line.startswith(FRAME)]
    if not frames and answer.exit_code:
        # It may have ended before its latch: no frame proves that the order was taken.
        raise GuestEnded(int(answer.exit_code))
    return "".join(f"{line}\n" for line in frames).encode()


def begin_command(
    words: list[str],
    order: str,
    path: str,
) -> str:
    """Returns the shell command that begins a run. path: the file of an order that is too long for
    an argument; "" when it is short. The guest's standard input is always set: a service's pipe may
    never end.
    """
    if path:
        return f"{shlex.join([*words, '--order', '-'])} <{path} 2>/dev/null; rm -f {path}"
    # The shell becomes the guest, and does not wait beside it for as long as it runs.
    return f"exec {shlex.join([*words, '--order', order])} </dev/null 2>/dev/null"


async def open_session(
    sandbox: sdk.AsyncSandbox,
    run: str,
    used: str | None,
) -> str:
    """Returns the id of a fresh session for following a run. used: the session before, which is
    ended, with the commands that still follow in it.
    """
    if used is not None:
        with ToleratedAnswer(is_not_found):
            await sandbox.process.delete_session(used)
    session = used or sandbox_name(run)
    try:
        await sandbox.process.create_session(session)
    except sdk.DaytonaConflictError:
        session = f"{session}.{token_hex(4)}"  # somebody before us follows there
        await sandbox.process.create_session(session)
    return session


async def follow_run(
    sandbox: sdk.AsyncSandbox,
    guest: Guest,
    run: str,
    session: str,
    at: StreamOffsets,
) -> AsyncGenerator[bytes, None]:
    """The frames of a run from there on, until its end. Raises what the SDK raises."""
    words = [*guest.command("attach", "--run", run), *at.words()]
    # A program of its own: a command that ends the session's shell would leave no exit code.
    request = sdk.SessionExecuteRequest(
        command=f"{shlex.join(words)} </dev/null 2>/dev/null", run_async=True
    )
    begun = await sandbox.process.execute_session_command(session, request)
    async with aclosing(_read_stdout(sandbox, session, begun.cmd_id)) as log:
        async for piece in log:
            yield piece
    ended = await sandbox.process.get_session_command(session, begun.cmd_id)
    raise GuestEnded(int(ended.exit_code or 0))


def _read_stdout(
    sandbox: sdk.AsyncSandbox,
    session: str,
    command: str,
) -> AsyncGenerator[bytes, None]:
    """Yields the command's stdout; ends with it."""

    async def read(put: Put[bytes]) -> None:
        async def take(text: str) -> None:
            await put(text.encode())

        async def drop(_: str) -> None:
            """Drops stderr, to which the command writes no output."""

        await sandbox.process.get_session_command_logs_async(session, command, take, drop)

    return read_ahead(read, ahead=PIECES_AHEAD)


async def read_ahead(
    read: Callable[[Put[Piece]], Awaitable[None]], *, ahead: int
) -> AsyncGenerator[Piece, None]:
    """Yields the items that `read` puts, until it returns or raises; it waits while `ahead` pieces
    are not taken.
    """
    waiting: asyncio.Queue[Piece | None] = asyncio.Queue(ahead)
    reading = asyncio.ensure_future(read(waiting.put))

    def end(_: object) -> None:
        if not waiting.full():  # else no reader waits for it, and the reader sees the end itself
            waiting.put_nowait(None)

    reading.add_done_callback(end)
    try:
        while not (reading.done() and waiting.empty()):
            piece = await waiting.get()
            if piece is not None:
                yield piece
        reading.result()
    finally:
        reading.cancel()
        await asyncio.wait({reading})


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """The position of a stream after a piece, and whether it is the last."""

    at: StreamOffsets
    over: bool


def count_reached(data: bytes, at: StreamOffsets) -> StreamProgress:
    """Returns how far a stream has come after this data. data: whole frames that begin at `at`."""
    journal = at.journal
    log = at.log
    services = dict(at.services)
    over = False
    outputs = at.outputs
    for line in data.splitlines():
        word = line[6 : line.find(b'"', 6)] if line.startswith(b'{"e":"') else b""
        if word == b"log":
            frame = json.loads(line)
            end = int(frame["at"]) + len(_bytes_of(frame))
            if "of" in frame:
                services[str(frame["of"])] = end
            else:
                log = end
        elif word == b"outputs":
            frame = json.loads(line)
            outputs = int(frame["at"]) + len(_bytes_of(frame))
        elif word in (b"eof", b"lost", b"unbegun"):
            over = True
        elif word != b"alive":
            journal += len(line) + 1
    return StreamProgress(StreamOffsets(journal, log, services, outputs), over)


def _bytes_of(frame: Mapping[str, str]) -> bytes:
    if "b64" in frame:
        return base64.b64decode(frame["b64"])
    return bytes.fromhex(frame["hex"])


async def begin_channel_command(
    sandbox: sdk.AsyncSandbox,
    session: str,
    argv: Sequence[str],
    *,
    directory: str = "",
) -> str:
    """The id of the command, which begins in the session; it is a child of the session's shell,
    which must live on. Raises what the SDK raises.
    """
    text = shlex.join(argv)
    if directory:
        text = f"cd {shlex.quote(directory)} && {text}"
    request = sdk.SessionExecuteRequest(
        command=shlex.join(["sh", "-c", text]),
        run_async=True,
        suppress_input_echo=True,
    )
    return (await sandbox.process.execute_session_command(session, request)).cmd_id


class DaytonaExecChannel:
    def __init__(
        self,
        sandbox: sdk.AsyncSandbox,
        session: str,
        command: str,
        *,
        deadline_s: float,
        hear_error: Callable[[str], None] = lambda _: None,
    ) -> None:
        """command: its id. deadline_s: seconds for one call. hear_error: called with the command's
        standard error.
        """
        self._process = sandbox.process
        self._session = session
        self._command = command
        self._deadline_s = deadline_s
        self.heard = 0  # characters of its standard output
        self._hear_error = hear_error

    async def send(self, text: str) -> None:
        what = "the sandbox cannot be written to"
        try:
            async with retryable_call(what, deadline_s=self._deadline_s):
                for lines in _split_lines(text):
                    await self._process.send_session_command_input(
                        self._session, self._command, lines
                    )
        except FleetctlError as error:
            raise Unavailable(str(error)) from error
        except sdk.DaytonaError as error:
            if is_not_found(error) or is_conflict(error):
                raise Unavailable(f"{what}: it has ended") from error
            raise

    async def pieces(self) -> AsyncGenerator[str, None]:
        """Yields the new output. A stream begins at the first byte."""
        streamed = 0  # characters of this stream

        async def read(put: Put[str]) -> None:
            async def take(text: str) -> None:
                nonlocal streamed
                fresh = text[max(0, self.heard - streamed) :]
                streamed += len(text)
                if fresh:
                    self.heard += len(fresh)
                    await put(fresh)

            await self._process.get_session_command_logs_async(
                self._session, self._command, take, self._hear_error
            )

        async with aclosing(read_ahead(read, ahead=CHANNEL_PIECES_AHEAD)) as fresh:
            try:
                async for piece in fresh:
                    yield piece
            except sdk_errors() as error:
                raise ConnectionError(error_words(error)) from error

    async def close(self) -> None:
        """Ends the session, and with it the command and the file that holds its output."""
        what = f"session `{self._session}` cannot be ended"
        try:
            async with retryable_call(what, deadline_s=self._deadline_s):
                await self._process.delete_session(self._session)
        except FleetctlError as error:
            raise Unavailable(str(error)) from error
        except sdk.DaytonaNotFoundError as error:
            if not is_not_found(error):
                raise


def _split_lines(text: str) -> Iterator[str]:
    """Splits a text into whole lines, as many at once as one call takes. Never a part of a line,
    however long it is: Daytona adds a newline to each input, and would make two of it.
    """
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if lines and sum(map(len, lines)) + len(line) > WRITE_CHARACTERS:
            yield "".join(lines)
            lines = []
        lines.append(line)
    if lines:
        yield "".join(lines)


_: type[exec_channel.ExecChannel] = DaytonaExecChannel
