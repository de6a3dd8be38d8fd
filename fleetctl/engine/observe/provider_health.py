"""Probes the service of a provider every few seconds while there are runs of ours, and keeps the
last known reason why it does not serve an account.

Streams of runs may be silent for long while all is well, and a user must see an outage within ten
seconds: so the engine's loop starts one probing task for each provider that has a cheap check.
Starts that concern the account report reasons too, through intake.py. Passes read the reasons,
which are in memory alone: a restart learns them again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.controllers.schedule.desired import ProviderTrouble
from fleetctl.engine.shared.boundary import NoAnswer, guard_call
from fleetctl.engine.shared.part import EnginePart, PartWiring, WorkDecision
from fleetctl.providers.contract.base import Backend, Reachable
from fleetctl.specs.values.hints import hinted_error

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import ResourceWork, Track


# A start that reports the account is tried again within retry_max_s; without further requests, its
# report expires soon after.
TOLD_FOR_S = 90.0
# A full account delays only new starts, and their own status shows it.
_OF_STARTS_ALONE = frozenset({"Quota"})

log = logging.getLogger("fleetctl.engine")

# Together at most 8.5 s, so an outage shows within ten seconds.
PROBE_EVERY_S = 4.0
PROBE_TIMEOUT_S = 4.0
PROBE_AGAIN_S = 0.5  # a single failure proves little; the second one is reported


@dataclass(frozen=True, slots=True)
class _HealthReport:
    trouble: ProviderTrouble
    until_s: float | None  # unset: until the next reply


class ProviderHealth(EnginePart):
    """A part that rests while it knows of no trouble."""

    rests = True

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._clock = state.clock
        self._of_starts: dict[str, _HealthReport] = {}
        self._of_service: dict[str, _HealthReport] = {}

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state)

    def list_inputs(self, work: ResourceWork, _now_s: float) -> Mapping[str, Any]:
        troubles = {
            name: trouble
            for name in self._state.providers
            if (trouble := self.of(name)) is not None and uses_provider(work.track, name)
        }
        return {"troubles": troubles}

    def take_decision(self, decision: WorkDecision) -> None:
        for name in decision.desired.troubles:
            until_s = self.until_s(name)
            if until_s is not None:
                self._state.queue.add(decision.work.resource.uid, until_s)

    def start_waits(
        self,
        provider: str,
        trouble: ProviderTrouble,
        retry_at_s: float,
    ) -> None:
        """Records a start's reply that concerns the account."""
        if trouble.reason in _OF_STARTS_ALONE:
            return
        until_s = max(retry_at_s, self._clock.now_s()) + TOLD_FOR_S
        self._store_report(self._of_starts, provider, _HealthReport(trouble, until_s))

    def start_served(self, provider: str) -> None:
        """Records that a start was accepted."""
        self._forget(self._of_starts, provider)
        self.record_reply(provider)

    def record_silence(self, provider: str, error: FleetctlError) -> None:
        """Records that the service does not reply, or not to us."""
        reason = error.reason if isinstance(error, Unavailable) else type(error).__name__
        why = hinted_error(error)
        trouble = ProviderTrouble(reason, why.text, why.hint)
        self._store_report(self._of_service, provider, _HealthReport(trouble, None))

    def record_reply(self, provider: str) -> None:
        """Records that the service replied to a request."""
        self._forget(self._of_service, provider)

    def of(self, provider: str) -> ProviderTrouble | None:
        """Returns why it does not serve us now; None without a known reason."""
        silent = self._of_service.get(provider)
        if silent is not None:
            return silent.trouble
        value = self._of_starts.get(provider)
        if value is None or (value.until_s or 0.0) <= self._clock.now_s():
            return None
        return value.trouble

    def until_s(self, provider: str) -> float | None:
        """Returns when its present report expires, by the clock alone."""
        value = self._of_starts.get(provider)
        if value is not None:
            return value.until_s
        return None

    def _store_report(
        self,
        known: dict[str, _HealthReport],
        provider: str,
        heard: _HealthReport,
    ) -> None:
        before = known.get(provider)
        known[provider] = heard
        self.rests = False
        if before is None or replace(before, until_s=heard.until_s) != heard:
            self._wake(provider)

    def _forget(self, known: dict[str, _HealthReport], provider: str) -> None:
        if known.pop(provider, None) is not None:
            self.rests = not (self._of_starts or self._of_service)
            self._wake(provider)

    def _wake(self, provider: str) -> None:
        """Wakes every object with work there, to show the trouble or to drop it."""
        for uid, track in self._state.tracks.items():
            if uses_provider(track, provider):
                self._state.queue.add(uid)


def uses_provider(track: Track, provider: str) -> bool:
    """Returns true if the object has work there that the provider has to serve."""
    if track.work is None:
        return False
    live = any(run.provider == provider for run in track.work.history.live.values())
    return live or any(box.provider == provider for box in track.work.history.sandboxes.values())


async def watch_reachability(
    name: str,
    backend: Callable[[], Backend],
    *,
    tracks: Callable[[], list[Track]],
    health: ProviderHealth,
    changed: Callable[[], None],
) -> None:
    """Probes until cancelled, or until the provider no longer has a check. Sends no request while
    the provider has no work of ours.

    backend, tracks: return the current provider and the current objects. health: gets each outcome.
    changed: called after a probe, to wake the loop.
    """
    while True:
        await asyncio.sleep(PROBE_EVERY_S)
        service = backend()
        if not isinstance(service, Reachable):
            return
        if not any(uses_provider(track, name) for track in tracks()):
            health.record_reply(name)
            continue
        error = await _probe_service(name, service)
        if error is not None and health.of(name) is None:
            await asyncio.sleep(PROBE_AGAIN_S)
            error = await _probe_service(name, service)
        if error is None:
            health.record_reply(name)
        else:
            health.record_silence(name, error)
        changed()


async def _probe_service(name: str, service: Reachable) -> FleetctlError | None:
    """Returns the error that keeps the service from being used; None without one."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reply = await guard_call(service.reach(), what="reach", key=name)
    except (Refused, Unavailable) as error:
        # A service that asks for patience replies, so it is reachable.
        return None if isinstance(error, Unavailable) and error.reason == "RateLimited" else error
    except TimeoutError:
        reply = NoAnswer(f"provider `{name}` does not answer")
    if isinstance(reply, NoAnswer):
        return Unavailable(f"provider `{name}`: {reply.why}", reason="Unreachable")
    return None
