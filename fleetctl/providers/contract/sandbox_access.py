"""The interfaces for entering a sandbox: commands beside a running task, for `exec`, `cp` and
`port-forward`, and the session of an interpreter with its driver.

A session is a run and a driver (remote/runs/run_session.py), or `local`'s own as its plugin.py
names it; called by fleetctl/interpreter alone. A session never looks into the data on the line.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fleetctl.specs.blocks.template import GitSource, Image

ENDED_HINT = "a result, a log and the files in volumes outlive a task; its own disk does not"

DRIVER_COMMAND = ("python", "-u")  # and the path of the file that holds the driver


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """A run that lives, and what a command beside it should find."""

    run: str
    sandbox: str
    handle: str
    env: Mapping[str, str] = field(default_factory=dict)  # of the template and of the task
    directory: str = ""  # where the task's source is shown; "" = the work directory
    secrets: tuple[str, ...] = ()  # variables that the sandbox alone knows the values of


@dataclass(frozen=True, slots=True)
class ExecStreams:
    """The streams of a command. tty: rows and columns of the caller's terminal; None = plain
    streams. sizes: the later ones, as the caller's window changes.
    """

    stdin: AsyncIterator[bytes] | None
    out: Callable[[bytes], None]
    err: Callable[[bytes], None]
    tty: tuple[int, int] | None = None
    sizes: AsyncIterator[tuple[int, int]] | None = None


class Entering(Protocol):
    terminal: bool  # whether a command can have a terminal
    binary: bool  # whether its output arrives byte for byte

    async def execute(
        self,
        place: ExecTarget,
        argv: tuple[str, ...],
        streams: ExecStreams,
    ) -> int:
        """Runs a command in the sandbox; returns its exit code, 128 and the number for a signal.

        Raises Refused when the task has ended, Unavailable when its state is unknown. Cancelled, it
        ends the command where the provider can.
        """
        ...

    async def link(self, place: ExecTarget, port: int) -> str:
        """An address for a port of the sandbox; "" where a command has to carry the bytes."""
        ...

    async def close(self) -> None:
        """Closes connections. The task goes on."""
        ...


@dataclass(frozen=True, slots=True)
class VolumePlace:
    """A directory of the sandbox. volume: the volume that is mounted there, made when it does not
    exist; None is a fresh directory that goes with the sandbox.
    """

    mount_path: str
    volume: str | None


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """Everything that opening a session needs."""

    name: str  # unique; letters, digits and `-`: the sandbox's own name where it can have one
    driver: str  # text of the program to run, for Python 3.9 and later
    lifetime_s: float  # the sandbox ends by itself after this, whatever becomes of us
    image: Image | None = None  # None: the default of the provider's interpreters
    place: VolumePlace | None = None
    repository: GitSource | None = None  # cloned before the driver starts
    workspace: bool = False  # whether code works in a directory of its own; so with a repository
    secrets: tuple[str, ...] = ()  # names of secrets that the provider keeps
    parent: str = ""  # the session whose code asked for this one: carried as a tag; "" a program's
    # Options of a provider alone, such as its own objects: {"app": modal.App, ...}. Others refuse
    # options that they would have to ignore to their user's surprise.
    native: Mapping[str, object] = field(default_factory=dict, repr=False)


class Session(Protocol):
    """An open session. All verbs are called on one event loop, `send` by one caller at a time."""

    place_root: str  # where the order's VolumePlace is found in the sandbox; "" without one
    workspace: str  # absolute path of the directory that code works in; "" = where the driver is
    # Why writes to the volume are durable only after the session's end; "" where a `sync` in the
    # sandbox is enough.
    committed_late: str

    async def send(self, line: str) -> None:
        """Hands one line (ASCII, without its end) to the driver's standard input.

        Raises Unavailable when the session is over or cannot be reached; whether the line arrived
        is then unknown, and it is never sent again.
        """
        ...

    def lines(self) -> AsyncIterator[str]:
        """Yields the driver's standard output, line by line, each exactly once and in order, also
        over a connection that had to be made again. Ends when the driver is gone and never raises:
        `ending` has the reason. Called once.
        """
        ...

    def ending(self) -> str:
        """After `lines` has ended: returns why, as a clause for messages, with the driver's last
        words on standard error, if any. Without secrets.
        """
        ...

    async def reload(self) -> None:
        """Makes the writes of others to the volume visible; no work where they always are."""
        ...

    async def stop(self) -> None:
        """Ends the sandbox and all of its processes, confirmed where the provider can. Idempotent,
        also after the session has ended by itself. Raises Unavailable when it cannot be ended now.

        Also called while this process exits, when no thread can be started any more.
        """
        ...


# (state directory, a session's name, what its record keeps of `native`) -> whether it was there.
# Ends the sandbox of a session whose program was killed, confirmed. Raises Refused or Unavailable.
EndSession = Callable[[Path, str, Mapping[str, str]], Awaitable[bool]]

# (state directory, order); raises Refused or Unavailable, both certain that no sandbox is left.
OpenSession = Callable[[Path, SessionRequest], Awaitable[Session]]
