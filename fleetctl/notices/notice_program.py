"""Passes a notice to a program of this machine, on its standard input. Blocking; send.py gives it a
thread.

It gets only the environment variables that describe this machine: the others hold keys of accounts.
Its output is discarded.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from fleetctl.notices.sink_outcome import TAKEN, SinkOutcome

PROGRAM_S = 25.0  # from its start; then all of its session is killed
# Variables that desktops and shells need.
KEPT = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "DISPLAY",
    "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip


class NoticeProgram:
    def __init__(
        self,
        argv: Sequence[str],
        text: str,
        environ: Mapping[str, str],
    ) -> None:
        self._argv = argv
        self._text = text
        self._env = {name: environ[name] for name in KEPT if name in environ}
        self._process: subprocess.Popen[str] | None = None

    def __call__(self) -> SinkOutcome:
        name = self._argv[0]
        try:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self._env.get("HOME", "/"),
                env=self._env,
                start_new_session=True,
                text=True,
            )
        except OSError as error:
            return SinkOutcome(f"`{name}` cannot be started: {error.strerror}")
        try:
            self._process.communicate(self._text, timeout=PROGRAM_S)
        except subprocess.TimeoutExpired:
            self.cut()
            self._process.wait()
            return SinkOutcome(f"`{name}` was killed: it took longer than {PROGRAM_S:g} s")
        code = self._process.returncode
        if code < 0:
            return SinkOutcome(f"`{name}` was ended by {signal.Signals(-code).name}")
        if code:
            return SinkOutcome(f"`{name}` exited with code {code}")
        return TAKEN

    def cut(self) -> None:
        """Ends the program and its children, if it still runs."""
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
