"""A gate that tasks wait at until the test opens it, so that what a test does between their
beginning and their end is never late. Sandboxes of emulators share this machine's network.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# A port that is bound and does not listen refuses, and nobody else can take it.
WAIT = """
import socket, time
while True:
    try:
        socket.create_connection(("127.0.0.1", {port})).close()
        break
    except OSError:
        time.sleep(0.05)
"""


@dataclass(frozen=True, slots=True)
class Gate:
    door: socket.socket

    def python(self) -> str:
        """A part of a task, which ends once the gate is open."""
        return WAIT.format(port=self.door.getsockname()[1])

    def open(self) -> None:
        self.door.listen(128)

    def passed(self, tasks: int) -> None:
        """Until so many have."""
        for _ in range(tasks):
            self.door.accept()[0].close()


@contextmanager
def gate() -> Iterator[Gate]:
    with socket.socket() as door:
        door.settimeout(120.0)  # against a hang alone
        door.bind(("127.0.0.1", 0))
        yield Gate(door)
