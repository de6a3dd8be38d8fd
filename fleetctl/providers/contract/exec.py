"""The interface for entering the sandbox of a running task. Used by `exec`, `cp` and
`port-forward`, which build it through wiring without a controller.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

ENDED_HINT = "a result, a log and the files in volumes outlive a task; its own disk does not"


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
