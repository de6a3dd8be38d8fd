"""While a command waits, see that a controller does the work; what to say when a person leaves.

Called by wait, apply --wait, delete and logs -f.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetctl.cli.output.render import Screen
from fleetctl.common.text import safe
from fleetctl.daemon.reach.supervision import Supervision
from fleetctl.views.kinds import commands

INTERRUPTED = 130


class Supervisor:
    """A Supervision that talks on a screen, and ends the line that is redrawn there."""

    def __init__(self, state_dir: Path, screen: Screen) -> None:
        self._screen = screen
        self._supervision = Supervision(state_dir, talk=screen.talk, warn=self._warn)
        self.check = self._supervision.check

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *error: object) -> None:
        self._screen.close_line()

    def _warn(self, why: str, hint: str) -> None:
        self._screen.warn(why)
        self._screen.hint(hint)


def detached(keys: Sequence[str], come_back: str, screen: Screen, *, cancel: str = "") -> int:
    """Say that only the watching ended, how to come back, how to cancel; the exit code."""
    screen.close_line()
    names = ", ".join(safe(key) for key in keys)
    screen.talk(f"detached; {names} goes on" if len(keys) == 1 else f"detached; {names} go on")
    screen.hint(f"come back: {safe(come_back)}")
    screen.hint(f"cancel: {cancel or safe(commands('delete', keys))}")
    return INTERRUPTED
