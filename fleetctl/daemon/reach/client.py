"""Talk to the controller over its socket: one request and one reply, each a line of JSON.

Called by the verbs that write. spawn.py starts a controller; serve.py says what requests mean.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from fleetctl.common.errors import FleetctlError, StoreError
from fleetctl.common.home import CONTROLLER, LOG, SOCKET, SOCKET_PATH_BYTES_MAX
from fleetctl.daemon.reach.patience import Patience, Unanswered

# A reply names every object of a request; a million results stay below this.
REPLY_BYTES_MAX = 256 * 1024 * 1024
# Validating and storing the largest manifest takes seconds; beyond this the controller hangs.
REPLY_WAIT_S = 120.0
PING_WAIT_S = 10.0  # a very busy machine lets a controller stand still for seconds
SLICE_S = 0.5  # between two looks at a controller that has not answered yet
SEND_BYTES = 1 << 16


class NotRunning(Exception):
    """Nobody listens on the socket."""


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

    Raises NotRunning when nobody listens, Unanswered when one listens but does not answer, and
    within ten seconds Hung for one that does nothing at all.
    """
    line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
    short = request.get("verb") == "ping"
    waiting = _Waiting(home, Patience(home, None if short else lambda s: _pinged(home, s)), wait_s)
    try:
        with _connected(home, waiting) as connection:
            _send(connection, line, waiting)
            answer = _read_line(connection, waiting)
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


def _pinged(home: Path, wait_s: float) -> bool:
    """Whether it answers something short, beside what it is asked already."""
    try:
        return bool(ask(home, {"verb": "ping"}, wait_s=wait_s).get("ok"))
    except (NotRunning, FleetctlError):
        return False


class _Waiting:
    """The end of one wait, looked at between slices of it."""

    def __init__(self, home: Path, patience: Patience, wait_s: float) -> None:
        self._home = home
        self._patience = patience
        self._wait_s = wait_s
        self.slice_s = min(SLICE_S, wait_s)

    def look(self) -> None:
        if self._patience.waited_s >= self._wait_s:
            raise Unanswered(
                f"the controller did not answer within {self._wait_s:g} s",
                hint=f"its log is `{self._home / LOG}`",
            )
        self._patience.look()


@contextmanager
def _connected(home: Path, waiting: _Waiting) -> Iterator[socket.socket]:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(waiting.slice_s)
    try:
        while True:
            try:
                with _address(home) as address:
                    connection.connect(address)
                break
            except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
                raise NotRunning from None
            except PermissionError as error:
                raise not_permitted(home) from error
            except (BlockingIOError, TimeoutError):  # so many wait for it that none more may
                time.sleep(waiting.slice_s)
                waiting.look()
        yield connection
    finally:
        connection.close()


def not_permitted(home: Path) -> StoreError:
    return StoreError(
        f"the state directory `{home}` is not yours to use: permission denied",
        hint="set FLEETCTL_HOME to a directory of your own, or run this as the user who owns it",
    )


def _send(connection: socket.socket, line: bytes, waiting: _Waiting) -> None:
    rest = memoryview(line)
    while rest:
        try:
            rest = rest[connection.send(rest[:SEND_BYTES]) :]
        except TimeoutError:
            waiting.look()


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


def _read_line(connection: socket.socket, waiting: _Waiting) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size < REPLY_BYTES_MAX:
        try:
            part = connection.recv(65536)
        except TimeoutError:
            waiting.look()
            continue
        if not part:
            break
        parts.append(part)
        size += len(part)
        if part.endswith(b"\n"):
            break
    return b"".join(parts)
