"""While a command waits, see that a controller does the work; what to say when a person leaves.

Called by wait, apply --wait, delete and logs -f.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from fleetctl.cli.output.render import Screen
from fleetctl.common.deadline import Every
from fleetctl.common.text import safe
from fleetctl.daemon import spawn
from fleetctl.daemon.standstill import standstill
from fleetctl.views.kinds import commands

CHECK_EVERY_S = 1.0
INTERRUPTED = 130


class Supervisor:
    """Starts a controller when none runs, and again when it was killed.

    One that was told to stop stays down.
    """

    def __init__(self, place: Path, screen: Screen) -> None:
        self._place = place
        self._screen = screen
        self._turn = Every(CHECK_EVERY_S, first_s=0.0)
        self._began = False
        self._said = False

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._screen.close_line()

    def check(self) -> None:
        """Cheap enough for every turn of a loop: it looks once a second."""
        if not self._turn.due():
            return
        first, self._began = not self._began, True
        if spawn.holder(self._place) is not None:
            self._said = self._told_standstill()
        elif first:
            spawn.start(self._place)
        elif not spawn.ended_orderly(self._place):
            self._screen.talk("the controller was killed; starting it again")
            spawn.start(self._place)
        elif not self._said:
            self._said = True
            self._screen.talk(
                "the controller was stopped; nothing moves on until `fleetctl up --detach`"
            )

    def _told_standstill(self) -> bool:
        """Whether nothing can move on though a controller is there, which is said once."""
        found = standstill(self._place)
        if found is not None and not self._said:
            self._screen.warn(found.why)
            self._screen.hint(found.hint)
        return found is not None


def detached(keys: Sequence[str], come_back: str, screen: Screen, *, cancel: str = "") -> int:
    """Say that only the watching ended, how to come back, how to cancel; the exit code."""
    screen.close_line()
    names = ", ".join(safe(key) for key in keys)
    screen.talk(f"detached; {names} goes on" if len(keys) == 1 else f"detached; {names} go on")
    screen.hint(f"come back: {safe(come_back)}")
    screen.hint(f"cancel: {cancel or safe(commands('delete', keys))}")
    return INTERRUPTED
