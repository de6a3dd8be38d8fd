"""Asking providers about runs: at once when one is pushed, and by a slow poll that is the net under
the push.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Container, Mapping
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.event_loop import wait_or_wake
from fleetctl.controllers.model import Alive, Observation, Run, RunState
from fleetctl.engine.shared.boundary import NoAnswer, guard_call
from fleetctl.engine.shared.messages import Observed
from fleetctl.engine.sleeping import nudge_start
from fleetctl.providers.contract.base import RunRef, ref_of

if TYPE_CHECKING:
    from fleetctl.engine.execute.rate_limit import RateLimiter
    from fleetctl.engine.shared.engine_state import EngineSettings, EngineState

log = logging.getLogger("fleetctl.engine")

RUNS_PER_LOOK_MAX = 500


class RunWatcher:
    def __init__(self, state: EngineState, rate_limiters: Mapping[str, RateLimiter]) -> None:
        self._state = state
        self._rate_limiters = rate_limiters
        self._pushed: dict[str, set[str]] = {name: set() for name in state.providers}
        self._later: dict[str, float] = {}
        self._talk = _ReportPace(state.settings)
        self._wakes = {name: asyncio.Event() for name in state.providers}

    def add(self, provider: str) -> None:
        """Adds a provider that was declared after the start."""
        self._pushed[provider], self._wakes[provider] = set(), asyncio.Event()

    def look(self, run: str) -> None:
        """Observes `run` soon. Unknown names are ignored: a push is only ever a hint.

        For a waiting start, the push means that its obstacle may be gone: it is tried at once.
        """
        provider = self._provider_of(run)
        if provider is None or provider not in self._pushed:
            return
        now_s = self._state.clock.now_s()
        until_s = self._talk.until_s(run, now_s)
        if until_s > now_s:
            self.look_later(run, min(until_s, self._later.get(run, until_s)))
            return
        nudge_start(self._state, run)
        self._pushed[provider].add(run)
        self._wakes[provider].set()

    def look_later(self, run: str, at_s: float) -> None:
        """Observes `run` again at at_s: the last observation may be stale."""
        if self._later.get(run) == at_s:
            return
        self._later[run] = at_s
        provider = self._provider_of(run)
        if provider in self._wakes:
            self._wakes[provider].set()

    async def run(self, provider: str) -> None:
        """Runs for ever: gathers the runs due at one provider, observes them, and sends the results
        to the loop.
        """
        contract = self._state.providers[provider].contract
        clock = self._state.clock
        poll_at_s = clock.now_s()
        tries = 0
        while True:
            now_s = clock.now_s()
            names = self._take(provider, now_s)
            if now_s >= poll_at_s:
                names.update(self._list_polled(provider))
                poll_at_s = now_s + contract.poll_s
            if names and not await self._ask(provider, sorted(names)):
                tries += 1
                self._pushed[provider].update(names)
                await asyncio.sleep(self._state.backoff_s(tries))
                continue
            tries = 0
            await self._wait(provider, poll_at_s)

    async def _wait(self, provider: str, poll_at_s: float) -> None:
        wake = self._wakes[provider]
        # Another provider's looks are its own watcher's; waking for them here would spin.
        ours = [at_s for run, at_s in self._later.items() if self._provider_of(run) == provider]
        until_s = min([poll_at_s, *ours])
        if not self._pushed[provider]:
            left_s = max(0.0, until_s - self._state.clock.now_s())
            await wait_or_wake(wake, left_s)
        wake.clear()

    async def _ask(self, provider: str, names: list[str]) -> bool:
        """Returns False when the provider did not reply; then the runs' state is left as it was."""
        state = self._state
        refs = [ref for ref in map(self._ref, names) if ref is not None]
        for at in range(0, len(refs), RUNS_PER_LOOK_MAX):
            asked_at_s = state.clock.now_s()
            part = refs[at : at + RUNS_PER_LOOK_MAX]
            call = self._rate_limiters[provider].ask(
                partial(state.providers[provider].observe, part)
            )
            try:
                seen = await guard_call(call, what="observe", key=provider)
            except (Refused, Unavailable) as error:
                log.warning("observe refused", extra={"provider": provider, "error": str(error)})
                return False
            if isinstance(seen, NoAnswer):
                return False
            for each in seen:
                self._talk.note_report(each, asked_at_s)
                state.inbox.tell(Observed(provider, asked_at_s, each))
        return True

    def _take(self, provider: str, now_s: float) -> set[str]:
        names, self._pushed[provider] = self._pushed[provider], set()
        for run in [run for run, at_s in self._later.items() if at_s <= now_s]:
            if self._provider_of(run) in (provider, None):
                del self._later[run]
                names.add(run)  # a finished one has no reference any more and is not looked at
        return names

    def _list_polled(self, provider: str) -> set[str]:
        """Returns every confirmed live run, and the last run of every open sandbox."""
        names = set()
        self._talk.forget(self._state.owner_of)
        for run in map(self._known, self._state.owner_of):
            if run is not None and run.provider == provider and run.state is not RunState.STARTING:
                names.add(run.name)
        return names

    def _known(self, name: str) -> Run | None:
        uid = self._state.owner_of.get(name)
        track = self._state.tracks.get(uid) if uid is not None else None
        if track is None or track.work is None:
            return None
        history = track.work.history
        run = history.live.get(name)
        if run is not None:
            return run
        return next((b.last for b in history.sandboxes.values() if b.last.name == name), None)

    def _provider_of(self, name: str) -> str | None:
        run = self._known(name)
        if run is not None:
            return run.provider
        return None

    def _ref(self, name: str) -> RunRef | None:
        run = self._known(name)
        if run is None:
            return None
        return ref_of(run)


class _ReportPace:
    """Tracks runs that report so often that one look should cover many reports: each look costs a
    tick and a transaction. All such runs are looked at together. A rare report of a run, and its
    end after that, is looked at in the moment of its push.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._few = settings.few_reports
        self._gap_s = settings.report_gap_s
        self._heard: dict[str, tuple[int, float]] = {}  # reports in a row, when the last one came

    def note_report(self, seen: Observation, at_s: float) -> None:
        if not isinstance(seen, Alive):
            self._heard.pop(seen.run, None)
        elif seen.metrics:
            count, last_s = self._heard.get(seen.run, (0, at_s))
            quiet = at_s - last_s > self._few * self._gap_s
            self._heard[seen.run] = (0 if quiet else count + 1, at_s)

    def forget(self, known: Container[str]) -> None:
        """Forgets all but these."""
        self._heard = {run: it for run, it in self._heard.items() if run in known}

    def until_s(self, run: str, now_s: float) -> float:
        """Returns when to look at it next."""
        count, last_s = self._heard.get(run, (0, 0.0))
        if count < self._few or not 0 <= now_s - last_s < self._few * self._gap_s:
            return now_s
        return math.ceil(now_s / self._gap_s) * self._gap_s
