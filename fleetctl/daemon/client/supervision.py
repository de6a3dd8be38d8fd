"""Keeps a controller at work while a command waits.

Called by the verbs that wait and by the Python client.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetctl.common.deadline import RepeatTimer
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.stall_reason import find_stall_reason

CHECK_EVERY_S = 1.0


class ControllerSupervision:
    """Starts a controller when there is none, and again when it was killed.

    A controller that the user stopped is not started. talk: receives a sentence about that; warn:
    a sentence and a hint about a standstill.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        talk: Callable[[str], None],
        warn: Callable[[str, str], None],
    ) -> None:
        self._place = state_dir
        self._talk = talk
        self._warn = warn
        self._turn = RepeatTimer(CHECK_EVERY_S, first_s=0.0)
        self._began = False
        self._said = False

    def check(self) -> None:
        """Checks at most once a second, so that a loop may call it in every turn."""
        if not self._turn.due():
            return
        first = not self._began
        self._began = True
        if spawn.find_holder_pid(self._place) is not None:
            self._said = self._told_standstill()
        elif first:
            spawn.start_controller(self._place)
        elif not spawn.ended_orderly(self._place):
            self._talk("the controller was killed; starting it again")
            spawn.start_controller(self._place)
        elif not self._said:
            self._said = True
            self._talk("the controller was stopped; nothing moves on until `fleetctl up --detach`")

    def _told_standstill(self) -> bool:
        """Returns true for a standstill in spite of a controller, which is reported once."""
        found = find_stall_reason(self._place)
        if found is not None and not self._said:
            self._warn(found.why, found.hint)
        return found is not None
