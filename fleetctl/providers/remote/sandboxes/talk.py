"""A command in a sandbox that is written to and heard: how an interpreter's driver and the relay of
a run's model calls are talked to. Each provider has a class of its own for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

WRITE_CHARACTERS = 1 << 20  # in one call: Modal's SDK takes 2 MiB at once


class Talk(Protocol):
    async def send(self, text: str) -> None:
        """Write to its standard input (ASCII), one caller at a time. Raises Unavailable when it is
        over or cannot be reached: how much of the text arrived is then unknown.
        """
        ...

    def pieces(self) -> AsyncGenerator[str, None]:
        """What it writes to its standard output, cut anywhere, until it is over. Called again it
        goes on where it was, if it can. Raises ConnectionError when the stream is lost.
        """
        ...

    async def close(self) -> None:
        """Let the command end. Raises Unavailable when that cannot be asked."""
        ...


class Splitter:
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
