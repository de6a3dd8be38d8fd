"""A command in a sandbox whose input is written and output read: the channel of an interpreter's
driver and of the relay of a run's model calls. Each provider has a class of its own for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

WRITE_CHARACTERS = 1 << 20  # in one call: Modal's SDK takes 2 MiB at once


class ExecChannel(Protocol):
    async def send(self, text: str) -> None:
        """Writes to its standard input (ASCII), one caller at a time. Raises Unavailable when it is
        over or cannot be reached: how much of the text arrived is then unknown.
        """
        ...

    def pieces(self) -> AsyncGenerator[str, None]:
        """Yields pieces of the command's standard output until it ends. A second call continues at
        the same position, if possible. Raises ConnectionError when the stream is lost.
        """
        ...

    async def close(self) -> None:
        """Lets the command end. Raises Unavailable when that cannot be asked."""
        ...


class LineSplitter:
    """Makes lines of pieces."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.characters = 0  # of the line that is not whole yet

    def take(self, piece: str) -> list[str]:
        """The lines that the piece completes, without empty ones."""
        first, *rest = piece.split("\n")
        self._parts.append(first)
        self.characters += len(first)
        if not rest:
            return []
        whole = ["".join(self._parts), *rest[:-1]]
        self._parts, self.characters = [rest[-1]], len(rest[-1])
        return [line.strip() for line in whole if line.strip()]
