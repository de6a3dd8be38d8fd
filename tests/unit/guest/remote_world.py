"""A sandbox as the guest of remote sandboxes sees it: a directory, and processes that run its
file. Shared by the tests of both guests.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetctl.guest.ship.library import order_argument
from fleetctl.providers.rundir.run_journal import RunJournal, parse_complete

FOR_EVER_S = 300.0  # far more than anything here takes; only a bug waits for it
JOURNAL = ("started", "metric", "metrics", "load", "result", "ended", "closed")


@dataclass
class Story:
    """What an attach wrote, frame by frame."""

    code: int = 0
    frames: list[dict[str, Any]] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)  # of the journal
    log: bytes = b""

    def take(self, line: bytes) -> None:
        frame = json.loads(line)
        self.frames.append(frame)
        if frame["e"] in JOURNAL:
            self.lines.append(line)
        elif frame["e"] == "log" and "of" not in frame:
            data = bytes_of(frame)
            self.log = self.log.ljust(frame["at"], b"\0") + data

    @property
    def journal(self) -> bytes:
        return b"".join(self.lines)

    @property
    def kinds(self) -> list[str]:
        return [frame["e"] for frame in self.frames]

    @property
    def parsed(self) -> RunJournal:
        return parse_complete(self.journal)

    @property
    def ended(self) -> dict[str, Any]:
        return next(frame for frame in self.frames if frame["e"] == "ended")


class Attached:
    """A living `attach`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.story = Story()
        self._rest = b""

    def until(self, true: Callable[[Story], bool]) -> Story:
        """Read frames until `true(story)`; fails when the stream ends before."""
        deadline = time.monotonic() + FOR_EVER_S
        while not true(self.story):
            assert time.monotonic() < deadline, self.story
            assert self._read(deadline - time.monotonic()), self.story
        return self.story

    def rest(self) -> Story:
        """Read to the end of the stream."""
        while self._read(FOR_EVER_S):
            pass
        self.story.code = self.process.wait(FOR_EVER_S)
        return self.story

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _read(self, wait_s: float) -> bool:
        assert self.process.stdout is not None
        handle = self.process.stdout.fileno()
        poller = select.poll()  # `select` takes no descriptor above 1,023
        poller.register(handle, select.POLLIN)
        assert poller.poll(wait_s * 1000), self.story
        data = os.read(handle, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.story.take(line + b"\n")
        return bool(data)


@dataclass
class Box:
    """program: how the guest is run, such as ("python3", "-I", "-S", "guest.py")."""

    program: tuple[str, ...]
    directory: Path
    posix: bool = False  # the guest without Python
    path: str = field(default_factory=lambda: os.environ["PATH"])

    def order(self, **changes: Any) -> dict[str, Any]:
        order: dict[str, Any] = {
            "run": "run-0",
            "index": 0,
            "attempt": 1,
            "mode": "exec",
            "code": None,
            "argv": ["true"],
            "params": {},
            "env": {},
            "secret_names": [],
            "timeout_s": None,
            "grace_s": 5.0,
            "workdir": None,
            "volumes": [],
            "source": None,
            "sync": [],
            "sync_s": None,
            "reusable": False,
            "log_bytes_max": 1 << 26,
            "linger_s": 0.0,
            "identity": {"keeper": "sb-1", "note": "remote"},
            "memory": None,
            "setup": [],
        }
        return {**order, **changes}

    def attach(
        self,
        order: dict[str, Any] | None = None,
        *,
        run: str = "run-0",
        journal: int = 0,
        log: int = 0,
        env: dict[str, str] | None = None,
        stay: bool = False,
    ) -> Attached:
        argv = ["attach", "--run", order["run"] if order else run]
        argv += ["--journal", str(journal), "--log", str(log)]
        if order is not None:
            argv += ["--order", order_argument(order, posix=self.posix)]
        argv += ["--stay", "yes"] if stay else []
        return Attached(self.verb(*argv, env=env))

    def told(self, order: dict[str, Any], *, env: dict[str, str] | None = None) -> Story:
        """The whole story of a run that ends by itself."""
        return self.attach(order, env=env).rest()

    def script(self, text: str, **changes: Any) -> Story:
        return self.told(self.order(argv=["sh", "-c", text], **changes))

    def python(self, code: str, **changes: Any) -> Story:
        return self.told(self.order(mode="python", argv=[], code=code, **changes))

    def verb(
        self, *argv: str, env: dict[str, str] | None = None, piped: bool = False
    ) -> subprocess.Popen[bytes]:
        """piped: with a stdin that can be written to."""
        argv = (argv[0], "--dir", str(self.directory), *argv[1:])
        return subprocess.Popen(
            [str(shutil.which(self.program[0], path=self.path)), *self.program[1:], *argv],
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={"PATH": self.path, "HOME": "/", **(env or {})},
        )

    def stop(self, *, grace_s: float, run: str = "run-0") -> None:
        assert self.verb("stop", "--run", run, "--grace", str(grace_s)).wait(FOR_EVER_S) == 0

    def leave(self) -> None:
        assert self.verb("leave").wait(FOR_EVER_S) == 0

    @property
    def supervisor(self) -> int:
        """Its pid, once there is one."""
        return int(wait_for(lambda: read_text(self.directory / "supervisor")))

    def clean_up(self) -> None:
        """End what a test that failed may have left running."""
        if read_text(self.directory / "supervisor"):
            self.leave()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        """All that run in the name of a run of this box, or look after one."""
        marks = [f"={self.directory}/".encode(), str(self.directory).encode() + b"\0"]
        found = []
        for pid in all_pids():
            text = read_bytes(Path(f"/proc/{pid}/environ")) + read_bytes(
                Path(f"/proc/{pid}/cmdline")
            )
            if any(mark in text for mark in marks) and pid != os.getpid():
                found.append(pid)
        return found


def all_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def wait_for(ask: Callable[[], Any]) -> Any:
    """The first answer that is true."""
    deadline = time.monotonic() + FOR_EVER_S
    while not (answer := ask()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return answer


def read_text(path: Path) -> str:
    return read_bytes(path).decode()


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def bytes_of(frame: dict[str, Any]) -> bytes:
    return base64.b64decode(frame["b64"]) if "b64" in frame else bytes.fromhex(frame["hex"])
