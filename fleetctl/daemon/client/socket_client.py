"""Sends the controller requests over its socket: one request and one reply, each a line of JSON.

Called by the verbs that write. spawn.py starts a controller; serve.py handles requests.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fleetctl.common.errors import FleetctlError, StoreError
from fleetctl.common.remote import REMOTE
from fleetctl.common.state_paths import (
    CONTROLLER,
    LOG,
    SOCKET,
    SOCKET_PATH_BYTES_MAX,
    is_trusted_peer,
    refuse_foreign,
)
from fleetctl.daemon.client.lock_holder import ControllerTimeout, ControllerUnanswered

if TYPE_CHECKING:
    from fleetctl.manifest.problems import ManifestProblem

# A reply names every object of a request; a million results stay below this.
REPLY_BYTES_MAX = 256 * 1024 * 1024
# Validating and storing the largest manifest takes seconds; beyond this the controller hangs.
# In a request of the operator's server: it is for custom resources, not for the store alone.
THROUGH_CLUSTER = "throughCluster"
REPLY_WAIT_S = 120.0
PING_WAIT_S = 10.0  # a very busy machine lets a controller stand still for seconds
SLICE_S = 0.5  # between two looks at a controller that has not replied yet
SEND_BYTES = 1 << 16


class NotRunning(Exception):
    """Raised where there is no listener on the socket."""


class RequestRefused(FleetctlError):
    """A refusing reply: one or more errors, and the exit code that goes with them. problems: the
    errors as findings, where they are.
    """

    def __init__(
        self,
        errors: list[str],
        *,
        code: int,
        hint: str,
        problems: Sequence[ManifestProblem] = (),
    ) -> None:
        super().__init__("\nerror: ".join(errors), hint=hint)
        self.errors = errors
        self.exit_code = code
        self.problems = tuple(problems)


def send_request(
    home: Path,
    request: Mapping[str, object],
    *,
    wait_s: float = REPLY_WAIT_S,
) -> dict[str, object]:
    """Sends one request; returns the reply, also a refusing one.

    Raises NotRunning without a listener, Unanswered when one listens but does not reply, within ten
    seconds Hung for one that makes no progress at all, and StoreError, before anything is sent,
    where another user made the directory or listens.
    """
    if (remote := REMOTE.get()) is not None:
        return remote.send(request)
    refuse_foreign(home)
    line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
    short = request.get("verb") == "ping"
    waiting = _ReplyWait(
        home, ControllerTimeout(home, None if short else lambda s: _answers_ping(home, s)), wait_s
    )
    try:
        with _open_connection(home, waiting) as connection:
            _send_line(connection, line, waiting)
            answer = _read_line(connection, waiting)
    except (BrokenPipeError, ConnectionResetError):
        answer = b""  # it ended during the exchange; reported below
    if not answer.endswith(b"\n"):
        raise ControllerUnanswered(
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
    problems = []
    if isinstance(found := reply.get("findings"), list) and found:
        from fleetctl.manifest.problems import ManifestProblem

        problems = [ManifestProblem.of_document(it) for it in found]
        lines = [str(it) for it in problems]
    raise RequestRefused(
        lines,
        code=code if isinstance(code, int) and code else 1,
        hint=str(reply.get("hint") or ""),
        problems=problems,
    )


def results_of(reply: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Returns the results, one entry an object."""
    results = reply.get("results")
    if isinstance(results, list):
        return [r for r in results if isinstance(r, dict)]
    return []


def ping_controller(home: Path) -> dict[str, object] | None:
    """Returns the controller's report of itself, or None without a listener.

    Raises ControllerUnanswered.
    """
    try:
        return send_request(home, {"verb": "ping"}, wait_s=PING_WAIT_S)
    except NotRunning:
        return None


def _answers_ping(home: Path, wait_s: float) -> bool:
    """Returns true where it replies to a short request, beside the pending one."""
    try:
        return bool(send_request(home, {"verb": "ping"}, wait_s=wait_s).get("ok"))
    except (NotRunning, FleetctlError):
        return False


class _ReplyWait:
    """The end of a wait, checked between its slices."""

    def __init__(
        self,
        home: Path,
        patience: ControllerTimeout,
        wait_s: float,
    ) -> None:
        self._home = home
        self._patience = patience
        self._wait_s = wait_s
        self.slice_s = min(SLICE_S, wait_s)

    def look(self) -> None:
        if self._patience.waited_s >= self._wait_s:
            raise ControllerUnanswered(
                f"the controller did not answer within {self._wait_s:g} s",
                hint=f"its log is `{self._home / LOG}`",
            )
        self._patience.look()


@contextmanager
def _open_connection(home: Path, waiting: _ReplyWait) -> Iterator[socket.socket]:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(waiting.slice_s)
    try:
        while True:
            try:
                with _resolve_address(home) as address:
                    connection.connect(address)
                break
            except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
                raise NotRunning from None
            except PermissionError as error:
                raise not_permitted(home) from error
            except (BlockingIOError, TimeoutError):  # the queue of connections is full
                time.sleep(waiting.slice_s)
                waiting.look()
        if not is_trusted_peer(connection):
            raise StoreError(
                f"another user listens at `{home / SOCKET}`; nothing was sent",
                hint="set FLEETCTL_HOME to a directory of your own",
            )
        yield connection
    finally:
        connection.close()


def not_permitted(home: Path) -> StoreError:
    return StoreError(
        f"the state directory `{home}` is not yours to use: permission denied",
        hint="set FLEETCTL_HOME to a directory of your own, or run this as the user who owns it",
    )


def _send_line(
    connection: socket.socket,
    line: bytes,
    waiting: _ReplyWait,
) -> None:
    rest = memoryview(line)
    while rest:
        try:
            rest = rest[connection.send(rest[:SEND_BYTES]) :]
        except TimeoutError:
            waiting.look()


@contextmanager
def _resolve_address(home: Path) -> Iterator[str]:
    """Yields a path to the socket that is short enough for the kernel.

    A long one goes through /proc/self/fd; without /proc the controller listens in the temp
    directory and names that path in controller.json.
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


def _read_line(connection: socket.socket, waiting: _ReplyWait) -> bytes:
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
