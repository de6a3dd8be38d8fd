"""The guest's verbs through an agent: frames of runs, and the line of a run's model calls. Called
by the providers' sandboxes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fleetctl.common.errors import Unavailable
from fleetctl.guest.ship.order_text import order_input
from fleetctl.providers.machines.agent_link import AgentLink, AgentStream, LineBroken
from fleetctl.providers.remote.runs.follower import GuestEnded, SandboxOver
from fleetctl.providers.remote.sandboxes import exec_channel
from fleetctl.providers.remote.sandboxes.sandbox_protocol import RunWork, StreamOffsets

GONE, CLOSED = 97, 98  # exit codes of an agent's `attach`
LOST = b'{"e":"lost"'  # begins the frame of a run whose supervisor died; in no text of a journal


class SupervisorLost(SandboxOver):
    """Raised by a stream that has shown all of a run whose supervisor died without a last word."""


async def follow_run(
    link: AgentLink,
    box: str,
    run: str,
    work: RunWork | None,
    at: StreamOffsets,
) -> AsyncGenerator[bytes, None]:
    """Yields the frames of a run, which begins if `work` is given and it has not begun. Raises
    SandboxOver, GuestEnded and LineBroken.
    """
    fields = {
        "box": box,
        "run": run,
        "words": at.words(),
        "secrets": dict(work.secrets) if work is not None else {},
    }
    order = order_input(work.order, posix=False) if work is not None else b""
    stream = link.stream("attach", fields, order)
    held = b""
    async with aclosing(stream.pieces()) as pieces:
        async for piece in pieces:
            data = held + piece
            held = b""
            found = data.find(LOST)
            if found >= 0:
                yield data[:found]
                raise SupervisorLost(box)
            cut = data.rfind(b"\n") + 1
            if len(data) - cut < len(LOST):
                held = data[cut:]
                data = data[:cut]
            if data:
                yield data
    if stream.code in (GONE, CLOSED):
        raise SandboxOver(box)
    raise GuestEnded(stream.code or 0)


class AgentChannel:
    """The line of a run's model calls."""

    def __init__(self, stream: AgentStream) -> None:
        self._stream = stream

    async def send(self, text: str) -> None:
        try:
            await self._stream.send(text.encode())
        except LineBroken as error:
            raise Unavailable(f"the sandbox cannot be written to: {error}") from error

    async def pieces(self) -> AsyncGenerator[str, None]:
        async for data in self._stream.pieces():
            yield data.decode("ascii", "replace")

    async def close(self) -> None:
        self._stream.leave()


_: type[exec_channel.ExecChannel] = AgentChannel
