"""`fleetctl port-forward`: opens a port of this machine that leads to one in a task's sandbox.

Uses the provider's own link where there is one; elsewhere a command in the sandbox carries the
bytes of each connection.
"""

from __future__ import annotations

import argparse
import asyncio
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.task import (
    TaskAccess,
    add_which,
    find_task_access,
    has_ended,
    parse_task_choice,
)
from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line
from fleetctl.views.kinds import parse_target

HOST = "127.0.0.1"  # closed to other machines
PORT_MAX = 65535
PIECE_BYTES = 64 * 1024
LOOK_S = 2.0  # between two looks at whether the task has ended
NO_PROGRAM = 127
# Runs in the sandbox: one connection to the port, carried over stdin and stdout.
_CARRY = """
import os, socket, sys, threading
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def up():
    while data := os.read(0, 65536):
        line.sendall(data)
    line.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := line.recv(65536):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]
"""
_SCRIPT = (
    'if command -v python3 >/dev/null; then exec python3 -c "$2" "$1"; '
    f'elif command -v nc >/dev/null; then exec nc 127.0.0.1 "$1"; else exit {NO_PROGRAM}; fi'
)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class PortPair(NamedTuple):
    ours: int  # 0 = any that is free
    theirs: int  # 0 = of the dashboard of its Ray cluster


PAGE = """\
KIND/NAME PORT[:REMOTE]|ray [--index N | --stage NAME] [--node N]

Let a port of this machine lead to a port in the sandbox of a task that runs, until
Ctrl-C; `ray` is the dashboard of its Ray cluster. On this machine a task's ports are
open anyway; at Modal each connection is carried by a command in the sandbox, which
needs python3 or nc there; at Daytona the answer is a link that works for an hour.
stdout is the address.

examples:
  fleetctl port-forward tr/pretrain 6006
  fleetctl port-forward job/serve 8080:80 --index 3
  fleetctl port-forward job/serve 0:80
  fleetctl port-forward tr/pretrain ray

exit codes:
  0 there is nothing to carry, 2 wrong usage, 3 refused, or the task has ended,
  4 no such object or task, 130 interrupted
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("object", metavar="KIND/NAME", help="whose task")
    made.add_argument(
        "ports",
        type=_parse_ports,
        metavar="PORT[:REMOTE]",
        help="here and there; 0 is any that is free",
    )
    add_which(made)
    return made


def _parse_ports(text: str) -> PortPair:
    if text == "ray":
        return PortPair(0, 0)
    ours, colon, theirs = text.partition(":")
    numbers = [ours, theirs if colon else ours]
    if not all(it.isascii() and it.isdigit() for it in numbers):
        raise argparse.ArgumentTypeError(f"`{text}` is not PORT or PORT:REMOTE")
    if not all(len(it) <= len(str(PORT_MAX)) and int(it) <= PORT_MAX for it in numbers):
        raise argparse.ArgumentTypeError(f"`{text}`: a port is a number from 1 to {PORT_MAX}")
    if not int(numbers[1]):
        raise argparse.ArgumentTypeError(f"`{text}` does not say which port of the task")
    return PortPair(int(numbers[0]), int(numbers[1]))


def run(args: Namespace, screen: Screen) -> int:
    return asyncio.run(_forward_port(args, screen))


async def _forward_port(args: Namespace, screen: Screen) -> int:
    wanted = parse_target(args.object, args.namespace)
    ports = args.ports
    found = find_task_access(wanted, parse_task_choice(args), find_state_dir())
    try:
        if not ports.theirs:
            number = await _ray_dashboard(found)
            ports = PortPair(number, number)
        link = await found.entering.link(found.place, ports.theirs)
        if "://" in link or link == f"{HOST}:{ports.ours}":
            screen.talk(f"port {ports.theirs} of {found.name} is open there already")
            screen.data(escape_line(link))
            return 0
        return await _serve_port(found, ports, link, screen)
    finally:
        await found.entering.close()


async def _ray_dashboard(found: TaskAccess) -> int:
    """Returns the port that the dashboard listens on in the sandbox. Raises Refused."""
    from fleetctl.providers.contract.sandbox_access import ExecStreams

    parts: list[bytes] = []
    asked = ("sh", "-c", 'echo "$FLEETCTL_RAY_DASHBOARD"')
    await found.entering.execute(
        found.place, asked, ExecStreams(None, parts.append, _discard_stderr)
    )
    text = b"".join(parts).decode("ascii", "replace").strip()
    if not text.isdigit():
        raise Refused(
            f"{found.name} has no Ray dashboard", hint="`ray: {dashboard: true}` starts one"
        )
    return int(text)


async def _serve_port(
    found: TaskAccess,
    ports: PortPair,
    link: str,
    screen: Screen,
) -> int:
    """Forwards until the user stops it, or the task has ended."""
    over: asyncio.Future[FleetctlError] = asyncio.get_running_loop().create_future()
    carry = _over_network(link) if link else _over_command(found, ports.theirs)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await carry(reader, writer)
        except FleetctlError as error:
            if not over.done():
                over.set_result(error)
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(serve, HOST, ports.ours)
    except OSError as error:
        raise Refused(
            f"port {ports.ours} of this machine cannot be listened on",
            hint=f"another one will do: `0:{ports.theirs}`",
        ) from error
    async with server:
        number = server.sockets[0].getsockname()[1]
        screen.talk(f"port {ports.theirs} of {found.name} is here until Ctrl-C")
        screen.data(f"{HOST}:{number}")
        screen.flush()
        watching = asyncio.ensure_future(_raise_at_end(found))
        try:
            await asyncio.wait((over, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
        if over.done():
            raise over.result()
        await watching
        return 0


async def _raise_at_end(found: TaskAccess) -> None:
    """Raises Refused once the task has ended: without it the port leads nowhere, and a program that
    waits for this command would wait for ever.
    """
    while not await asyncio.to_thread(has_ended, found, find_state_dir()):
        await asyncio.sleep(LOOK_S)
    hint = f"fleetctl describe {found.name.rpartition(' ')[2]}"
    raise Refused(f"{found.name} has ended", hint=hint)


def _over_network(link: str) -> Serve:
    host, _, port = link.rpartition(":")

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            theirs, ours = await asyncio.open_connection(host, int(port))
        except OSError:
            return  # no listener in the sandbox: the caller's connection ends
        try:
            await asyncio.gather(_pump_stream(reader, ours), _pump_stream(theirs, writer))
        finally:
            ours.close()

    return carry


def _over_command(found: TaskAccess, port: int) -> Serve:
    from fleetctl.providers.contract.sandbox_access import ExecStreams

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams = ExecStreams(
            stdin=_read_pieces(reader),
            out=writer.write,
            err=_discard_stderr,
        )
        argv = ("sh", "-c", _SCRIPT, "fleetctl", str(port), _CARRY)
        code = await found.entering.execute(found.place, argv, streams)
        if code == NO_PROGRAM:
            raise Refused(
                "the image of this task has neither `python3` nor `nc`, which carry the bytes",
                hint="add `apt: [netcat-openbsd]` to its image",
            )
        with suppress(OSError):
            await writer.drain()

    return carry


def _discard_stderr(_said: bytes) -> None:
    """Ignores the command's message on a missing listener: the connection ends, which shows it
    too."""


async def _read_pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(PIECE_BYTES):
        yield data


async def _pump_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # either side may close at any time
        async for data in _read_pieces(reader):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
