"""Collects the lines that Modal's image builders print. The SDK has one output object per process,
which does not know the image of a line: each build names in its own context where its lines go.

Imports the SDK; imported by modal_images.py when the first image is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# First of all: it waits for an import of the SDK that another thread has begun; see
# modal_connection.py.
import modal  # noqa: F401
from modal._output.manager import DisabledOutputManager, OutputManager

Hear = Callable[[str], None]

_HEAR: ContextVar[Hear | None] = ContextVar("hear", default=None)


class _BuildListener(DisabledOutputManager):
    """Prints no line; hands a build's lines to the listener of the current context."""

    async def put_streaming_log(self, log: Any, prefix: str = "") -> None:
        hear = _HEAR.get()
        if hear is not None and log.data:
            hear(prefix + log.data)


@contextmanager
def capture_output(hear: Hear) -> Iterator[None]:
    """Hands the lines of the builds that are awaited in this context to `hear`, on the SDK's
    thread.
    """
    if not isinstance(OutputManager.get(), _BuildListener):
        OutputManager._set(_BuildListener())
    token = _HEAR.set(hear)
    try:
        yield
    finally:
        _HEAR.reset(token)
