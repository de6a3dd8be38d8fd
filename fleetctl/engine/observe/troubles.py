"""What keeps a provider from serving an account now, as it was heard last: told by every object
that has work there, in its first line.

Heard by replies.py from starts that tell of the account, and by reach.py from the service's
silence; read by passes. In memory alone: a restart hears it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.controllers.schedule.desired import Trouble
from fleetctl.specs.values.hints import words_of

if TYPE_CHECKING:
    from fleetctl.common.clock import Clock
    from fleetctl.tracking.track import Track

# A start that tells of the account is tried again within retry_max_s; when nobody asks any more,
# what it told says nothing soon after.
TOLD_FOR_S = 90.0
# A full account keeps nothing back but what starts, and those say so themselves.
_OF_STARTS_ALONE = frozenset({"Quota"})


@dataclass(frozen=True, slots=True)
class _Heard:
    trouble: Trouble
    until_s: float | None  # None: until it is answered again


class Troubles:
    """look: is told the uid of an object whose first line may be another now."""

    def __init__(
        self, *, clock: Clock, tracks: Mapping[str, Track], look: Callable[[str], None]
    ) -> None:
        self._clock = clock
        self._tracks = tracks
        self._look = look
        self._of_starts: dict[str, _Heard] = {}
        self._of_service: dict[str, _Heard] = {}

    def start_waits(self, provider: str, reason: str, message: str, retry_at_s: float) -> None:
        """A start was told of the account."""
        if reason in _OF_STARTS_ALONE:
            return
        until_s = max(retry_at_s, self._clock.now_s()) + TOLD_FOR_S
        self._hear(self._of_starts, provider, _Heard(Trouble(reason, message), until_s))

    def start_served(self, provider: str) -> None:
        """A start was taken."""
        self._forget(self._of_starts, provider)
        self.answered(provider)

    def silent(self, provider: str, error: FleetctlError) -> None:
        """The service does not answer, or not to us."""
        reason = error.reason if isinstance(error, Unavailable) else type(error).__name__
        self._hear(self._of_service, provider, _Heard(Trouble(reason, words_of(error)), None))

    def answered(self, provider: str) -> None:
        """The service took a question of ours."""
        self._forget(self._of_service, provider)

    def of(self, provider: str) -> Trouble | None:
        """What keeps it from serving us now; None when nothing is known to."""
        silent = self._of_service.get(provider)
        if silent is not None:
            return silent.trouble
        value = self._of_starts.get(provider)
        if value is None or (value.until_s or 0.0) <= self._clock.now_s():
            return None
        return value.trouble

    def until_s(self, provider: str) -> float | None:
        """When what is told of it now says nothing any more, by the clock alone."""
        value = self._of_starts.get(provider)
        return value.until_s if value is not None else None

    def _hear(self, known: dict[str, _Heard], provider: str, heard: _Heard) -> None:
        before = known.get(provider)
        known[provider] = heard
        if before is None or replace(before, until_s=heard.until_s) != heard:
            self._wake(provider)

    def _forget(self, known: dict[str, _Heard], provider: str) -> None:
        if known.pop(provider, None) is not None:
            self._wake(provider)

    def _wake(self, provider: str) -> None:
        """Every object with work there says it from now on, or no longer."""
        for uid, track in self._tracks.items():
            if uses(track, provider):
                self._look(uid)


def uses(track: Track, provider: str) -> bool:
    """Whether the object has something there that the provider has to serve."""
    if track.work is None:
        return False
    live = any(run.provider == provider for run in track.work.history.live.values())
    return live or any(box.provider == provider for box in track.work.history.sandboxes.values())
