"""The guest's verbs as commands in a pod, its frames as they come or from the pod's log, and
commands whose input is written and output read.

A command in a pod gets no environment of its own, so orders and the values of secrets travel on
its input: never through an argument, an object of the cluster or a log.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from fleetctl.common.errors import Unavailable
from fleetctl.guest.ship.library import order_input
from fleetctl.providers.kubernetes.connection.kubernetes_connection import ClusterLink
from fleetctl.providers.kubernetes.connection.pod_channel import STDOUT, PodChannel, run
from fleetctl.providers.kubernetes.manifests.entry import (
    GUESTS,
    STATE_DIR,
    STORIES_WORD,
    TOLD_WORD,
    UNBEGUN_WORD,
    with_order,
    with_variables,
    wrap_command,
)
from fleetctl.providers.kubernetes.manifests.jobs import MAIN
from fleetctl.providers.remote.sandboxes import exec_channel
from fleetctl.providers.remote.sandboxes.sandbox_protocol import RunWork, StreamOffsets

END_OF_RUN = b'{"e":"eof"}\n'
ERROR_CHARACTERS = 400

_STORIES = b'\n{"e":"%s"}\n' % STORIES_WORD.encode()
_OF_THE_STREAM = ("outputs", "log", "alive", "eof", "lost", "unbegun")


def guest_verb(
    guest: str,
    name: str,
    *options: str,
) -> list[str]:
    return [*GUESTS[guest], name, "--dir", STATE_DIR, *options]


def stop_command(
    guest: str,
    run: str,
    grace_s: float,
) -> list[str]:
    return wrap_command(
        guest_verb(
            guest,
            "stop",
            "--run",
            run,
            "--grace",
            str(grace_s),
        )
    )


def relay_command(guest: str, run: str) -> list[str]:
    return wrap_command(guest_verb(guest, "relay", "--run", run))


@dataclass(slots=True, eq=False)
class PodStream:
    """A command in a pod whose output is the frames of a run, and then of others where it takes
    more orders.
    """

    channel: PodChannel
    takes_more: bool
    ended: bool = False  # all of the last run's frames have come
    error: str = ""  # the end of what it wrote on its standard error

    async def frames(self) -> AsyncIterator[bytes]:
        """Yields the frames of the run. Raises ConnectionError if they end before the run."""
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
        raise ConnectionError(f"the guest exited with code {code}: {self.error.strip()}")


async def begin_run(
    link: ClusterLink,
    pod: str,
    guest: str,
    run_name: str,
    work: RunWork,
    at: StreamOffsets,
) -> PodStream:
    """Hands a run to a pod. A repeated request begins no second run: the guest's latch sees to
    that.

    Its secrets are in the environment of the process that begins it, where `exec` finds them.
    """
    exports = "".join(f"export {k}={shlex.quote(v)}\n" for k, v in work.secrets.items()).encode()
    order = order_input(work.order, posix=True) if guest == "posix" else b""
    words = guest_verb(guest, "turns")
    if guest == "posix":
        words = with_order(
            len(order),
            guest_verb(
                guest,
                "attach",
                "--run",
                run_name,
                *at.words(),
            ),
        )
    argv = wrap_command(with_variables(len(exports), words))
    channel = await run(
        link,
        pod,
        argv,
        container=MAIN,
        stdin=True,
    )
    more = guest != "posix" and bool(work.order["reusable"])
    line = PodStream(channel, takes_more=more)
    await channel.send(exports + order)
    if guest != "posix":
        await hand_run(line, run_name, RunWork(work.order))
    return line


async def hand_run(
    line: PodStream,
    run_name: str,
    work: RunWork,
) -> None:
    """Gives an open line its next run. A request that is cut off begins no run."""
    request = {"run": run_name, "order": work.order, "secrets": dict(work.secrets)}
    line.ended = False
    await line.channel.send(json.dumps(request, separators=(",", ":")).encode() + b"\n")


async def follow_run(
    link: ClusterLink,
    pod: str,
    guest: str,
    run_name: str,
    at: StreamOffsets,
) -> PodStream:
    argv = wrap_command(
        guest_verb(
            guest,
            "attach",
            "--run",
            run_name,
            *at.words(),
        )
    )
    return PodStream(await run(link, pod, argv, container=MAIN), takes_more=False)


def never_began(text: bytes) -> bool:
    """Returns whether the pod itself reports that no run ever began in it."""
    shown = _STORIES in text  # then there is output before it, with arbitrary text
    return not shown and any(_frame_word(line) == UNBEGUN_WORD for line in text.splitlines()[:1])


def frames_of(
    text: bytes,
    run: str,
    at: StreamOffsets,
) -> bytes:
    """Returns the frames of a run, from there on; b"" where the log does not know it.

    Lines of its journal that are there already are left out; output carries its own offset.
    """
    told: list[bytes] = []
    ours = False
    passed = 0
    for line in _entrypoint_lines(text).splitlines(keepends=True):
        word = _frame_word(line)
        if word == TOLD_WORD:
            ours = _frame_run(line) == run
            continue
        if not ours or not line.endswith(b"\n"):
            continue
        if word not in _OF_THE_STREAM:
            passed += len(line)
            if passed <= at.journal:
                continue
        told.append(line)
    return b"".join(told)


def _entrypoint_lines(text: bytes) -> bytes:
    """Returns the entrypoint's own lines, behind the output of programs, which is arbitrary text.
    The whole log, of a pod without output.
    """
    _, begins, stories = text.rpartition(_STORIES)
    if begins:
        return stories
    return text


def _frame_word(line: bytes) -> str:
    if not line.startswith(b'{"e":"'):
        return ""
    return line[6 : line.find(b'"', 6)].decode("ascii", "replace")


def _frame_run(line: bytes) -> str:
    try:
        return str(json.loads(line).get("run"))
    except ValueError:
        return ""


class PodExecChannel:
    def __init__(self, channel: PodChannel) -> None:
        self._channel = channel

    async def send(self, text: str) -> None:
        try:
            await self._channel.send(text.encode())
        except ConnectionError as error:
            raise Unavailable(f"the pod cannot be written to: {error}") from error

    async def pieces(self) -> AsyncGenerator[str, None]:
        async for stream, data in self._channel.frames():
            if stream == STDOUT:
                yield data.decode("ascii", "replace")
        if self._channel.exit_code is None:
            raise ConnectionError("the line to the pod broke")

    async def close(self) -> None:
        await self._channel.close()


_: type[exec_channel.ExecChannel] = PodExecChannel
