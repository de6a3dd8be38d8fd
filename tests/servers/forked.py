"""Commands of fleetctl as processes of their own, forked from one that has imported what they need:
a controller with an SDK takes most of a second of CPU to do that, and a command a tenth.

For tests in which how a process starts is not the point; what it does is the same.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.emulators.starting import imported_too, preload

HANG_S = 180.0
# What commands and controllers import, mostly there for the emulators by then.
COMMANDS = (
    "fleetctl.cli.main",
    "fleetctl.daemon.serve",
    "fleetctl.daemon.api",
    "fleetctl.daemon.adoption.adopt",
    "fleetctl.engine.engine",
    "fleetctl.manifest",
    "fleetctl.wiring.accounts",
    "fleetctl.providers.modal.provider",
    "tests.servers.shipped",
)
imported_too.extend(COMMANDS)


class Forked:
    """`fleetctl WORDS`, with files at its standard streams. What is used of subprocess.Popen."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        streams: Sequence[Path],
        directory: Path | None = None,
    ) -> None:
        """directory: where it runs; else where this process does."""
        context = multiprocessing.get_context("forkserver")
        preload(context)
        paths, place = [str(path) for path in streams], str(directory or os.getcwd())
        self._process = context.Process(
            target=_run, args=([*words], dict(env), place, paths), daemon=True
        )
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(["fleetctl"], timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)


def run(
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: str = "",
    directory: Path | None = None,
    hang_s: float = HANG_S,
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run, with what it wrote as text."""
    with tempfile.TemporaryDirectory() as place:
        streams = [Path(place, name) for name in ("stdin", "stdout", "stderr")]
        streams[0].write_text(stdin, "utf-8")
        command = Forked(words, env=env, streams=streams, directory=directory)
        try:
            code = command.wait(hang_s)
        except subprocess.TimeoutExpired:
            command.send_signal(signal.SIGKILL)
            raise
        out, talk = (path.read_text("utf-8") for path in streams[1:])
        return subprocess.CompletedProcess(["fleetctl", *words], code, out, talk)


def _run(words: list[str], variables: dict[str, str], directory: str, streams: list[str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(directory)
    for number, path in enumerate(streams):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_APPEND | os.O_CREAT
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as we live
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["fleetctl", *words]
    from fleetctl.cli.main import main

    sys.exit(main())
