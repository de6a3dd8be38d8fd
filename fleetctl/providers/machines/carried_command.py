"""Runs a program of this machine with the streams of a user's command: by pipes, or by a terminal
of its own whose size follows the user's. Called for `ssh` and `srun`, which pass both on.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import termios
import tty
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from fleetctl.common.event_loop import cancel_tasks
from fleetctl.providers.contract.sandbox_access import ExecStreams

PIECE_BYTES = 1 << 16
SAID_BYTES_MAX = 4096
DRAIN_S = 1.0  # for last words, when a process that it left holds the streams open


async def carry_command(argv: Sequence[str], streams: ExecStreams) -> tuple[int, str]:
    """Returns (its exit code, the last words on its standard error). Cancelled, it is ended."""
    if streams.tty is not None:
        return await _by_terminal(argv, streams, streams.tty), ""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    said = b""

    async def show_errors() -> None:
        nonlocal said
        assert process.stderr is not None
        while data := await process.stderr.read(PIECE_BYTES):
            said = (said + data)[-SAID_BYTES_MAX:]
            streams.err(data)

    async def show_output() -> None:
        assert process.stdout is not None
        while data := await process.stdout.read(PIECE_BYTES):
            streams.out(data)

    feeding = asyncio.ensure_future(_feed_pipe(process.stdin, streams.stdin))
    showing = [asyncio.ensure_future(show_output()), asyncio.ensure_future(show_errors())]
    try:
        code = await process.wait()
        await asyncio.wait(showing, timeout=DRAIN_S)
    finally:
        feeding.cancel()  # a second cancellation of this command may come while it waits below
        await _kill_process(process)
        await cancel_tasks([feeding, *showing])
    return code, said.decode("utf-8", "replace")


async def _feed_pipe(pipe: asyncio.StreamWriter, data: AsyncIterator[bytes] | None) -> None:
    with suppress(ConnectionError):  # it reads no more, which is its own affair
        if data is not None:
            async for piece in data:
                pipe.write(piece)
                await pipe.drain()
        pipe.close()


async def _by_terminal(argv: Sequence[str], streams: ExecStreams, size: tuple[int, int]) -> int:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)  # the far end has a terminal of its own, which does the rest
    _resize_terminal(ours, size)
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def show() -> None:
        try:
            data = os.read(ours, PIECE_BYTES)
        except OSError:
            data = b""
        if data:
            streams.out(data)
        else:
            loop.remove_reader(ours)
            done.set()

    loop.add_reader(ours, show)
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
    finally:
        os.close(theirs)
    beside = [
        asyncio.ensure_future(_feed_terminal(ours, streams.stdin)),
        asyncio.ensure_future(_follow_sizes(ours, process.pid, streams.sizes)),
    ]
    try:
        code = await process.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await done.wait()
    finally:
        await _kill_process(process)
        await cancel_tasks(beside)
        loop.remove_reader(ours)
        os.close(ours)
    return code


async def _feed_terminal(terminal: int, data: AsyncIterator[bytes] | None) -> None:
    if data is None:
        return
    async for piece in data:
        await asyncio.to_thread(os.write, terminal, piece)


async def _follow_sizes(
    terminal: int, pid: int, sizes: AsyncIterator[tuple[int, int]] | None
) -> None:
    if sizes is None:
        return
    async for size in sizes:
        _resize_terminal(terminal, size)
        with suppress(ProcessLookupError):
            os.kill(pid, 28)  # SIGWINCH: the terminal does not control its session


def _resize_terminal(terminal: int, size: tuple[int, int]) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))


async def _kill_process(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
