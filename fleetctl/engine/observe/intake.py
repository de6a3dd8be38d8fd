"""Messages become records: each is taken by the room that knows its sort.

Called by a tick inside its transaction, before any pass. What was answered to our calls is in
replies.py, what was seen in observations.py, what both write in records.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine.observe.observations import Observations
from fleetctl.engine.observe.replies import Answers
from fleetctl.engine.shared.messages import AssetReplied, Message, Observed

if TYPE_CHECKING:
    from fleetctl.tracking.track import Track


class Intake:
    def __init__(self, answers: Answers, observations: Observations) -> None:
        self._answers = answers
        self._observations = observations

    def observe(self, track: Track, message: Message, now_s: float) -> bool:
        """True when the resource, of which the message speaks, must be looked at because of it."""
        match message:
            case AssetReplied():
                return self._answers.of_asset(track, message, now_s)
            case Observed():
                return self._observations.take(track, message)
            case _:
                return self._answers.of_call(track, message, now_s)
