"""Facts become records: each is taken by the room that knows its sort.

Called by a turn inside its transaction, before any pass. What was answered to our calls is in
replies.py, what was seen in observations.py, what both write in decide/records.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine.messages import AssetReplied, Fact, Observed
from fleetctl.engine.observe.observations import Sightings
from fleetctl.engine.observe.replies import Answers

if TYPE_CHECKING:
    from fleetctl.tracking.track import Track


class Absorber:
    def __init__(self, answers: Answers, sightings: Sightings) -> None:
        self._answers = answers
        self._sightings = sightings

    def absorb(self, track: Track, fact: Fact, now_s: float) -> bool:
        """True when the resource, of which the fact speaks, must be looked at because of it."""
        match fact:
            case AssetReplied():
                return self._answers.of_asset(track, fact, now_s)
            case Observed():
                return self._sightings.take(track, fact)
            case _:
                return self._answers.of_call(track, fact, now_s)
