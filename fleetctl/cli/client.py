"""Talk to the controller over its socket: one request and one reply, each a line of JSON.

Called by the verbs that write. starting.py starts a controller; serve.py says what requests mean.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from fleetctl.errors import FleetctlError
from fleetctl.home import CONTROLLER, LOG, SOCKET

# The shortest limit of the platforms we know (macOS 104, Linux 108), less the final zero.

SOCKET_PATH_BYTES_MAX = 103
# A reply names every object of a request; a million results stay below this.
REPLY_BYTES_MAX = 256 * 1024 * 1024
# Validating and storing the largest manifest takes seconds; beyond this the controller hangs.
REPLY_WAIT_S = 120.0
PING_WAIT_S = 10.0  # a very busy machine lets a controller stand still for seconds


class NotRunning(Exception):
    """Nobody listens on the socket."""


class Unanswered(FleetctlError):
    """A controller listens and has not answered: it is very busy, hangs or has just ended."""


class Refusal(FleetctlError):
    """A reply that said no: one or more errors, and the exit code that goes with them."""

    def __init__(self, errors: list[str], *, code: int, hint: str) -> None:
        super().__init__("\nerror: ".join(errors), hint=hint)
        self.errors = errors
        self.exit_code = code


def ask(
    home: Path, request: Mapping[str, object], *, wait_s: float = REPLY_WAIT_S
) -> dict[str, object]:
    """Send one request; the reply, also one that says no.

    Raises NotRunning when nobody listens, Unanswered when one listens but does not answer.
    """
    line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
    try:
        with _connected(home, wait_s=wait_s) as connection:
            connection.sendall(line)
            answer = _read_line(connection)
    except TimeoutError:
        raise Unanswered(
            f"the controller did not answer within {wait_s:g} s",
            hint=f"its log is `{home / LOG}`",
        ) from None
    except (BrokenPipeError, ConnectionResetError):
        answer = b""  # it ended while we spoke; said below
    if not answer.endswith(b"\n"):
        raise Unanswered(
            "the controller ended before it answered; the request may or may not have been stored",
            hint="run the same command again: it changes nothing that is done already",
        )
    try:
        reply = json.loads(answer)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict):
        raise FleetctlError(
            "the controller answered something that is not a reply",
            hint="it may be of another version: `fleetctl down`, then run the command again",
        )
    return reply


def raise_refusal(reply: Mapping[str, object]) -> NoReturn:
    errors = reply.get("errors")
    lines = (
        [str(error) for error in errors]
        if isinstance(errors, list) and errors
        else ["no reason given"]
    )
    code = reply.get("code")
    raise Refusal(
        lines, code=code if isinstance(code, int) and code else 1, hint=str(reply.get("hint") or "")
    )


def results_of(reply: Mapping[str, object]) -> list[Mapping[str, object]]:
    """What was done, one entry an object."""
    results = reply.get("results")
    return [r for r in results if isinstance(r, dict)] if isinstance(results, list) else []


def ping(home: Path) -> dict[str, object] | None:
    """What the controller says of itself, or None when none listens. Raises Unanswered."""
    try:
        return ask(home, {"verb": "ping"}, wait_s=PING_WAIT_S)
    except NotRunning:
        return None


@contextmanager
def _connected(home: Path, *, wait_s: float) -> Iterator[socket.socket]:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(wait_s)
    try:
        with _address(home) as address:
            try:
                connection.connect(address)
            except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
                raise NotRunning from None
        yield connection
    finally:
        connection.close()


@contextmanager
def _address(home: Path) -> Iterator[str]:
    """A path to the socket that is short enough for the kernel.

    A long one goes through /proc/self/fd; without /proc the controller listens in the temp
    directory and says where in controller.json.
    """
    path = str(home / SOCKET)
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        yield path
        return
    if not Path("/proc/self/fd").is_dir():
        yield _published_address(home)
        return
    try:
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise NotRunning from None
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)


def _published_address(home: Path) -> str:
    try:
        facts = json.loads((home / CONTROLLER).read_text())
    except (FileNotFoundError, ValueError):
        raise NotRunning from None
    address = facts.get("socket") if isinstance(facts, dict) else None
    if not isinstance(address, str):
        raise NotRunning
    return address


def _read_line(connection: socket.socket) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size < REPLY_BYTES_MAX:
        part = connection.recv(65536)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if part.endswith(b"\n"):
            break
    return b"".join(parts)
