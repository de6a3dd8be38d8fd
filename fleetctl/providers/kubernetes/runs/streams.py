"""The guest's verbs as commands in a pod, and its frames as they come. Called by sandboxes.py.

A command in a pod gets no environment of its own, so orders and the values of secrets travel on its
input: never through an argument, an object of the cluster or a log.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fleetctl.guest.ship.order_text import order_input
from fleetctl.providers.kubernetes.connection.channel import STDOUT, Channel, run
from fleetctl.providers.kubernetes.connection.client import Link
from fleetctl.providers.kubernetes.manifests.entry import GUESTS, STATE_DIR, given, inside, ordered
from fleetctl.providers.kubernetes.manifests.jobs import MAIN
from fleetctl.providers.remote.sandboxes.base import At, Work

END_OF_RUN = b'{"e":"eof"}\n'
ERROR_CHARACTERS = 400


def verb(guest: str, name: str, *options: str) -> list[str]:
    return [*GUESTS[guest], name, "--dir", STATE_DIR, *options]


def stop_command(guest: str, run: str, grace_s: float) -> list[str]:
    return inside(verb(guest, "stop", "--run", run, "--grace", str(grace_s)))


def relay_command(guest: str, run: str) -> list[str]:
    return inside(verb(guest, "relay", "--run", run))


@dataclass(slots=True, eq=False)
class Line:
    """A command in a pod whose output is the frames of a run, and then of others where it takes
    more orders.
    """

    channel: Channel
    takes_more: bool
    ended: bool = False  # all of the last run's frames have come
    error: str = ""  # the end of what it wrote on its standard error

    async def frames(self) -> AsyncIterator[bytes]:
        """Raises ConnectionError where they end before the run does."""
        tail = b""
        async for stream, data in self.channel.frames():
            if stream != STDOUT:
                self.error = (self.error + data.decode("utf-8", "replace"))[-ERROR_CHARACTERS:]
                continue
            tail = (tail + data)[-len(END_OF_RUN) :]
            self.ended = tail == END_OF_RUN
            yield data
        code = self.channel.exit_code
        if code is None:
            raise ConnectionError(self.channel.failure or "the line to the pod broke")
        raise ConnectionError(f"the guest ended with exit code {code}: {self.error.strip()}")


async def begin(link: Link, pod: str, guest: str, run_name: str, work: Work, at: At) -> Line:
    """Hand a run to a pod. Sent again it begins nothing: the guest's latch sees to that.

    Its secrets are in the environment of what begins it, where `exec` finds them.
    """
    exports = "".join(f"export {k}={shlex.quote(v)}\n" for k, v in work.secrets.items()).encode()
    order = order_input(work.order, posix=True) if guest == "posix" else b""
    words = verb(guest, "turns")
    if guest == "posix":
        words = ordered(len(order), verb(guest, "attach", "--run", run_name, *at.words()))
    argv = inside(given(len(exports), words))
    channel = await run(link, pod, argv, container=MAIN, stdin=True)
    more = guest != "posix" and bool(work.order["reusable"])
    line = Line(channel, takes_more=more)
    await channel.send(exports + order)
    if guest != "posix":
        await hand(line, run_name, Work(work.order))
    return line


async def hand(line: Line, run_name: str, work: Work) -> None:
    """Give an open line its next run. A request that is cut off begins nothing."""
    request = {"run": run_name, "order": work.order, "secrets": dict(work.secrets)}
    line.ended = False
    await line.channel.send(json.dumps(request, separators=(",", ":")).encode() + b"\n")


async def follow(link: Link, pod: str, guest: str, run_name: str, at: At) -> Line:
    argv = inside(verb(guest, "attach", "--run", run_name, *at.words()))
    return Line(await run(link, pod, argv, container=MAIN), takes_more=False)
