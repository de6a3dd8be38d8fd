"""The guest's verbs as commands in a sandbox of Modal, its frames as they come, and commands whose
input is written and output read.

Every command has a deadline of its own at Modal: without one the SDK waits for ever when the
sandbox's machine is gone.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.guest.ship.library import order_argument, order_input
from fleetctl.providers.modal.assets.modal_images import POSIX_GUEST_PATH, QUICK_PATH
from fleetctl.providers.modal.connection.modal_errors import (
    error_words,
    sandbox_call,
    sdk_errors,
)
from fleetctl.providers.remote.sandboxes import exec_channel
from fleetctl.providers.remote.sandboxes.exec_channel import WRITE_CHARACTERS
from fleetctl.providers.remote.sandboxes.sandbox_protocol import RunWork, StreamOffsets
from fleetctl.specs.blocks.template import Template

if TYPE_CHECKING:
    import modal


STATE_DIR = "/tmp/.fleetctl"  # in the sandbox, which has no other user
BEGIN_S = 180  # an inert sandbox whose work does not begin ends by itself
ORDER_ARGUMENT_MAX = 32 * 1024  # Modal takes 64 KiB of arguments in all
HANDED_MAX = 1024 * 1024  # for one order on stdin; the SDK buffers twice as much
END_OF_RUN = b'{"e":"eof"}\n'
GUESTS = {
    "python": ("python3", "-I", "-S", QUICK_PATH),
    "posix": ("sh", POSIX_GUEST_PATH),
}


def guest_for(template: Template) -> str:
    """Returns which guest an image can run. One from a registry need not have Python."""
    image = template.image
    foreign = image is not None and image.registry is not None and image.python is None
    if foreign and not template.needs_python:
        return "posix"
    return "python"


def idle_command() -> list[str]:
    """The inert entrypoint, which only keeps the sandbox there; the shell's takes least."""
    return [*GUESTS["posix"], "idle", "--dir", STATE_DIR, "--begin-s", str(BEGIN_S)]


def stop_command(
    guest: str,
    run: str,
    grace_s: float,
) -> list[str]:
    return [*GUESTS[guest], "stop", "--dir", STATE_DIR, "--run", run, "--grace", str(grace_s)]


def attach_command(
    guest: str,
    run: str,
    at: StreamOffsets,
) -> list[str]:
    return [*GUESTS[guest], "attach", "--dir", STATE_DIR, "--run", run, *at.words()]


def relay_command(guest: str, run: str) -> list[str]:
    return [*GUESTS[guest], "relay", "--dir", STATE_DIR, "--run", run]


@dataclass(slots=True)
class ModalStream:
    """A command in a sandbox whose output is the frames of a run, and then of others where it takes
    more orders on its stdin.
    """

    process: modal.container_process.ContainerProcess[bytes]
    frames: AsyncIterator[bytes]
    takes_more: bool
    ended: bool = False  # all of the last run's frames have come

    def note_end(self, data: bytes) -> bytes:
        self.ended = data.endswith(END_OF_RUN)
        return data


async def hand_run(
    line: ModalStream,
    run: str,
    work: RunWork,
) -> bool:
    """Gives an open line its next run: one call, where a command of its own takes two and the start
    of an interpreter. False for an order that is too long. Raises what the SDK raises.
    """
    request = {"run": run, "order": work.order, "secrets": dict(work.secrets)}
    text = json.dumps(request, separators=(",", ":")) + "\n"
    if len(text) > HANDED_MAX:
        return False
    line.ended = False
    line.process.stdin.write(text)
    await line.process.stdin.drain.aio()
    return True


async def start_guest(
    sandbox: modal.Sandbox,
    argv: list[str],
    *,
    live_s: float,
) -> modal.container_process.ContainerProcess[str]:
    """Starts the guest in the sandbox. live_s: after which Modal ends it. Raises what the SDK
    raises.
    """
    from modal import stream_type

    return await sandbox.exec.aio(
        *argv, stderr=stream_type.StreamType.DEVNULL, timeout=max(1, int(live_s))
    )


async def open_stream(
    sandbox: modal.Sandbox,
    argv: list[str],
    work: RunWork | None,
    *,
    posix: bool,
    live_s: float,
) -> ModalStream:
    """Opens a stream to the guest, with the order of a run that has not begun. argv: of
    `attach_command`; live_s: after which Modal ends it. Raises what the SDK raises.
    """
    from modal import stream_type

    order = work.order if work is not None else None
    text = order_argument(order, posix=posix) if order is not None else ""
    piped = len(text) > ORDER_ARGUMENT_MAX
    takes_more = order is not None and bool(order["reusable"]) and not posix and not piped
    # A command there ends before its sandbox only at its deadline, which is the sandbox's.
    stays = order is not None and not takes_more and not posix
    process = await sandbox.exec.aio(
        *argv,
        *(("--order", "-" if piped else text) if order is not None else ()),
        *(("--more", "yes") if takes_more else ()),
        *(("--stay", "yes") if stays else ()),
        stdout=stream_type.StreamType.PIPE,
        stderr=stream_type.StreamType.DEVNULL,
        timeout=max(1, int(live_s)),
        env=dict(work.secrets) if work is not None else {},
        text=False,
    )
    if order is not None and piped:
        given = order_input(order, posix=posix)
        for at in range(0, len(given), WRITE_CHARACTERS):  # it may bring files
            process.stdin.write(given[at : at + WRITE_CHARACTERS])
            await process.stdin.drain.aio()
        process.stdin.write_eof()
        await process.stdin.drain.aio()
    return ModalStream(process, aiter(process.stdout), takes_more)


class ModalExecChannel:
    def __init__(
        self, process: modal.container_process.ContainerProcess[str], *, deadline_s: float
    ) -> None:
        """deadline_s: seconds for one call."""
        self._process = process
        self._deadline_s = deadline_s

    async def send(self, text: str) -> None:
        async with sandbox_call("the sandbox cannot be written to", deadline_s=self._deadline_s):
            for at in range(0, len(text), WRITE_CHARACTERS):
                self._process.stdin.write(text[at : at + WRITE_CHARACTERS])
                await self._process.stdin.drain.aio()

    async def pieces(self) -> AsyncGenerator[str, None]:
        try:
            async for piece in self._process.stdout:
                yield piece
        except sdk_errors() as error:
            raise ConnectionError(error_words(error)) from error

    async def close(self) -> None:
        """Closes the input: at Modal a command ends only once it has read its input to the end."""
        async with sandbox_call("the sandbox cannot be written to", deadline_s=self._deadline_s):
            self._process.stdin.write_eof()
            await self._process.stdin.drain.aio()


_: type[exec_channel.ExecChannel] = ModalExecChannel
