"""While somebody waits, see that a controller does the work.

Called by the verbs that wait and by the Python client.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetctl.common.deadline import Every
from fleetctl.daemon.reach import spawn
from fleetctl.daemon.reach.standstill import standstill

CHECK_EVERY_S = 1.0


class Supervision:
    """Starts a controller when none runs, and again when it was killed.

    One that was told to stop stays down. talk: hears a sentence on that; warn: a sentence and a
    hint on why nothing can move on.
    """

    def __init__(
        self, state_dir: Path, *, talk: Callable[[str], None], warn: Callable[[str, str], None]
    ) -> None:
        self._place, self._talk, self._warn = state_dir, talk, warn
        self._turn = Every(CHECK_EVERY_S, first_s=0.0)
        self._began = False
        self._said = False

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
            self._talk("the controller was killed; starting it again")
            spawn.start(self._place)
        elif not self._said:
            self._said = True
            self._talk("the controller was stopped; nothing moves on until `fleetctl up --detach`")

    def _told_standstill(self) -> bool:
        """Whether nothing can move on though a controller is there, which is said once."""
        found = standstill(self._place)
        if found is not None and not self._said:
            self._warn(found.why, found.hint)
        return found is not None
