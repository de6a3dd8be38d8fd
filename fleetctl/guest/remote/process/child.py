"""New processes: their environment, the way from the fork to a program, and the channel on which
one that works for a run sends events.

A process begins in a session of its own, with an empty stdin, and with its output and its channel
(descriptor 3) going to the supervisor. A command leads one run; a worker leads one Python task
after another.
"""

from __future__ import annotations

import _signal
import _socket
import os
import sys

from fleetctl.guest.remote import place
from fleetctl.guest.supervision.processes import send_signal
from fleetctl.guest.task.parameters import (
    bypass_proxies,
    name_inputs,
    parameter_texts,
    parameter_variables,
)
from fleetctl.guest.task.program import enter_directory, replace_process, run_guarded
from fleetctl.guest.task.serving import CHANNEL
from fleetctl.guest.task.text import encode_compact, encode_spaced, parse_json

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

    from fleetctl.guest.remote.loop import Loop

    Variables = Dict[str, str]


DESCRIPTORS_MAX = 1024  # more than the supervisor ever has
_kept: list[Callable[..., Tuple[Variables, List[str]]]] = []

READ_BYTES_MAX = 1024 * 1024
LINE_BYTES_MAX = 1024 * 1024  # a result of the largest size, escaped, with room to spare


def build_environment(
    order: dict[str, Any],
    secrets: dict[str, str],
    base: dict[str, str],
) -> Variables:
    """Returns all variables of a task. Also writes the file with its parameters."""
    files = f"{os.getcwd()}/{place.FILES}"
    inputs = name_inputs(order, files)
    _overwrite_file(f"{place.FILES}/params.json", encode_spaced(order["params"]).encode())
    variables = {
        **base,
        **order["env"],
        "FLEETCTL_PARAMS": f"{files}/params.json",
        "FLEETCTL_RESULT": f"{files}/result.json",
        "FLEETCTL_METRICS": f"{files}/metrics.jsonl",
        "FLEETCTL_RUN": order["run"],
        "FLEETCTL_ATTEMPT": str(order["attempt"]),
        "JOB_COMPLETION_INDEX": order["env"].get("FLEETCTL_NODE_RANK", str(order["index"])),
    }
    for volume in order["volumes"]:
        variables[volume["variable"]] = volume["mount"]
    if order["mode"] == "python":
        variables.update(parameter_texts(order["params"]))
    else:
        variables.update(parameter_variables(order["params"], files))
    variables.update(inputs)
    variables.update(secrets)
    variables.update(bypass_proxies(variables))
    return variables


def begin_training(order: dict[str, Any], variables: Variables) -> tuple[Variables, list[str]]:
    """Returns (variables to add, arguments to append) of a program that may resume from a
    checkpoint, and is watched. Called in the process that becomes the program.
    """
    if not order.get("library"):
        return {}, []
    if not _kept:  # a worker forgets our modules before its first task, and may get another one
        from fleetctl.guest.checkpoints.begin import begin_training

        _kept.append(begin_training)
    library = f"{os.path.dirname(variables['FLEETCTL_PARAMS'])}/python"
    root = order["checkpoint"]["path"] if order.get("checkpoint") else ""
    return _kept[0](
        order,
        root,
        library,
        variables,
        send_line,
    )


def spawn_process(
    work: Callable[[], NoReturn],
    output: int,
    channel: int,
) -> int:
    """Forks a process that is set up and then does `work`; returns its pid. Raises OSError when no
    process can be started.
    """

    def whole() -> NoReturn:
        _detach_session(output, channel)
        work()

    pid = os.fork()
    if pid == 0:
        run_guarded(whole, send_line)
    return pid


def execute_program(
    argv: list[str],
    variables: Variables,
    directory: str,
    workdir: Optional[str] = None,
) -> NoReturn:
    """Becomes a program. Raises OSError when that is not possible."""
    enter_directory(directory, workdir)
    replace_process(argv, variables)


def send_line(event: dict[str, Any]) -> None:
    """Sends one line to the supervisor. A result is JSON text, which is passed on as it is."""
    result = event.get("json")
    line = encode_compact(event) if result is None else '{"e":"result","value":' + result + "}"
    data = memoryview((line + "\n").encode())
    while data:
        data = data[os.write(CHANNEL, data) :]


def _detach_session(output: int, channel: int) -> None:
    os.setsid()
    os.umask(0o022)
    _signal.set_wakeup_fd(-1)
    for number in (_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGPIPE, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if channel != CHANNEL:
        os.dup2(channel, CHANNEL, inheritable=False)
    os.closerange(CHANNEL + 1, DESCRIPTORS_MAX)


def _overwrite_file(path: str, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)


class Leader:
    """A process for runs; `hear` and `ended` are set by the run that it works for."""

    def __init__(
        self,
        loop: Loop,
        work: Callable[[], NoReturn],
        output: int,
    ) -> None:
        """Starts the process. Raises OSError when it cannot be started."""
        self._loop = loop
        self._received = b""
        self.hear: Callable[[dict[str, Any]], None] = _ignore_event
        self.ended: Callable[[], None] = _ignore_end
        self.status: Optional[int] = None  # the wait status, once it has ended
        ours, theirs = _socket.socketpair()
        try:
            self.pid = spawn_process(work, output, theirs.fileno())
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._channel: Optional[_socket.socket] = ours
        ours.setblocking(False)
        loop.watch(ours.fileno(), self._listen)
        loop.watch_child(self.pid, self._note_end)

    @property
    def lives(self) -> bool:
        return self.status is None

    def hand(self, message: str, output: int) -> None:
        """Hands a worker one more task. Raises OSError when the worker does not take it."""
        if self._channel is None:
            raise BrokenPipeError("the worker has left")
        data = message.encode() + b"\n"
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, output.to_bytes(4, _BYTE_ORDER))]
        self._channel.settimeout(HAND_S)
        sent = self._channel.sendmsg([data], rights)
        if sent < len(data):
            self._channel.sendall(data[sent:])
        self._channel.setblocking(False)

    def signal(self, number: int) -> None:
        """Sends a signal to the process and its group."""
        if self.lives:
            send_signal(-self.pid, number)
            send_signal(self.pid, number)

    def kill(self) -> None:
        self.signal(_signal.SIGKILL)

    def drain(self) -> None:
        """Receives its last events."""
        while self._listen():
            pass

    def hang_up(self) -> None:
        """Closes the channel, at which a waiting worker leaves."""
        if self._channel is not None:
            self._loop.forget(self._channel.fileno())
            self._channel.close()
            self._channel = None

    def _note_end(self, status: int) -> None:
        self.status = status
        self.ended()

    def _listen(self) -> bool:
        """Receives some events; False when there are none now."""
        if self._channel is None:
            return False
        try:
            data = self._channel.recv(READ_BYTES_MAX)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.hang_up()
            return False
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            event = _parse_event(line)
            if event:
                self.hear(event)
        if len(self._received) > LINE_BYTES_MAX:
            self.hear(_TOO_LONG)
            self.hang_up()
        return True


def _parse_event(line: bytes) -> dict[str, Any]:
    """Parses an event of a process, which may be anything; {} for an invalid one."""
    try:
        event = parse_json(line.decode())
    except (ValueError, RecursionError):
        return {}
    if isinstance(event, dict):
        return event
    return {}


def _ignore_event(_: dict[str, Any]) -> None:
    """Ignores events of a worker between two tasks."""


def _ignore_end() -> None:
    """Ignores the end of a worker between two tasks."""


HAND_S = 5.0  # for a worker to take its next task
_BYTE_ORDER = sys.byteorder
_TOO_LONG = {
    "e": "error",
    "reason": "ResultInvalid",
    "message": "the task sent more than a result may hold",
}
