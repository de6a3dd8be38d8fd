"""Commands of fleetctl as processes of their own, forked from one that has imported what they need:
a controller with an SDK takes most of a second of CPU to do that, and a command a tenth.

For tests in which how a process starts is not the point; what it does is the same. A controller
that such a command starts is a fork, too.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from fleetctl.common.state_paths import LOG
from tests.authorities import forget_authorities
from tests.emulators.starting import imported_too, preload

HANG_S = 180.0
PYTHONS_OWN_THRESHOLDS = gc.get_threshold()
# What commands and controllers import, mostly there for the emulators by then.
COMMANDS = (
    "fleetctl.cli.main",
    "fleetctl.cli.apply.apply",
    "fleetctl.cli.apply.plans.plan",
    "fleetctl.cli.apply.validate",
    "fleetctl.cli.system.controller",
    "fleetctl.daemon.serve",
    "fleetctl.daemon.api",
    "fleetctl.daemon.adopt",
    "fleetctl.engine.engine",
    "fleetctl.manifest",
    "fleetctl.wiring.account_registry",
    "fleetctl.gitops.git_keeper",
    "fleetctl.notices.send",
    "fleetctl.providers.daytona.daytona_provider",
    "fleetctl.providers.endpoint.endpoint_provider",
    "fleetctl.providers.kubernetes.kubernetes_provider",
    "fleetctl.providers.local.local_provider",
    "fleetctl.providers.modal.modal_provider",
    "fleetctl.stores.sqlite.store",
    "tests.servers.imported",
    "tests.servers.shipped",
)
# And this module, which pickle would else import in each command.
imported_too.extend((*COMMANDS, __name__))
SERVERS = frozenset({"serve", "mcp"})


class Forked:
    """`fleetctl WORDS`, with files at its standard streams. What is used of subprocess.Popen."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        streams: Sequence[Path],
        directory: Path | None = None,
        leads: bool = False,
    ) -> None:
        """directory: where it runs; else where this process does. leads: a session of its own."""
        context = multiprocessing.get_context("forkserver")
        preload(context)
        paths, place = [str(path) for path in streams], str(directory or os.getcwd())
        self._process = context.Process(
            target=_run, args=([*words], dict(env), place, paths, leads), daemon=True
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


def start_controller(home: Path, *, idle_exit_s: float | None) -> tuple[Forked, int]:
    """As `spawn` starts one for a command in this process, but for the Python of its own."""
    from fleetctl.daemon.client import spawn

    with spawn._open_log(home) as log:
        log_at = log.seek(0, os.SEEK_END)
    env = {**os.environ, "FLEETCTL_HOME": str(home)}
    streams = [Path(os.devnull), home / LOG, home / LOG]
    words = _words_of_controller(idle_exit_s)
    return Forked(words, env=env, streams=streams, directory=home, leads=True), log_at


def _run(
    words: list[str], variables: dict[str, str], directory: str, paths: list[str], leads: bool
) -> None:
    if leads:
        os.setsid()
    streams = [os.open(paths[0], os.O_RDONLY)]
    for path in paths[1:]:
        streams.append(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    run_command(words, variables, directory, streams)


def run_command(
    words: Sequence[str], variables: Mapping[str, str], directory: str, streams: Sequence[int]
) -> NoReturn:
    """Becomes that command, with these descriptors as its standard streams."""
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(directory)
    for number, opened in enumerate(streams):
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as we live
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["fleetctl", *words]
    from fleetctl.cli.main import main
    from fleetctl.daemon.client import spawn

    forget_authorities()
    if not SERVERS.intersection(words[:1]):
        # A server has threads and sockets of its own, which a fork of it must not have.
        spawn._spawn_controller = _fork_controller  # type: ignore[assignment]
    sys.exit(main())


@dataclass(slots=True)
class _Child:
    """A fork of this process; of subprocess.Popen the one method that is called."""

    pid: int
    code: int | None = None

    def poll(self) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code


def _fork_controller(home: Path, *, idle_exit_s: float | None) -> tuple[_Child, int]:
    """As `spawn` starts one, but for the Python of its own."""
    from fleetctl.daemon.client import spawn

    words = _words_of_controller(idle_exit_s)
    with spawn._open_log(home) as log:
        log_at = log.seek(0, os.SEEK_END)
        child = os.fork()
        if not child:
            try:
                os.setsid()
                gc.set_threshold(*PYTHONS_OWN_THRESHOLDS)  # a command has others
                null, output = os.open(os.devnull, os.O_RDONLY), os.dup(log.fileno())
                streams = (null, output, os.dup(output))
                run_command(words, {**os.environ, "FLEETCTL_HOME": str(home)}, str(home), streams)
            except SystemExit as end:
                _flush_and_exit(end.code)
    return _Child(child), log_at


def _words_of_controller(idle_exit_s: float | None) -> list[str]:
    return ["up"] if idle_exit_s is None else ["up", "--idle-exit", f"{idle_exit_s:.3f}"]


def _flush_and_exit(code: object) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)
