"""Runs retention: once an hour, and on request, deletes items past the limits of `kind: Settings`,
in small transactions, so that ticks go on between them.

A thread lists the items, controllers/kinds/retention_decision decides, and this file carries the
decision out: files in a thread, rows in transactions. The decision is not stored: one that a crash
cut off is made again from the remaining items. After an error of the store the next round tries
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fleetctl.common.errors import StoreError
from fleetctl.controllers.kinds.retention_decision import (
    DAY_S,
    ExpiredItem,
    RetentionLimits,
    RetentionSort,
    limits_of,
)
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.engine.shared.due_queue import key_of
from fleetctl.engine.shared.part import EnginePart, Helper, PartWiring
from fleetctl.providers.sources.source_snapshots import name_of
from fleetctl.providers.sources.upload_store import UPLOADS
from fleetctl.retention.cleaner import FILES, RetentionCleaner
from fleetctl.retention.survey import SortSurvey
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.kinds.settings import SettingsSpec
from fleetctl.specs.values.scalars import Spec
from fleetctl.stores.base import EventRow
from fleetctl.tracking.annotations import ORIGIN
from fleetctl.tracking.kept_by import find_maker
from fleetctl.tracking.source_state import copy_in
from fleetctl.tracking.task_inputs import digests_in
from fleetctl.tracking.track import track_of

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource
    from fleetctl.engine.shared.engine_state import EngineState


STEP_PAUSE_S = 0.05
FOREVER_BYTES = 1 << 62
REASON = "PastRetention"

log = logging.getLogger("fleetctl.engine")

KIND = "Settings"
_WITH_FILES = ("BatchJob", "Schedule")
FIRST_S = 60.0  # after the controller began
INPUTS_PER_STEP_MAX = 500  # each is a file that is deleted: some milliseconds in all
OBJECTS_PER_STEP_MAX = 50  # each is a row and an event: some milliseconds
Round = Mapping[RetentionSort, SortSurvey]


def forget_some(state: EngineState, limits: RetentionLimits) -> bool:
    """Removes records of deleted objects. Returns true if more remain."""
    kept_s = limits.max_age_s
    return _run_step(
        state,
        lambda: state.store.gone.forget(
            until_s=0.0 if kept_s is None else state.clock.now_s() - kept_s,
            bytes_max=FOREVER_BYTES if limits.max_bytes is None else limits.max_bytes,
            objects_max=state.settings.keep_deleted_objects_max,
        ),
    )


def thin_some(state: EngineState, it: ExpiredItem) -> bool:
    """Deletes metrics of a finished object's steps. Returns true if more remain."""

    def step() -> bool:
        if not is_over(state.store.resources.of(it.item.key)):
            return False
        if state.store.runs.thin(it.item.key):
            return True
        text = f"of its metrics only the last is kept: past `retention.runs.{it.why}`"
        state.store.events.record([_build_event(state, it, text)])
        return False

    return _run_step(state, step)


def replace_events(state: EngineState, it: ExpiredItem) -> bool:
    """Replaces all events of the object by one."""

    def step() -> bool:
        if is_over(state.store.resources.of(it.item.key)):
            text = f"earlier events are past `retention.events.{it.why}`"
            state.store.events.replace(_build_event(state, it, text))
        return False

    return _run_step(state, step)


def forget_results(state: EngineState, it: ExpiredItem) -> bool:
    """Drops the results from the reuse of equal work; the object's own results stay."""

    def step() -> bool:
        state.store.cache.forget(it.item.key)
        return False

    return _run_step(state, step)


def shrink_some(state: EngineState) -> bool:
    """Shrinks the store's files. Returns true if more space can be freed."""
    return _run_step(state, state.store.shrink)


def is_over(row: Resource | None) -> bool:
    """Checks the present row: a user may have requested more work since it was listed."""
    if row is None or row.deleted_at_s is not None:
        return False
    track = track_of(row)
    return track.dormant and track.status.get("phase") in TERMINAL_PHASES


def _build_event(
    state: EngineState,
    it: ExpiredItem,
    text: str,
) -> EventRow:
    return EventRow(
        it.item.key,
        state.clock.now_s(),
        "Normal",
        REASON,
        text,
    )


def _run_step(state: EngineState, work: Callable[[], bool]) -> bool:
    try:
        with state.store.transaction():
            return work()
    except StoreError as error:
        log.warning("retention waits", extra={"error": str(error)})
        return False


# For sorts whose items are rows of an object: takes a step, and returns true if more remain.
_RECORDS: Mapping[RetentionSort, Callable[[EngineState, ExpiredItem], bool]] = {
    RetentionSort.RUNS: thin_some,
    RetentionSort.EVENTS: replace_events,
    RetentionSort.REUSE: forget_results,
}


class SettingsUnreadable(Exception):
    """A newer fleetctl wrote the settings: the limits are unknown, so no item is deleted by
    them.
    """


class Retention(EnginePart):
    """cleaner: None = this engine has no files, as in a simulation."""

    def __init__(self, state: EngineState, cleaner: RetentionCleaner | None) -> None:
        self._state = state
        self._cleaner = cleaner
        self._turn = asyncio.Lock()

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state, wiring.services.cleaner)

    def list_helpers(self) -> tuple[Helper, ...]:
        return (self.tend,)

    async def tend(self) -> None:
        # A controller is started for work, which comes first.
        await asyncio.sleep(min(FIRST_S, self._state.settings.forget_every_s))
        while True:
            await self.round(asked=False)
            await asyncio.sleep(self._state.settings.forget_every_s)

    async def round(self, *, asked: bool = True) -> Round:
        """Runs one round over all sorts; returns the items found and deleted. One at a time. asked:
        on a user's request.
        """
        async with self._turn:
            try:
                limits = self._limits()
            except SettingsUnreadable as error:
                log.warning("retention waits", extra={"error": str(error)})
                return {}
            begins = asked or settings_in(self._state) is not None or await self._has_begun()
            found = await self._files(limits) if begins else {}
            await self._records(limits[RetentionSort.DELETED])
            await self._sweep_sources()
            if self._cleaner is not None:
                await asyncio.to_thread(self._cleaner.release_outputs)
            self._write_status(found)
            return found

    async def _has_begun(self) -> bool:
        """Returns true if default limits apply yet."""
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

    def _write_status(self, found: Round) -> None:
        """Writes the size of each sort and the deleted items into the status of the settings."""
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

    def _limits(self) -> dict[RetentionSort, RetentionLimits]:
        found = settings_in(self._state)
        spec = SettingsSpec() if found is None else found[1]
        return limits_of(spec.retention, self._state.settings.keep_deleted_s)

    async def _files(self, limits: Mapping[RetentionSort, RetentionLimits]) -> Round:
        """Handles everything but the records of deleted objects and their disk space."""
        cleaner = self._cleaner
        now_s = self._state.clock.now_s()
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
        self._free(found[RetentionSort.WORK_DIRECTORIES])
        self._hide(cleaner, found[RetentionSort.SOURCES])
        await self._drop_inputs(found[RetentionSort.INPUTS])
        for sort, take in _RECORDS.items():
            for it in found[sort].decision.goes:
                while take(self._state, it):
                    await asyncio.sleep(STEP_PAUSE_S)
        goes = found[RetentionSort.OBJECTS].decision.goes
        for at in range(0, len(goes), OBJECTS_PER_STEP_MAX):
            self._delete(goes[at : at + OBJECTS_PER_STEP_MAX])
            await asyncio.sleep(STEP_PAUSE_S)
        return found

    def _free(self, found: SortSurvey) -> None:
        """Requests the release; the pass of each object decides, and ensures that it has no run."""
        state = self._state
        state.past_retention.clear()
        for it in found.decision.goes:
            text = f"the work directory of its runs is past `retention.workDirectories.{it.why}`"
            state.past_retention[it.item.key] = text
            state.poke(it.item.key)

    def _hide(self, cleaner: RetentionCleaner, found: SortSurvey) -> None:
        """Hides copies in one step with the look at which objects have finished, so that no run
        begins in between.
        """
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

    async def _drop_inputs(self, found: SortSurvey) -> None:
        """Deletes files of tasks; each step in one with the look at which objects have finished."""
        sources = self._state.sources
        goes = found.decision.goes
        for at in range(0, len(goes) if sources is not None else 0, INPUTS_PER_STEP_MAX):
            assert sources is not None
            awake = {uid for uid, it in self._state.tracks.items() if not it.dormant}
            rows = self._state.store.resources.naming('"files":')
            used = {it for row in rows if row.uid in awake for it in digests_in(row.spec)}
            for it in goes[at : at + INPUTS_PER_STEP_MAX]:
                if it.item.key not in used:
                    sources.inputs.drop(it.item.key, unused_since_s=it.item.used_s)
            await asyncio.sleep(STEP_PAUSE_S)

    def _delete(self, goes: Sequence[ExpiredItem]) -> None:
        """Deletes objects in the ordinary way: the row stays until all is confirmed gone."""
        store = self._state.store
        now_s = self._state.clock.now_s()
        dependents = self._state.dependents
        try:
            with store.transaction():
                for it in goes:
                    row = store.resources.of(it.item.key)
                    if row is None or not is_over(row) or dependents.of(key_of(row)):
                        continue
                    if find_maker(row.annotations):
                        continue
                    gone = replace(row, deleted_at_s=now_s)
                    store.resources.put(gone, expected_version=row.version)
                    text = f"it is past `retention.objects.{it.why}` of the settings"
                    self._state.say(row.uid, REASON, text)
                    self._state.queue.add(row.uid)
        except StoreError as error:
            log.warning("retention waits", extra={"error": str(error)})
        self._state.inbox.wake()

    async def _records(self, limits: RetentionLimits) -> None:
        while forget_some(self._state, limits):
            await asyncio.sleep(STEP_PAUSE_S)
        while shrink_some(self._state):
            await asyncio.sleep(STEP_PAUSE_S)

    async def _sweep_sources(self) -> None:
        if self._state.sources is not None:
            # Includes all stored objects: a sleeping one may be asked to run again, with its copy.
            notes = self._state.store.resources.annotations()
            await asyncio.to_thread(self._state.sources.sweep, notes)
            await asyncio.to_thread(
                self._state.sources.inputs.sweep, _specs_with_files(self._state)
            )
            rows = self._state.store.resources.naming(f"/{UPLOADS}/")
            await asyncio.to_thread(self._state.sources.sweep_uploads, [it.spec for it in rows])


def _specs_with_files(state: EngineState) -> list[Spec]:
    """Returns the specs of all objects, also of sleeping ones, that have files of tasks."""
    rows = state.store.resources.naming('"files":')
    return [parse_spec(it.kind, it.spec) for it in rows if it.kind in _WITH_FILES]


def settings_in(state: EngineState) -> tuple[Resource, SettingsSpec] | None:
    """Returns the stored settings; None without any. Raises SettingsUnreadable."""
    for row in state.store.resources.living(KIND):
        try:
            found = parse_spec(KIND, row.spec)
        except ValueError as error:
            raise SettingsUnreadable("the settings cannot be read by this version") from error
        assert isinstance(found, SettingsSpec)
        return row, found
    return None
