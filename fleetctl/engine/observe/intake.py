"""Turns messages into records: each is taken by the module that knows its sort.

Called by a tick inside its transaction, before any pass. Replies to our calls are in replies.py,
observations in observations.py, the records of both in records.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine.observe.observations import Observations
from fleetctl.engine.observe.replies import ReplyHandler
from fleetctl.engine.shared.messages import AssetReplied, Message, Observed

if TYPE_CHECKING:
    from fleetctl.tracking.track import Track


class Intake:
    def __init__(self, answers: ReplyHandler, observations: Observations) -> None:
        self._answers = answers
        self._observations = observations

    def observe(
        self,
        track: Track,
        message: Message,
        now_s: float,
    ) -> bool:
        """Returns True when the message's resource must be looked at next."""
        match message:
            case AssetReplied():
                return self._answers.of_asset(track, message, now_s)
            case Observed():
                return self._observations.take(track, message)
            case _:
                return self._answers.of_call(track, message, now_s)
