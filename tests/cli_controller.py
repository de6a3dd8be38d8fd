"""A stand-in for the controller's socket: answers each request with what a test says."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fleetctl.common.state_paths import SOCKET


@contextmanager
def controller(home: Path, respond: Callable[[bytes], bytes]) -> Iterator[list[bytes]]:
    """A listener that answers one request a connection; what it was asked."""
    home.mkdir(parents=True, exist_ok=True)
    asked: list[bytes] = []
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(home, os.O_RDONLY)
    listener.bind(f"/proc/self/fd/{folder}/{SOCKET}")
    listener.listen()

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # closed by the test
            with connection:
                line = b""
                while not line.endswith(b"\n"):
                    line += connection.recv(65536)
                asked.append(line)
                with suppress(BrokenPipeError):  # the client may have given up
                    connection.sendall(respond(line))

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        os.close(folder)
        (home / SOCKET).unlink()
        thread.join(10)
