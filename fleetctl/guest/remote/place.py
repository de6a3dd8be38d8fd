"""The state directory in the sandbox, which is the working directory of every verb, and the
sandbox's preparation before its first task.

supervisor          locked by the living supervisor; its existence shows that a run has begun
leash               locked by the process outside that the sandbox must not outlive, if any
empty               there once the supervisor has ended and left no process
sock                where the supervisor listens
relay               where the relay of model calls listens, if there is one
runs/<run>.begun    the latch of a run
runs/<run>.jsonl    its journal; also a latch: its creator decides whether the run begins
runs/<run>.log      its output, with later parts beside it (see logfile.py)
runs/<run>.outputs  what is kept of its files, once its work has ended
runs/<run>.services the names of its services, where it has any; their output is in logs beside it
files/              files that tasks write for us: parameters, result, metrics
work/               the directory that tasks begin in

Beside the directory, with its name and `.idle`, is the pid of the sandbox's inert entrypoint where
there is one, which does without the directory.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import time

from fleetctl.guest.supervision.processes import is_held

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Optional


LOCK = "supervisor"
LEASH = "leash"
EMPTY = "empty"
SOCKET = "sock"
RUNS = "runs"
FILES = "files"
WORK = "work"
REACH_S, REACH_EVERY_S = 5.0, 0.01  # the lock's holder listens at once, and at its end no more


def enter_state_directory(directory: str) -> None:
    """Makes the state directory, readable by this user alone, and changes into it."""
    for path in (directory, os.path.join(directory, RUNS)):
        try:
            os.makedirs(path, 0o700)
        except FileExistsError:
            continue
    os.chdir(directory)


def idle_pid() -> str:
    return f"{os.getcwd()}.idle"


def begun_path(run: str) -> str:
    return f"{RUNS}/{run}.begun"


def outputs_path(run: str) -> str:
    return f"{RUNS}/{run}.outputs"


def services_path(run: str) -> str:
    return f"{RUNS}/{run}.services"


def create_latch(path: str) -> bool:
    """Makes the file; returns False when it existed."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True


def lock_supervisor() -> Optional[int]:
    """Returns the descriptor that makes this process, and its children, the supervisor; None when
    there is or was another supervisor: a sandbox has one in its life.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        handle = os.open(LOCK, flags, 0o600)
    except FileExistsError:
        return None
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def is_supervised() -> bool:
    """Returns whether the supervisor lives."""
    return is_held(LOCK)


def reach_supervisor() -> Optional[_socket.socket]:
    """Connects to the supervisor, which may be about to listen; None when it takes no more work."""
    until_s = time.monotonic() + REACH_S
    while True:
        line = connect_supervisor()
        # A file that is neither locked nor written is about to be locked by its creator.
        comes = is_supervised() or os.stat(LOCK).st_size == 0
        if line is not None or not comes or time.monotonic() > until_s:
            return line
        time.sleep(REACH_EVERY_S)


def connect_supervisor() -> Optional[_socket.socket]:
    """Connects to the supervisor; None when it does not listen."""
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        line.connect(SOCKET)
    except OSError:
        line.close()
        return None
    return line


def start_directory(order: dict[str, Any]) -> str:
    """Returns where the program of an order begins: in its source, or in the work directory."""
    source = order["source"]
    start = source["dir"] if source else os.path.abspath(WORK)
    if order["workdir"]:
        return os.path.join(start, order["workdir"])
    return str(start)


def prepare_sandbox(order: dict[str, Any]) -> None:
    """Prepares the sandbox. Raises OSError with a message for the user."""
    for path in (FILES, WORK):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
    for volume in order["volumes"]:
        for link in volume["links"]:
            _link_volume(link, volume["mount"])


def _link_volume(path: str, mount: str) -> None:
    """Makes `path` lead to a volume. Replaces an empty directory of the image."""
    if os.path.islink(path) and os.readlink(path) == mount:
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        os.symlink(mount, path)
    except OSError as error:
        raise OSError(
            f"`{path}` cannot become a link to the volume at `{mount}`: {error.strerror};"
            " in the image it must be missing or an empty directory"
        ) from None
