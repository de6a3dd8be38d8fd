"""`fleetctl port-forward`: a port of this machine that leads to one in a task's sandbox.

A provider that has a link of its own is asked for that; elsewhere a command in the sandbox carries
the bytes of each connection.
"""

from __future__ import annotations

import argparse
import asyncio
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.render import Screen
from fleetctl.cli.targets.task import Beside, add_which, beside, which_of
from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.common.home import home
from fleetctl.common.text import safe
from fleetctl.views.kinds import target

HOST = "127.0.0.1"  # nobody else's business
PORT_MAX = 65535
PIECE_BYTES = 64 * 1024
NO_PROGRAM = 127
# In the sandbox: one connection to the port, carried over stdin and stdout.
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


class Ports(NamedTuple):
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
        "ports", type=_ports, metavar="PORT[:REMOTE]", help="here and there; 0 is any that is free"
    )
    add_which(made)
    return made


def _ports(text: str) -> Ports:
    if text == "ray":
        return Ports(0, 0)
    ours, colon, theirs = text.partition(":")
    numbers = [ours, theirs if colon else ours]
    if not all(it.isascii() and it.isdigit() for it in numbers):
        raise argparse.ArgumentTypeError(f"`{text}` is not PORT or PORT:REMOTE")
    if not all(len(it) <= len(str(PORT_MAX)) and int(it) <= PORT_MAX for it in numbers):
        raise argparse.ArgumentTypeError(f"`{text}`: a port is a number from 1 to {PORT_MAX}")
    if not int(numbers[1]):
        raise argparse.ArgumentTypeError(f"`{text}` does not say which port of the task")
    return Ports(int(numbers[0]), int(numbers[1]))


def run(args: Namespace, screen: Screen) -> int:
    return asyncio.run(_run(args, screen))


async def _run(args: Namespace, screen: Screen) -> int:
    wanted, ports = target(args.object, args.namespace), args.ports
    found = beside(wanted, which_of(args), home())
    try:
        if not ports.theirs:
            number = await _ray_dashboard(found)
            ports = Ports(number, number)
        link = await found.entering.link(found.place, ports.theirs)
        if "://" in link or link == f"{HOST}:{ports.ours}":
            screen.talk(f"port {ports.theirs} of {found.name} is open there already")
            screen.data(safe(link))
            return 0
        return await _forward(found, ports, link, screen)
    finally:
        await found.entering.close()


async def _ray_dashboard(found: Beside) -> int:
    """The port that it listens on, there. Raises Refused."""
    from fleetctl.providers.contract.exec import Streams

    parts: list[bytes] = []
    asked = ("sh", "-c", 'echo "$FLEETCTL_RAY_DASHBOARD"')
    await found.entering.execute(found.place, asked, Streams(None, parts.append, _nobody))
    text = b"".join(parts).decode("ascii", "replace").strip()
    if not text.isdigit():
        raise Refused(
            f"{found.name} has no Ray dashboard", hint="`ray: {dashboard: true}` starts one"
        )
    return int(text)


async def _forward(found: Beside, ports: Ports, link: str, screen: Screen) -> int:
    """Until somebody stops us, or the task has ended."""
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
        raise await over


def _over_network(link: str) -> Serve:
    host, _, port = link.rpartition(":")

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            theirs, ours = await asyncio.open_connection(host, int(port))
        except OSError:
            return  # nobody listens there: to whoever called, a connection that ends
        try:
            await asyncio.gather(_pump(reader, ours), _pump(theirs, writer))
        finally:
            ours.close()

    return carry


def _over_command(found: Beside, port: int) -> Serve:
    from fleetctl.providers.contract.exec import Streams

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams = Streams(stdin=_pieces(reader), out=writer.write, err=_nobody)
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


def _nobody(_said: bytes) -> None:
    """What the command says when nobody listens: the connection ends, which says it too."""


async def _pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(PIECE_BYTES):
        yield data


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # either side may go at any time
        async for data in _pieces(reader):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
