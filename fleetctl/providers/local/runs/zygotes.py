"""Zygotes: one a Python of this controller, from which supervisors are forked
(supervisor/zygote.py).

Called by supervisors.py alone. A zygote ends when we close its stdin, also by dying; no run is lost
with it, and the next supervisor brings another.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fleetctl.common.errors import Unavailable
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.local.runs.supervisor_messages import guest_file
from fleetctl.providers.paths import make_private

PACKAGE = Path(__file__).parents[1] / "supervisor"
IN_NAMESPACES = b"n"
AS_IT_IS = b"-"
IDLE_S = 60.0  # without a new supervisor; the next one pays a start of Python then
LOG_BYTES_MAX = 1024 * 1024  # then it begins again
LEND_TRIES = 2  # a zygote may have been killed since it was last used


@dataclass(slots=True)
class Zygote:
    """A zygote that lives, as far as we know."""

    process: subprocess.Popen[bytes]
    line: socket.socket
    used_at_s: float


class Zygotes:
    def __init__(self, layout: LocalLayout) -> None:
        self._layout = layout
        self._living: dict[str, Zygote] = {}  # by interpreter
        self._ended: list[subprocess.Popen[bytes]] = []  # to be collected
        self._looking: asyncio.TimerHandle | None = None

    def fork(self, python: str, *, in_namespaces: bool) -> socket.socket:
        """Returns a connection to a new fork, which waits for its supervisor's config. Raises
        Unavailable.

        in_namespaces: born in new ones, if that can be had; it cannot leave them.
        """
        how = IN_NAMESPACES if in_namespaces else AS_IT_IS
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ExitStack() as unless_lent, theirs:
            unless_lent.callback(ours.close)
            for _ in range(LEND_TRIES):
                try:
                    socket.send_fds(self._zygote(python).line, [how], [theirs.fileno()])
                except OSError:  # it was killed, or does not read
                    self.let_go(python)
                    continue
                unless_lent.pop_all()
                return ours
        raise Unavailable(f"`{python}` did not start: it ends (see {self.log})", retry_after_s=5.0)

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for python in list(self._living):
            self.let_go(python)
        for process in self._ended:
            process.kill()  # which ends no supervisor
            process.wait()

    def _zygote(self, python: str) -> Zygote:
        zygote = self._living.get(python)
        now_s = asyncio.get_running_loop().time()
        if zygote is None:
            zygote = self._living[python] = self._start(python, now_s)
        zygote.used_at_s = now_s
        self._look_later()
        return zygote

    def _start(self, python: str, now_s: float) -> Zygote:
        """Starts a zygote. Raises Unavailable. Errors in it are seen by its first fork."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        # Not through asyncio: it would wait for the process when its loop closes.
        with theirs, self.log.open("wb" if self._log_is_full() else "ab") as log:
            try:
                process = subprocess.Popen(
                    [python, "-I", "-X", "utf8", str(PACKAGE), str(guest_file(self._layout))],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,
                    cwd="/",
                    env=_zygote_environment(),
                )
            except OSError as error:
                ours.close()
                raise Unavailable(
                    f"`{python}` cannot be started: {error}", retry_after_s=5.0
                ) from error
        return Zygote(process, ours, now_s)

    @property
    def log(self) -> Path:
        return make_private(self._layout.root) / "zygotes.log"

    def _log_is_full(self) -> bool:
        return self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX

    def let_go(self, python: str) -> None:
        """The next fork is of another one."""
        zygote = self._living.pop(python, None)
        if zygote is not None:
            zygote.line.close()
            self._ended.append(zygote.process)

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(IDLE_S, self._look)

    def _look(self) -> None:
        """Closes unused zygotes, and collects ended ones."""
        self._looking = None
        idle_since_s = asyncio.get_running_loop().time() - IDLE_S
        for python, zygote in list(self._living.items()):
            if zygote.used_at_s <= idle_since_s:
                self.let_go(python)
        self._ended = [process for process in self._ended if process.poll() is None]
        if self._living or self._ended:
            self._look_later()


def _zygote_environment() -> dict[str, str]:
    """Returns the variables that supervisors themselves need; runs get none of them."""
    names = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    # Symbols bound now are bound for all processes that are forked.
    return {**kept, "LD_BIND_NOW": "1"}
