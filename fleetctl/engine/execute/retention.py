"""Retention: once an hour, and when asked, what is past the limits of `kind: Settings` goes.

A thread lists what there is, controllers/kinds/retention decides, and here that is carried out:
files in a thread, rows in small transactions between which ticks go on. Nothing of it is written
down before: a decision that a crash cut off is made anew from what is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import StoreError
from fleetctl.controllers.kinds.retention.decide import Doomed
from fleetctl.controllers.kinds.retention.limits import DAY_S, Limits, Sort, limits_of
from fleetctl.engine.execute.forgetting import (
    REASON,
    STEP_PAUSE_S,
    forget_results,
    forget_some,
    is_over,
    replace_events,
    shrink_some,
    thin_some,
)
from fleetctl.engine.shared.dependents import key_of
from fleetctl.providers.sources.snapshots import name_of
from fleetctl.retention.cleaner import FILES, Cleaner
from fleetctl.retention.survey import Found
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.kinds.settings import SettingsSpec
from fleetctl.tracking.annotations import ORIGIN
from fleetctl.tracking.kept_by import made_again_by
from fleetctl.tracking.looked import copy_in

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource
    from fleetctl.engine.shared.state import State

log = logging.getLogger("fleetctl.engine")

KIND = "Settings"
FIRST_S = 60.0  # after the controller began
OBJECTS_PER_STEP_MAX = 50  # each is a row and an event: some milliseconds
Round = Mapping[Sort, Found]
# Of the sorts whose things are rows of an object: takes a step, and says whether there is more.
_RECORDS: Mapping[Sort, Callable[[State, Doomed], bool]] = {
    Sort.RUNS: thin_some,
    Sort.EVENTS: replace_events,
    Sort.REUSE: forget_results,
}


class Unreadable(Exception):
    """A newer fleetctl wrote the settings: what they say is unknown, so nothing goes by them."""


class Retention:
    """cleaner: None = this engine has no files, as in a simulation."""

    def __init__(self, state: State, cleaner: Cleaner | None) -> None:
        self._state, self._cleaner = state, cleaner
        self._turn = asyncio.Lock()

    async def tend(self) -> None:
        # Whoever starts a controller has work for it, which comes first.
        await asyncio.sleep(min(FIRST_S, self._state.settings.forget_every_s))
        while True:
            await self.round(asked=False)
            await asyncio.sleep(self._state.settings.forget_every_s)

    async def round(self, *, asked: bool = True) -> Round:
        """One turn of all sorts; what there was, and what of it went. One at a time. asked: a
        person wants it now.
        """
        async with self._turn:
            try:
                limits = self._limits()
            except Unreadable as error:
                log.warning("retention waits", extra={"error": str(error)})
                return {}
            begins = asked or settings_in(self._state) is not None or await self._begun()
            found = await self._files(limits) if begins else {}
            await self._records(limits[Sort.DELETED])
            await self._sweep_sources()
            self._tell(found)
            return found

    async def _begun(self) -> bool:
        """Whether limits that nobody has said hold yet."""
        if self._cleaner is None:
            return False
        now_s = self._state.clock.now_s()
        try:
            begins_s = await asyncio.to_thread(self._cleaner.begins_s, now_s)
        except (StoreError, OSError) as error:
            log.warning("retention waits", extra={"error": str(error)})
            return False
        if now_s < begins_s:
            days = (begins_s - now_s) / DAY_S
            log.info("default limits of retention hold later", extra={"days": round(days, 1)})
        return now_s >= begins_s

    def _tell(self, found: Round) -> None:
        """What each sort takes and what went, into the status of the settings."""
        settings = settings_in(self._state)
        if settings is None or not found:
            return
        self._state.settings_status["retained"] = [
            {
                "sort": sort.value,
                "items": it.decision.items - len(it.decision.goes),
                "bytes": it.decision.bytes - it.decision.bytes_going,
                "freedBytes": it.decision.bytes_going,
            }
            for sort, it in found.items()
        ]
        self._state.poke(settings[0].uid)

    def _limits(self) -> dict[Sort, Limits]:
        found = settings_in(self._state)
        spec = SettingsSpec() if found is None else found[1]
        return limits_of(spec.retention, self._state.settings.keep_deleted_s)

    async def _files(self, limits: Mapping[Sort, Limits]) -> Round:
        """Everything but the records of what is gone, and the room that they took."""
        cleaner, now_s = self._cleaner, self._state.clock.now_s()
        if cleaner is None:
            return {}
        try:
            found = await asyncio.to_thread(cleaner.survey, limits, now_s)
        except (StoreError, OSError) as error:
            log.warning("retention waits", extra={"error": str(error)})
            return {}
        for sort in FILES:
            items = [it.item for it in found[sort].decision.goes]
            for step in cleaner.steps(sort, items):
                await asyncio.to_thread(cleaner.let_go, sort, step)
        self._free(found[Sort.WORK_DIRECTORIES])
        self._hide(cleaner, found[Sort.SOURCES])
        for sort, take in _RECORDS.items():
            for it in found[sort].decision.goes:
                while take(self._state, it):
                    await asyncio.sleep(STEP_PAUSE_S)
        goes = found[Sort.OBJECTS].decision.goes
        for at in range(0, len(goes), OBJECTS_PER_STEP_MAX):
            self._delete(goes[at : at + OBJECTS_PER_STEP_MAX])
            await asyncio.sleep(STEP_PAUSE_S)
        return found

    def _free(self, found: Found) -> None:
        """The pass of each object decides, and sees to it that nothing of it runs."""
        state = self._state
        state.past_retention.clear()
        for it in found.decision.goes:
            text = f"what its runs left on disk is past `retention.workDirectories.{it.why}`"
            state.past_retention[it.item.key] = text
            state.poke(it.item.key)

    def _hide(self, cleaner: Cleaner, found: Found) -> None:
        """In one step with the look at who is over, so that no run begins in between."""
        if not found.decision.goes:
            return
        notes = {
            (copy_in(it.resource.annotations), it.resource.annotations.get(ORIGIN, ""))
            for it in self._state.tracks.values()
            if not it.dormant
        }
        copies = cleaner.copies
        used = {copies.key_of(copy, name_of(Path(at))) for copy, at in notes if copy}
        cleaner.hide_sources([it.item for it in found.decision.goes if it.item.key not in used])

    def _delete(self, goes: Sequence[Doomed]) -> None:
        """The ordinary deletion: the row stays until all of it is confirmed gone."""
        store, now_s = self._state.store, self._state.clock.now_s()
        dependents = self._state.dependents
        try:
            with store.transaction():
                for it in goes:
                    row = store.resources.of(it.item.key)
                    if row is None or not is_over(row) or dependents.of(key_of(row)):
                        continue
                    if made_again_by(row.annotations):
                        continue
                    gone = replace(row, deleted_at_s=now_s)
                    store.resources.put(gone, expected_version=row.version)
                    text = f"it is past `retention.objects.{it.why}` of the settings"
                    self._state.say(row.uid, REASON, text)
                    self._state.queue.add(row.uid)
        except StoreError as error:
            log.warning("retention waits", extra={"error": str(error)})
        self._state.inbox.wake()

    async def _records(self, limits: Limits) -> None:
        while forget_some(self._state, limits):
            await asyncio.sleep(STEP_PAUSE_S)
        while shrink_some(self._state):
            await asyncio.sleep(STEP_PAUSE_S)

    async def _sweep_sources(self) -> None:
        if self._state.sources is not None:
            # Of all that is stored: what sleeps may be asked to run again, with its copy.
            notes = self._state.store.resources.annotations()
            await asyncio.to_thread(self._state.sources.sweep, notes)


def settings_in(state: State) -> tuple[Resource, SettingsSpec] | None:
    """Of the store; None where there are none. Raises Unreadable."""
    for row in state.store.resources.living(KIND):
        try:
            found = parse_spec(KIND, row.spec)
        except ValueError as error:
            raise Unreadable("the settings cannot be read by this version") from error
        assert isinstance(found, SettingsSpec)
        return row, found
    return None
