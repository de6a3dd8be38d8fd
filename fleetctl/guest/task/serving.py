"""A process that runs task after task while its sandbox is open, and gives each the surroundings of
a fresh process: directory, environment, signals.

The tasks' globals are kept in task.py. Surroundings are made before the first task: `withdraw`
comes after each task, so that its handlers and timers do not act while the process waits, and
`restore` before the next one.
"""

from __future__ import annotations

import _signal
import _warnings
import os
import sys

from fleetctl.guest.task.term import flush_stream

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Optional, TextIO, Tuple


CHANNEL = 3  # the descriptor between a task and its supervisor
RECEIVE_BYTES = 1024 * 1024

STREAMS = ("stdin", "stdout", "stderr")  # in the order of their descriptors
TIMERS = (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)


def serve_tasks(
    exit_code: int,
    run: Callable[[str], int],
    tell: Callable[[dict[str, Any]], None],
    surroundings: Surroundings,
) -> int:
    """Runs task after task, in the forked child, until the supervisor closes the channel; returns
    the last exit code.

    exit_code: of the task that has just ended. run: runs the order in a line of the supervisor, and
    returns its exit code. tell: sends an event to the supervisor. surroundings: as they were before
    the first task.
    """
    import _socket

    channel = _socket.socket(fileno=os.dup(CHANNEL))
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    while True:
        surroundings.withdraw()
        os.dup2(null, 1)
        os.dup2(null, 2)
        tell({"e": "done", "exit": exit_code})
        received = _receive_order(channel)
        if received is None:
            return 0
        line, output = received
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        surroundings.restore()
        exit_code = run(line)


def _receive_order(channel: Any) -> Optional[Tuple[str, int]]:
    """Returns the next order and the descriptor of its output; None when no more will come."""
    import _socket

    data, rights, _, _ = channel.recvmsg(RECEIVE_BYTES, _socket.CMSG_SPACE(4))
    if not data:
        return None
    parts = [data]
    while not parts[-1].endswith(b"\n"):
        parts.append(channel.recv(RECEIVE_BYTES))
        if not parts[-1]:
            return None
    return b"".join(parts).decode(), int.from_bytes(rights[0][2][:4], sys.byteorder)


class Surroundings:
    """The present surroundings. variables: the environment that all tasks share."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)
        self._environ = os.environ
        self._directory = os.getcwd()
        self._umask = os.umask(0o022)
        os.umask(self._umask)
        self._argv = list(sys.argv)
        self._warnings = list(_warnings.filters)
        self._handlers = _settable_handlers()
        self._blocked = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        self._stdin = os.dup(0)  # not inherited by programs
        self._streams = {name: getattr(sys, name) for name in STREAMS}

    def withdraw(self) -> None:
        """Resets all that could act, or be written, between two tasks."""
        for timer in TIMERS:
            _signal.setitimer(timer, 0.0)
        for number, handler in self._handlers.items():
            if _signal.getsignal(number) != handler:
                _signal.signal(number, handler)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._blocked)
        for number, (name, stream) in enumerate(self._streams.items()):
            left = getattr(sys, name, None)
            flush_stream(left)
            flush_stream(stream)
            # A stream that a task wrapped is closed with the wrapper, whenever that is collected.
            if left is not stream or not _is_as_made(stream, number):
                stream = self._streams[name] = _open_stream(number)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)

    def restore(self) -> None:
        """Prepares for the next task, whose own variables are still to be set. Raises OSError where
        the directory was removed.
        """
        os.dup2(self._stdin, 0)
        os.umask(self._umask)
        sys.argv = list(self._argv)
        if list(_warnings.filters) != self._warnings:
            self._restore_warnings()
        setattr(os, "environ", self._environ)  # noqa: B010 - a task may have put another one there
        os.environ.clear()
        os.environ.update(self._variables)
        try:
            os.chdir(self._directory)
        except OSError as error:
            raise OSError(
                f"the task cannot begin in `{self._directory}`: {error.strerror}; an earlier task"
                " of its sandbox may have removed it"
            ) from None

    def _restore_warnings(self) -> None:
        import warnings

        warnings.resetwarnings()  # makes each module warn again, too
        warnings.filters[:] = self._warnings  # type: ignore[index]


def _settable_handlers() -> dict[int, Any]:
    """Returns all that Python can set: handlers of other code are None there, and stay."""
    settable = _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}
    found = {int(number): _signal.getsignal(number) for number in settable}
    return {number: handler for number, handler in found.items() if handler is not None}


def _is_as_made(stream: Any, number: int) -> bool:
    """Returns whether no task has configured, closed or detached it."""
    try:
        if stream.closed or stream.fileno() != number:
            return False
        modes = (stream.encoding, stream.errors, stream.line_buffering, stream.write_through)
        return number == 0 or modes == ("utf-8", "backslashreplace", True, False)
    except (AttributeError, ValueError):
        return False


def _open_stream(number: int) -> TextIO:
    if number == 0:
        return open(0, encoding="utf-8", closefd=False)
    return open(
        number,
        "w",
        buffering=1,
        encoding="utf-8",
        errors="backslashreplace",
        closefd=False,
    )
