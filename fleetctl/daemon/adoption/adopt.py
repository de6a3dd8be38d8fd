"""Adoption: a sandbox that carries a tag of ours, and that no record knows, becomes a run.

Called by the socket server. The sandbox is claimed first, so that every later step finds it to be
ours; then its run is recorded (enroll.py), and the next pass follows it as it does after a restart.
targets.py finds its object; where that is missing, shelter.py makes one that starts no work by
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError
from fleetctl.controllers.model import Resource
from fleetctl.daemon.adoption.enroll import enrol_orphan, enrol_sheltered
from fleetctl.daemon.adoption.targets import find_adoption_target, find_named, index_of, uid_for
from fleetctl.providers.contract.orphans import Orphan, Orphans

if TYPE_CHECKING:
    from fleetctl.engine.capacity.price_book import PriceBook
    from fleetctl.engine.shared.engine_state import EngineState


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
        known = self._remembered(orphan)
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

    def _remembered(self, orphan: Orphan) -> Resource | None:
        """Returns the object of its run, where an earlier adoption was cut off before the reply."""
        track = self._state.tracks.get(self._state.owner_of.get(orphan.run, ""))
        if track is None:
            return None
        return track.resource
