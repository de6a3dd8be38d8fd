"""Names the server that the commands of this process work with, instead of the state directory, and
the frames of a command's streams over a websocket.

The command line's entry point sets the server; it is read where a store, a log or the controller's
socket would be opened.

In a websocket of `exec` the client's first message is the command. Input is sent as far as the
command takes it: the server reports how much it took, and never has more than WINDOW_BYTES of
input; output waits for its reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

STDIN, STDOUT, STDERR = 0, 1, 2
PIECE_BYTES = 64 * 1024
WINDOW_BYTES = 256 * 1024  # of input that the command has not taken
MESSAGE_BYTES_MAX = 1024 * 1024  # of one frame; a command with its arguments is one
EXEC_PATH = "/api/v1/exec"


class RemoteLog(Protocol):
    """The output of a run, as providers/rundir/run_log_reader.py reads it from disk."""

    def read(self, offset: int) -> tuple[bytes, int]: ...
    def times(self) -> list[tuple[int, float]]: ...
    def exists(self) -> bool: ...
    def past_s(self) -> float | None: ...


class RemoteFleet(Protocol):
    """A server, with what the verbs need of it."""

    url: str

    def reader(self) -> Any:
        """Returns the rows of its store, with the methods of stores/read/reader.py."""
        ...

    def send(self, message: Mapping[str, object]) -> dict[str, object]:
        """Returns the controller's reply to a request, also a refusing one."""
        ...

    def sql(self, timeout_s: float | None) -> Any:
        """Returns its views for SQL, with the methods of stores/read/query.py."""
        ...

    def log(self, run: str, node: int, service: str) -> RemoteLog: ...

    def outputs(self, run: str) -> Any:
        """Returns the outputs that are kept of a run, as providers/rundir/kept_outputs.py has
        them; None without any."""
        ...


REMOTE: ContextVar[RemoteFleet | None] = ContextVar("remote", default=None)
