"""A program called `fleetctl` for shells: each call of it is forked from a process that has
imported what commands need, which takes a tenth of the CPU of a Python of its own.

The program is CLIENT below: it hands its words, directory, environment and standard streams to the
process that `serve` runs in, passes SIGTERM on to the command, and ends as that does.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from tests.emulators.starting import FREEZES, REPOSITORY, preload
from tests.servers import forked

LENGTH_BYTES = 8
PYTHON = Path(sys.executable)
_lines: list[Connection] = []  # open as long as this process lives
CLIENT = f"""#!{sys.executable} -IS
import json, os, signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
with socket.socket(socket.AF_UNIX) as line:
    line.connect(os.path.dirname(os.path.abspath(sys.argv[0])) + "/socket")
    about = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(line, [len(about).to_bytes({LENGTH_BYTES}, "big")], [0, 1, 2])
    line.sendall(about)
    reply = line.makefile()
    command = int(reply.readline() or os._exit(255))
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(command, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    os._exit(int(reply.readline() or 255))
"""


@cache
def make_program_directory(*imports: str) -> Path:
    """A directory for PATH, which has the program until this process ends.

    imports: modules beside those of forked.py that the commands need.
    """
    context = multiprocessing.get_context("forkserver")
    preload(context)
    directory = Path(tempfile.mkdtemp(prefix="fleetctl-program-"))
    _write_program(directory)
    ours, theirs = context.Pipe()
    context.Process(target=serve, args=(directory, theirs, imports), daemon=True).start()
    theirs.close()
    assert ours.recv()
    _lines.append(ours)
    return directory


@contextmanager
def open_program_of(source: Path, python: Path = PYTHON) -> Iterator[Path]:
    """Yields such a directory for the fleetctl whose packages are in `source`, not this one, by a
    Python that may have further packages.
    """
    with tempfile.TemporaryDirectory(prefix="fleetctl-program-") as place:
        directory = Path(place, "bin")
        directory.mkdir()
        _write_program(directory)
        ours, theirs = multiprocessing.Pipe()
        words = [str(python), "-P", "-m", __name__, str(directory), str(theirs.fileno())]
        env = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{REPOSITORY}"}
        server = subprocess.Popen(words, env=env, pass_fds=[theirs.fileno()])
        theirs.close()
        assert ours.recv()
        yield directory
        ours.close()
        server.wait()


def _write_program(directory: Path) -> None:
    program = directory / "fleetctl"
    program.write_text(CLIENT, "utf-8")
    program.chmod(0o755)


def serve(directory: Path, line: Connection, imports: Sequence[str]) -> None:
    """Forks a command for each connection, until the process ends that `line` leads to. That may be
    killed, or end this one by a signal; in each case the directory is removed here.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel waits for them
    signal.signal(signal.SIGTERM, lambda *_: _end(directory))
    for module in imports:
        importlib.import_module(module)
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
    line.sendall(f"{child}\n".encode())
    _, status = os.waitpid(child, 0)
    # As a shell reports one that a signal ended.
    code = os.waitstatus_to_exitcode(status)
    line.sendall(f"{code if code >= 0 else 128 - code}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Connection(int(sys.argv[2])), (*forked.COMMANDS, FREEZES))
