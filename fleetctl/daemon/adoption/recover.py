"""After a store was put back from a backup: what the providers have begun since then is found
before anything starts, so that no work is done twice for want of its record.

Names of runs are a function of store, object, unit and attempt. So a start of the same name finds
what began under it, also what has ended, where the provider still knows. Here is the rest: what
lives at a provider and has no record is taken over where it is the very work that is desired;
else it is ended and its attempt counts as made, so that its name is never used again. What belongs
to objects that the backup does not know is left to the sweep.

Called by the loop, before its first turn; starts at a provider that does not answer wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.controllers.model import Resource
from fleetctl.controllers.schedule.adoption import Taking
from fleetctl.daemon.adoption.enroll import enrol, enrol_ended
from fleetctl.daemon.adoption.targets import index_of
from fleetctl.providers.contract.orphans import SANDBOX, SHARED, Orphan, Orphans, mark_of
from fleetctl.providers.remote.sandboxes.names import tag_of
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.tracking.load import work_of
from fleetctl.tracking.run_names import run_name

if TYPE_CHECKING:
    from fleetctl.engine.capacity.prices import Market
    from fleetctl.engine.shared.state import State

log = logging.getLogger("fleetctl.engine")

ANSWER_WAIT_S = 20.0  # for all providers together; one that needs longer is asked again
AGAIN_S, AGAIN_S_MAX = 5.0, 60.0
# An attempt whose predecessor still has a record that lives begins within its backoff.
SPARED_S = 1800.0
ATTEMPTS_MAX = 200  # looked through for a name; retries are far fewer


class Recovery:
    """orphans_of: what a provider knows of sandboxes. finished: called once all have answered."""

    def __init__(
        self,
        state: State,
        market: Market,
        orphans_of: Callable[[str], Orphans],
        finished: Callable[[], None],
    ) -> None:
        self._state, self._market = state, market
        self._orphans_of = orphans_of
        self._finished = finished
        self.unasked: set[str] = set()  # providers at which nothing may start yet

    async def begin(self) -> None:
        """Ask all providers; those that do not answer now are asked on by `go_on`."""
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
                found = await orphans.found()
            await self._take_in(found, orphans)
        except Refused as error:
            # Without an account there nothing can start either.
            log.info("provider not asked", extra={"provider": name, "error": str(error)})
        except (FleetctlError, TimeoutError) as error:
            log.warning("starts wait", extra={"provider": name, "error": str(error)})
            return
        finally:
            await orphans.close()
        self.unasked.discard(name)

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
            # Taking it over has made a new version of its object.
            resources = {one.uid: one for one in state.store.resources.list()}

    async def _take(self, resource: Resource, orphan: Orphan, orphans: Orphans) -> None:
        state, index = self._state, index_of(orphan)
        attempt = None if index is None else _attempt_of(state, orphan, index)
        if index is None or attempt is None:
            return  # the sweep ends it
        work = work_of(resource, state.store.runs)
        unit = work.controller.unit(index)
        same = unit is not None and orphan.work != SHARED
        if unit is not None and same:
            same = mark_of(unit) == orphan.work
        # Of a unit that has succeeded, or was stopped early, nothing more is desired, and a
        # newer attempt in the records would say that it is.
        wanted = same and not work.history.is_done(index)
        if wanted and index in work.history.live_by_index:
            # Its predecessor's end is not known here yet; its own start will find it.
            self._spare(orphan)
        elif wanted and unit is not None and not work.controller.policy.suspend:
            log.info("run taken over", extra={"run": orphan.run, "provider": orphan.provider})
            enrol(state, self._market, resource, Taking(unit, attempt), orphan)
        else:
            log.info("run ended", extra={"run": orphan.run, "provider": orphan.provider})
            await orphans.remove(orphan)
            # While an older attempt has no end here there can be no newer record beside it: that
            # may have succeeded with what is desired now.
            if not work.history.is_done(index) and index not in work.history.live_by_index:
                enrol_ended(state, resource, index, attempt, orphan)

    def _spare(self, orphan: Orphan) -> None:
        adopting = self._state.adopting
        adopting.add(orphan.run)
        asyncio.get_running_loop().call_later(SPARED_S, adopting.discard, orphan.run)


def _is_named(state: State, provider: str) -> bool:
    """Whether work of this store is, was or may be there. The default is where nobody says so."""
    if provider == DEFAULT_PROVIDER or any(
        f'"{provider}"' in one.spec for one in state.store.resources.list()
    ):
        return True
    histories = [it.work.history for it in state.tracks.values() if it.work is not None]
    return any(run.provider == provider for it in histories for run in it.live.values())


def _has_record(state: State, orphan: Orphan) -> bool:
    return any(orphan.run in (run.name, run.sandbox) for run, _ in state.store.runs.of(orphan.uid))


def _attempt_of(state: State, orphan: Orphan, index: int) -> int | None:
    """Which attempt of its unit has this name; None for a name that is not of our making."""
    store_id = state.store.store_id
    for attempt in range(1, ATTEMPTS_MAX + 1):
        if run_name(store_id, orphan.uid, index, attempt) == orphan.run:
            return attempt
    return None
