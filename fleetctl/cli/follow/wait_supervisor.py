"""Makes sure while a command waits that a controller does the work; prints a way back when the user
leaves.

Called by wait, apply --wait, delete and logs -f.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetctl.cli.output.screen import Screen
from fleetctl.common.text import escape_line
from fleetctl.daemon.client.spawn import ControllerSupervision
from fleetctl.views.kinds import format_commands

INTERRUPTED = 130


class WaitSupervisor:
    """A ControllerSupervision that writes to a screen, and ends the line that is redrawn there."""

    def __init__(self, state_dir: Path, screen: Screen) -> None:
        self._screen = screen
        self._supervision = ControllerSupervision(state_dir, talk=screen.talk, warn=self._warn)
        self.check = self._supervision.check

    def __enter__(self) -> WaitSupervisor:
        return self

    def __exit__(self, *error: object) -> None:
        self._screen.close_line()

    def _warn(self, why: str, hint: str) -> None:
        self._screen.warn(why)
        self._screen.hint(hint)


def report_detached(
    keys: Sequence[str],
    come_back: str,
    screen: Screen,
    *,
    cancel: str = "",
) -> int:
    """Prints that only the watching ended, how to come back, how to cancel; returns the exit
    code."""
    screen.close_line()
    names = ", ".join(escape_line(key) for key in keys)
    screen.talk(f"detached; {names} goes on" if len(keys) == 1 else f"detached; {names} go on")
    screen.hint(f"come back: {escape_line(come_back)}")
    screen.hint(f"cancel: {cancel or escape_line(format_commands('delete', keys))}")
    return INTERRUPTED
