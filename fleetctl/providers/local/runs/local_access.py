"""A task on this machine as `exec` and `cp` enter it: commands that its supervisor forks in its
sandbox, and the work directory of one that failed.

Reads, and removes no file.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import socket
import struct
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.sandbox_access import ENDED_HINT, Entering, ExecStreams
from fleetctl.providers.contract.sandbox_access import ExecTarget as Beside
from fleetctl.providers.local import supervisor_locks
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.rundir.journal_runs import JournalRuns

PIECE_BYTES = 64 * 1024
DRAIN_S = 0.5  # for last words, when a process that it left holds the streams open


class LocalEntering:
    terminal = True
    binary = True

    def __init__(self, home: Path, account: Account) -> None:
        del account  # this machine is one
        self._layout = LocalLayout(home)

    async def execute(
        self,
        place: Beside,
        argv: tuple[str, ...],
        streams: ExecStreams,
    ) -> int:
        line = self._connect(place)
        ends = _open_terminal(streams.tty) if streams.tty is not None else _open_pipes()
        message = {
            "op": "exec",
            "run": place.run,
            "sandbox": place.sandbox,
            "argv": list(argv),
            "tty": streams.tty is not None,
        }
        # The kernel delivers descriptors with the first byte; a long command follows plainly.
        data = (json.dumps(message) + "\n").encode()
        sent = socket.send_fds(line, [data], ends.theirs)
        line.sendall(data[sent:])
        for end in set(ends.theirs):
            os.close(end)
        line.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=line)
        resizing = asyncio.ensure_future(_follow_sizes(ends.stdin, streams.sizes))
        try:
            return await _carry_streams(reader, ends, streams, place.run)
        finally:
            resizing.cancel()
            await asyncio.gather(resizing, return_exceptions=True)
            writer.close()

    async def link(self, place: Beside, port: int) -> str:
        """A sandbox here has the network of this machine."""
        del place
        return f"127.0.0.1:{port}"

    async def close(self) -> None:
        """Does no work: no connection is held between commands."""

    def _connect(self, place: Beside) -> socket.socket:
        """Returns a connection to the supervisor of the run. Raises Refused without a
        supervisor.
        """
        directory = self._layout.supervisor(place.handle.partition("/")[0] or "none")
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with supervisor_locks.short_path(directory / "sock") as path:
                line.connect(path)
        except OSError as error:
            line.close()
            raise _run_ended(place.run) from error
        return line


class _StreamEnds:
    """Our ends of a command's streams. err: None where a terminal carries both."""

    def __init__(
        self,
        theirs: list[int],
        stdin: int,
        out: int,
        err: int | None,
    ) -> None:
        self.theirs = theirs
        self.stdin = stdin
        self.out = out
        self.err = err


def _open_pipes() -> _StreamEnds:
    (in_read, in_write), (out_read, out_write), (err_read, err_write) = (os.pipe() for _ in "123")
    return _StreamEnds([in_read, out_write, err_write], in_write, out_read, err_read)


def _open_terminal(size: tuple[int, int]) -> _StreamEnds:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    return _StreamEnds([theirs, theirs, theirs], os.dup(ours), ours, None)


async def _follow_sizes(terminal: int, sizes: AsyncIterator[tuple[int, int]] | None) -> None:
    """Resizes the terminal; the kernel notifies the command."""
    if sizes is not None:
        async for rows, columns in sizes:
            fcntl.ioctl(
                terminal,
                termios.TIOCSWINSZ,
                struct.pack(
                    "HHHH",
                    rows,
                    columns,
                    0,
                    0,
                ),
            )


async def _carry_streams(
    reader: asyncio.StreamReader,
    ends: _StreamEnds,
    streams: ExecStreams,
    run: str,
) -> int:
    """Carries bytes both ways until the command is over; returns its exit code. Closes our ends."""
    feeding = asyncio.ensure_future(_feed_input(ends.stdin, streams.stdin))
    showing = [asyncio.ensure_future(_show_output(ends.out, streams.out))]
    if ends.err is not None:
        showing.append(asyncio.ensure_future(_show_output(ends.err, streams.err)))
    try:
        code = await _read_outcome(reader, run)
        await asyncio.wait(showing, timeout=DRAIN_S)
        return code
    finally:
        for task in (feeding, *showing):
            task.cancel()
        await asyncio.gather(feeding, *showing, return_exceptions=True)


async def _read_outcome(reader: asyncio.StreamReader, run: str) -> int:
    """Returns the command's exit code from the supervisor's messages, among others that it
    sends.
    """
    while line := await reader.readline():
        message = json.loads(line)
        if message.get("visit"):
            raise (
                _run_ended(run)
                if "does not run" in message["visit"]
                else Unavailable(message["visit"])
            )
        if "exited" in message:
            return int(message["exited"])
    raise Unavailable(f"the supervisor of run `{run}` ended, and the command with it")


async def _feed_input(stdin: int, data: AsyncIterator[bytes] | None) -> None:
    """Writes the input, then closes: a command that reads sees the end."""
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(stdin, "wb", buffering=0)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        async for piece in data if data is not None else _empty_stream():
            writer.write(piece)
            with suppress(ConnectionError):  # it reads no more, which is its own affair
                await writer.drain()
    finally:
        transport.close()


async def _empty_stream() -> AsyncIterator[bytes]:
    nothing: tuple[bytes, ...] = ()
    for piece in nothing:
        yield piece


async def _show_output(source: int, show: Callable[[bytes], None]) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    pipe = os.fdopen(source, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        # A terminal ends with an error instead of an end of file.
        with suppress(OSError):
            while data := await reader.read(PIECE_BYTES):
                show(data)
    finally:
        transport.close()


def _run_ended(run: str) -> Refused:
    return Refused(f"run `{run}` does not run, so no command can join it", hint=ENDED_HINT)


_: type[Entering] = LocalEntering


def find_work_dir(
    home: Path,
    uid: str,
    run: str,
) -> Path | None:
    """Returns the directory in which the run began, as it left it; None without any file left."""
    layout = LocalLayout(home)
    seen = JournalRuns(layout.home, "local").end_of(uid, run)
    message = seen.ending.kept if seen is not None and seen.ending is not None else ""
    place = layout.work(uid) / message
    inside = bool(message) and ".." not in Path(message).parts and not Path(message).is_absolute()
    if inside and place.is_dir():
        return place
    return None
