"""Sessions: one shell each, which runs the commands that it is sent one after the other.

A command is a file that the shell sources with its streams on FIFOs; the emulator reads them, and
the shell tells of each end on its own standard output. A command that ends the shell (`exit`,
`exec`, `set -e` with a failure) therefore never has an exit code, as with the real daemon.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path

from tests.emulators.boxes import BoxProcess

from ..state import new_id
from .calls import Toolbox, end_tree
from .errors import ToolboxError
from .logs import STDERR, STDOUT, Labeller, Log
from .pipes import Reader, write_all

RUN_DIRECTORY = "/run/daytona"


@dataclass(slots=True)
class Command:
    id: str
    text: str
    echo: bool  # whether input shows in the log
    log: Log
    exit_code: int | None = None
    input: int = -1  # of the FIFO that is its standard input; only when it runs by itself
    ended: asyncio.Event = field(default_factory=asyncio.Event)  # or the session has
    streams: list[tuple[Reader, Labeller]] = field(default_factory=list)

    def body(self) -> dict[str, object]:
        code = {} if self.exit_code is None else {"exitCode": self.exit_code}
        return {"id": self.id, "command": self.text, **code}

    def take(self) -> None:
        """Bring the log up to what the command has written by now."""
        for reader, labeller in self.streams:
            reader.drain()
            labeller.flush()

    def close(self) -> None:
        for reader, _labeller in self.streams:
            reader.close()
        self.end()

    def end(self) -> None:
        if self.input >= 0:
            os.close(self.input)
            self.input = -1
        self.log.finish()
        self.ended.set()


class Session:
    """Owns its shell. Made by `opened`; ends with `close` or with the shell."""

    def __init__(self, toolbox: Toolbox, session_id: str, process: BoxProcess, orders: int) -> None:
        self.id = session_id
        self.commands: dict[str, Command] = {}
        self.over = False  # the shell has ended: no command runs any more
        self._toolbox = toolbox
        self._process = process
        self._orders = orders  # the shell's standard input
        self._told = bytearray()
        self.watcher: asyncio.Future[None] | None = None  # kept: the loop holds tasks weakly
        self._run = toolbox.host(RUN_DIRECTORY)
        self._run.mkdir(parents=True, exist_ok=True)

    def body(self) -> dict[str, object]:
        return {"sessionId": self.id, "commands": [one.body() for one in self.commands.values()]}

    async def begin(self, text: str, *, by_itself: bool, echo: bool = True) -> Command:
        """Hand a command to the shell. `by_itself`: nobody waits, and its input stays open."""
        if self.over:
            raise ToolboxError(410, "session has ended", code="SESSION_ENDED")
        command_id = new_id()
        place, host = f"{RUN_DIRECTORY}/{command_id}", self._run / command_id
        host.with_suffix(".script").write_text(text + "\n")
        command = Command(command_id, text, echo, Log(self._log_path(command_id)))
        for name, mark in (("out", STDOUT), ("err", STDERR)):
            labeller, fifo = Labeller(command.log, mark), host.with_suffix(f".{name}")
            os.mkfifo(fifo)
            reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            command.streams.append((Reader(reading, labeller.feed), labeller))
        stdin = "/dev/null"
        if by_itself:
            stdin, fifo = f"{place}.in", host.with_suffix(".in")
            os.mkfifo(fifo)
            command.input = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.commands[command_id] = command
        line = (
            f"{{ . {place}.script; }} <{stdin} >{place}.out 2>{place}.err; "
            f"printf '%s %s\\n' {command_id} $?\n"
        )
        try:
            await write_all(self._orders, line.encode())
        except BrokenPipeError as error:  # the shell went a moment ago
            raise ToolboxError(410, "session has ended", code="SESSION_ENDED") from error
        return command

    def on_told(self, data: bytes) -> None:
        """The shell's own output: `<command id> <exit code>` lines."""
        self._told += data
        *lines, rest = self._told.split(b"\n")
        self._told = bytearray(rest)
        for line in lines:
            command_id, _, code = line.decode(errors="replace").partition(" ")
            command = self.commands.get(command_id)
            if command is not None and code.isdigit():
                command.take()
                command.exit_code = int(code)
                command.end()

    async def ends(self, reader: Reader) -> None:
        """Its commands learn here that the shell is gone; those without an exit code keep none."""
        await reader.ended.wait()
        self.over = True
        for command in self.commands.values():
            command.take()
            command.ended.set()

    def close(self) -> None:
        self.over = True
        if self._process.returncode is None:
            end_tree(self._process.pid)
        os.close(self._orders)
        for command in self.commands.values():
            command.take()
            command.close()
            for suffix in (".script", ".in", ".out", ".err"):
                (self._run / command.id).with_suffix(suffix).unlink(missing_ok=True)

    def _log_path(self, command_id: str) -> Path:
        # Beside the box, not in it: what a program deletes there must not tear the log.
        return self._toolbox.box.directory / "session-logs" / f"{command_id}.log"


async def opened(toolbox: Toolbox, session_id: str) -> Session:
    orders, ours = os.pipe()
    told, theirs = os.pipe()
    try:
        process = await toolbox.spawn([toolbox.shell], stdin=orders, stdout=theirs)
    except ToolboxError:
        os.close(ours)
        os.close(told)
        raise
    finally:
        os.close(orders)
        os.close(theirs)
    os.set_blocking(ours, False)
    session = Session(toolbox, session_id, process, ours)
    reader = Reader(told, session.on_told)
    session.watcher = asyncio.ensure_future(session.ends(reader))
    return session
