"""The zygote: one warm process an interpreter, from which the supervisor of every job is forked.

A new interpreter costs each job ten times what a fork does. The zygote lives as long as the
controller that started it, and has no other work: each byte that arrives on its stdin brings one
end of a socket, and the fork that gets it learns from there whose supervisor it is. A fork must
inherit no data of another job, so the zygote itself never reads any. Its death ends no supervisor.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
from types import ModuleType
from typing import NoReturn, Optional

from . import starting
from .isolation import spaces, syscalls

WARM_RUNS = 20  # after this number the interpreter has stopped rewriting its own code
STDIN = 0
IN_NAMESPACES = b"n"  # requests a supervisor in new namespaces; any other byte, one in ours
DESCRIPTORS_MAX = 1  # that come with a byte


def main(guest_path: str) -> None:
    os.umask(0o077)
    line = socket.socket(fileno=os.dup(STDIN))
    starting.silence_output()
    guest = _load_guest(guest_path)
    _open_streams()
    _warm_up(guest)
    starting.forget_own_modules()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects supervisors that have ended
    while True:
        message, descriptors, _, _ = socket.recv_fds(line, 1, DESCRIPTORS_MAX)
        if not message:
            os._exit(0)
        for descriptor in descriptors:
            _fork_supervisor(line, descriptor, guest, message)


def _open_streams() -> None:
    """Replaces stdout and stderr by streams that are made over a pipe: a stream remembers whether
    its file could seek, and one made over a seekable file cannot be reconfigured by a task later.
    """
    readable, writable = os.pipe()
    for number, name in ((1, "stdout"), (2, "stderr")):
        saved = os.dup(number)
        os.dup2(writable, number)
        stream = open(
            number,
            "w",
            buffering=1,
            encoding="utf-8",
            errors="backslashreplace",
            closefd=False,
        )
        os.dup2(saved, number)
        os.close(saved)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.close(readable)
    os.close(writable)


def _fork_supervisor(
    line: socket.socket,
    descriptor: int,
    guest: ModuleType,
    mode: bytes,
) -> None:
    user = os.getuid(), os.getgid()
    try:
        pid, born = _fork_namespaced(mode)
        if pid == 0:
            line.close()
            _become_supervisor(descriptor, guest, user if born else None)
    except OSError as error:  # no process to be had: the other end sees that its socket closes
        os.write(2, f"a supervisor cannot be forked: {error}\n".encode())
    finally:
        os.close(descriptor)


def _fork_namespaced(mode: bytes) -> tuple[int, bool]:
    """Returns (pid as os.fork does, whether the child is in new namespaces). Raises OSError."""
    if mode == IN_NAMESPACES:
        try:
            return syscalls.fork_into_namespaces(), True
        except OSError:
            return os.fork(), False  # the supervisor reports why namespaces failed
    return os.fork(), False


def _become_supervisor(
    descriptor: int,
    guest: ModuleType,
    user: Optional[tuple[int, int]],
) -> NoReturn:
    """Serves as a supervisor until it ends. user: (uid, gid) to keep in new namespaces, or None."""
    try:
        os.setsid()
        if user is not None:
            spaces.be_the_same(*user)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        starting.main(
            socket.socket(fileno=os.dup(descriptor)), guest, in_namespaces=user is not None
        )
    except BaseException:  # no error may climb back into the zygote's loop
        import traceback

        os.write(2, traceback.format_exc().encode())
    os._exit(70)


def _load_guest(path: str) -> ModuleType:
    guest = ModuleType("fleetctl_guest")
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), guest.__dict__)  # our own file
    return guest


def _warm_up(guest: ModuleType) -> None:
    """Runs one task here: all modules and memory that it needs first are then shared by all
    forks.
    """
    main = sys.modules["__main__"]
    sandbox = guest.Sandbox([])
    for _ in range(WARM_RUNS):
        sandbox.run("SUBMIT(warm=[1, 2.5, None])", {"a": 1}, json.dumps)
    sys.modules["__main__"] = main
    # Not `threading`: its work after a fork costs each task more than the rest of its start.
    for name in ("atexit", "linecache", "traceback"):
        importlib.import_module(name)
