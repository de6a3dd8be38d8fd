"""Hears what Modal's builders print. The SDK has one place for output in a process, and it knows no
image: who builds says in its own context where its lines go.

Imports the SDK; imported by images.py when the first image is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# First of all: it waits for an import of the SDK that another thread has begun; see client.py.
import modal  # noqa: F401
from modal._output.manager import DisabledOutputManager, OutputManager

Hear = Callable[[str], None]

_HEAR: ContextVar[Hear | None] = ContextVar("hear", default=None)


class _Listening(DisabledOutputManager):
    """Prints nothing; hands lines of builds to who hears in this context."""

    async def put_streaming_log(self, log: Any, prefix: str = "") -> None:
        hear = _HEAR.get()
        if hear is not None and log.data:
            hear(prefix + log.data)


@contextmanager
def heard(hear: Hear) -> Iterator[None]:
    """Within, what builds print that are awaited here goes to `hear`, on the SDK's thread."""
    if not isinstance(OutputManager.get(), _Listening):
        OutputManager._set(_Listening())
    token = _HEAR.set(hear)
    try:
        yield
    finally:
        _HEAR.reset(token)
