"""Adoption: a sandbox that carries a tag of ours and that no record knows becomes a run, when a
user requests it or after the store was restored from a backup.

Names of runs are a function of store, object, unit and attempt. So a start of the same name finds
the run that began under it, also an ended one, where the provider still knows it. Here is the
rest: a live sandbox without a record is adopted where it runs the very work that is desired; else
it is ended and its attempt counts as made, so that its name is never used again. Sandboxes of
objects that the backup does not know are left to the sweep.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.controllers.model import Resource
from fleetctl.controllers.schedule.starts import AdoptionMatch
from fleetctl.daemon.enroll import (
    enrol_ended,
    enrol_orphan,
    enrol_sheltered,
    find_adoption_target,
    find_named,
    index_of,
    uid_for,
)
from fleetctl.engine.execute.executor import AFTER_RESTORE, AGAIN_S_MAX
from fleetctl.engine.sleeping import nudge_starts
from fleetctl.providers.contract.orphans import SANDBOX, SHARED, Orphan, Orphans, mark_of
from fleetctl.providers.remote.sandboxes.sandbox_names import tag_of
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.tracking.load import work_of
from fleetctl.tracking.track import run_name

if TYPE_CHECKING:
    from fleetctl.engine.capacity.price_book import PriceBook
    from fleetctl.engine.shared.engine_state import EngineState


log = logging.getLogger("fleetctl.engine")

ANSWER_WAIT_S = 20.0  # for all providers together; a slower one is asked again
AGAIN_S = 5.0  # the first wait of several
# An attempt whose predecessor still has a live record begins within its backoff.
SPARED_S = 1800.0
ATTEMPTS_MAX = 200  # looked through for a name; retries are far fewer


# The sandbox is claimed first, so that every later step finds it to be ours; then its run is
# recorded (enroll.py), and the next pass follows it as it does after a restart. targets.py finds
# its object; where that is missing, enroll.py makes one that starts no work by itself.


@dataclass(frozen=True, slots=True)
class AdoptionResult:
    """The outcome for one orphan: why is empty for an adopted one."""

    orphan: Orphan
    key: str = ""  # of its object
    index: int = -1
    made: bool = False  # the object was made for the orphan
    why: str = ""
    hint: str = ""


class OrphanAdopter:
    """Adopts orphans. orphans_of: lists a provider's sandboxes that may have no record."""

    def __init__(
        self,
        state: EngineState,
        market: PriceBook,
        orphans_of: Callable[[str], Orphans],
    ) -> None:
        self._state = state
        self._market = market
        self._orphans_of = orphans_of

    async def adopt(self, orphans: Sequence[Orphan], into: str = "") -> list[AdoptionResult]:
        """Adopts each by itself: the entry of a failed adoption has the reason, and stops no other.

        into: the key of their object, as the user gave it; raises NotFound.
        """
        if into:
            find_named(self._state.store, into)
        done = []
        for orphan in orphans:
            self._state.adopting.add(orphan.run)
            try:
                done.append(await self._adopt(orphan, into))
            except FleetctlError as error:
                done.append(AdoptionResult(orphan, why=str(error), hint=error.hint))
            finally:
                self._state.adopting.discard(orphan.run)
        self._state.inbox.wake()
        return done

    async def _adopt(self, orphan: Orphan, into: str) -> AdoptionResult:
        state = self._state
        known = self._find_owner(orphan)
        if known is not None:
            await self._claim(orphan, known.uid)
            return AdoptionResult(orphan, known.key, index_of(orphan) or 0)

        home = find_adoption_target(state, orphan, into)
        if home.resource is None:
            uid = uid_for(state.store, orphan)
            await self._claim(orphan, uid)
        else:
            uid = home.resource.uid
            await self._claim(orphan, uid)
            # Others may have changed the object during the provider's reply.
            home = find_adoption_target(state, orphan, into)

        if home.resource is None or home.taking is None:
            made = enrol_sheltered(state, self._market, orphan, uid)
            return AdoptionResult(orphan, made.key, 0, made=True)
        enrol_orphan(
            state,
            self._market,
            home.resource,
            home.taking,
            orphan,
        )
        return AdoptionResult(orphan, home.resource.key, home.taking.unit.index)

    async def _claim(self, orphan: Orphan, uid: str) -> None:
        orphans = self._orphans_of(orphan.provider)
        try:
            await orphans.claim(orphan, self._state.store.store_id, uid)
        finally:
            await orphans.close()

    def _find_owner(self, orphan: Orphan) -> Resource | None:
        """Returns the object of its run, where an earlier adoption was cut off before the reply."""
        track = self._state.tracks.get(self._state.owner_of.get(orphan.run, ""))
        if track is None:
            return None
        return track.resource


class RestoreRecovery:
    """The recovery. orphans_of: lists a provider's sandboxes. finished: called once all have
    responded."""

    def __init__(
        self,
        state: EngineState,
        market: PriceBook,
        orphans_of: Callable[[str], Orphans],
        finished: Callable[[], None],
    ) -> None:
        self._state = state
        self._market = market
        self._orphans_of = orphans_of
        self._finished = finished
        self.unasked: set[str] = set()  # providers at which no run may start yet

    async def begin(self) -> None:
        """Asks all providers; unreachable ones are asked again by `go_on`."""
        self.unasked = {name for name in self._state.providers if _is_named(self._state, name)}
        await self._round()

    async def go_on(self) -> None:
        wait_s = AGAIN_S
        while self.unasked:
            await asyncio.sleep(wait_s)
            await self._round()
            wait_s = min(2 * wait_s, AGAIN_S_MAX)

    async def _round(self) -> None:
        names = sorted(self.unasked)
        await asyncio.gather(*(self._ask(name) for name in names))
        if not self.unasked:
            self._finished()

    async def _ask(self, name: str) -> None:
        orphans = self._orphans_of(name)
        try:
            async with asyncio.timeout(ANSWER_WAIT_S):
                found = await orphans.find_all()
            await self._take_in(found, orphans)
        except Refused as error:
            # Without an account no run can start there either.
            log.info("provider not asked", extra={"provider": name, "error": str(error)})
        except (FleetctlError, TimeoutError) as error:
            log.warning("starts wait", extra={"provider": name, "error": str(error)})
            return
        finally:
            await orphans.close()
        self.unasked.discard(name)
        nudge_starts(self._state, AFTER_RESTORE)

    async def _take_in(self, found: Sequence[Orphan], orphans: Orphans) -> None:
        state = self._state
        tags = {state.store.store_id, tag_of(state.store.store_id)}
        resources = {one.uid: one for one in state.store.resources.list()}
        for orphan in sorted(found, key=lambda one: one.created_at_s):
            resource = resources.get(orphan.uid)
            if orphan.kind != SANDBOX or orphan.store not in tags or resource is None:
                continue
            if resource.deleted_at_s is not None or _has_record(state, orphan):
                continue
            await self._take(resource, orphan, orphans)
            # The adoption has made a new version of its object.
            resources = {one.uid: one for one in state.store.resources.list()}

    async def _take(
        self,
        resource: Resource,
        orphan: Orphan,
        orphans: Orphans,
    ) -> None:
        state = self._state
        index = index_of(orphan)
        attempt = None if index is None else _attempt_of(state, orphan, index)
        if index is None or attempt is None:
            return  # the sweep ends it
        work = work_of(resource, state.store.runs)
        unit = work.controller.unit(index)
        same = unit is not None and orphan.work != SHARED
        if unit is not None and same:
            same = mark_of(unit) == orphan.work
        # A unit that has succeeded, or was stopped early, needs no run, and a newer attempt in the
        # records would claim that it does.
        wanted = same and not work.history.is_done(index)
        if wanted and index in work.history.live_by_index:
            # Its predecessor's end is not known here yet; its own start will find it.
            self._spare(orphan)
        elif wanted and unit is not None and not work.controller.policy.suspend:
            log.info("run taken over", extra={"run": orphan.run, "provider": orphan.provider})
            enrol_orphan(
                state,
                self._market,
                resource,
                AdoptionMatch(unit, attempt),
                orphan,
            )
        else:
            log.info("run ended", extra={"run": orphan.run, "provider": orphan.provider})
            await orphans.remove(orphan)
            # While an older attempt has no end here there can be no newer record beside it: that
            # older one may have succeeded with the desired work.
            if not work.history.is_done(index) and index not in work.history.live_by_index:
                enrol_ended(
                    state,
                    resource,
                    index,
                    attempt,
                    orphan,
                )

    def _spare(self, orphan: Orphan) -> None:
        adopting = self._state.adopting
        adopting.add(orphan.run)
        asyncio.get_running_loop().call_later(SPARED_S, adopting.discard, orphan.run)


def _is_named(state: EngineState, provider: str) -> bool:
    """Returns true where work of this store is, was or may be at the provider. Work without a
    placement uses the default."""
    if provider == DEFAULT_PROVIDER or any(
        f'"{provider}"' in one.spec for one in state.store.resources.list()
    ):
        return True
    histories = [it.work.history for it in state.tracks.values() if it.work is not None]
    return any(run.provider == provider for it in histories for run in it.live.values())


def _has_record(state: EngineState, orphan: Orphan) -> bool:
    return any(orphan.run in (run.name, run.sandbox) for run, _ in state.store.runs.of(orphan.uid))


def _attempt_of(
    state: EngineState,
    orphan: Orphan,
    index: int,
) -> int | None:
    """Returns the attempt of its unit with this name; None for a name that is not of our making."""
    store_id = state.store.store_id
    for attempt in range(1, ATTEMPTS_MAX + 1):
        if run_name(store_id, orphan.uid, index, attempt) == orphan.run:
            return attempt
    return None
