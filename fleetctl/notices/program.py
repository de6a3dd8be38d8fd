"""A notice to a program of this machine, on its standard input. Blocking; send.py gives it
a thread.

It gets none of the controller's environment but what says where it is: keys of accounts are there.
What it prints goes nowhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from fleetctl.notices.outcome import TAKEN, Outcome

PROGRAM_S = 25.0  # from its start; then all of its session is killed
# What desktops and shells need to find their things.
KEPT = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "DISPLAY",
    "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip


class Program:
    def __init__(self, argv: Sequence[str], text: str, environ: Mapping[str, str]) -> None:
        self._argv, self._text = argv, text
        self._env = {name: environ[name] for name in KEPT if name in environ}
        self._process: subprocess.Popen[str] | None = None

    def __call__(self) -> Outcome:
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
            return Outcome(f"`{name}` cannot be started: {error.strerror}")
        try:
            self._process.communicate(self._text, timeout=PROGRAM_S)
        except subprocess.TimeoutExpired:
            self.cut()
            self._process.wait()
            return Outcome(f"`{name}` was killed: it took longer than {PROGRAM_S:g} s")
        code = self._process.returncode
        if code < 0:
            return Outcome(f"`{name}` was ended by {signal.Signals(-code).name}")
        return Outcome(f"`{name}` ended with exit code {code}") if code else TAKEN

    def cut(self) -> None:
        """End it and what it began, if it still runs."""
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
