"""A program called `fleetctl` for shells: each call of it is forked from a process that has
imported what commands need, which takes a tenth of the CPU of a Python of its own.

The program is CLIENT below: it hands its words, directory, environment and standard streams to the
process that `serve` runs in, and ends as the command does.
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import socket
import sys
import tempfile
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from tests.emulators.starting import preload
from tests.servers import forked

LENGTH_BYTES = 8
_lines: list[Connection] = []  # open as long as this process lives
CLIENT = f"""#!{sys.executable} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect(os.path.dirname(os.path.abspath(sys.argv[0])) + "/socket")
    about = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(line, [len(about).to_bytes({LENGTH_BYTES}, "big")], [0, 1, 2])
    line.sendall(about)
    os._exit(int(line.makefile().readline() or 255))
"""


@cache
def make_program_directory() -> Path:
    """A directory for PATH, which has the program until this process ends."""
    context = multiprocessing.get_context("forkserver")
    preload(context)
    directory = Path(tempfile.mkdtemp(prefix="fleetctl-program-"))
    program = directory / "fleetctl"
    program.write_text(CLIENT, "utf-8")
    program.chmod(0o755)
    ours, theirs = context.Pipe()
    context.Process(target=serve, args=(directory, theirs), daemon=True).start()
    theirs.close()
    assert ours.recv()
    _lines.append(ours)
    return directory


def serve(directory: Path, line: Connection) -> None:
    """Forks a command for each connection, until the process ends that `line` leads to. That may be
    killed, or end this one by a signal; in each case the directory is removed here.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel waits for them
    signal.signal(signal.SIGTERM, lambda *_: _end(directory))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "socket"))
        listener.listen()
        line.send(True)
        while listener in multiprocessing.connection.wait([listener, line]):
            connection, _ = listener.accept()
            with connection:
                if not os.fork():
                    listener.close()
                    _attend(connection)
    _end(directory)


def _end(directory: Path) -> NoReturn:
    shutil.rmtree(directory)
    os._exit(0)


def _attend(line: socket.socket) -> None:
    """Runs the command of one connection and sends its exit code. Never returns."""
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    head, streams, _, _ = socket.recv_fds(line, LENGTH_BYTES, 3)
    with line.makefile("rb") as rest:
        words, variables, directory = json.loads(rest.read(int.from_bytes(head, "big")))
    child = os.fork()
    if not child:
        line.close()
        forked.run_command(words, variables, directory, streams)
    _, status = os.waitpid(child, 0)
    # As a shell reports one that a signal ended.
    code = os.waitstatus_to_exitcode(status)
    line.sendall(f"{code if code >= 0 else 128 - code}\n".encode())
    os._exit(0)
