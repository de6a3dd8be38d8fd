"""Adoption: a sandbox that carries a tag of ours, and that no record knows, becomes a run.

Called by the socket server. The sandbox is claimed first, so that all that follows finds it to be
ours; then its run is written down (enroll.py), and the next pass follows it as it does after a
restart. Where it belongs is found in targets.py; where its object is not there, one is made for it
that starts nothing by itself (shelter.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError
from fleetctl.controllers.model import Resource
from fleetctl.daemon.adoption.enroll import enrol, enrol_sheltered
from fleetctl.daemon.adoption.targets import home_of, index_of, named, uid_for
from fleetctl.providers.contract.orphans import Orphan, Orphans

if TYPE_CHECKING:
    from fleetctl.engine.capacity.prices import Market
    from fleetctl.engine.shared.state import State


@dataclass(frozen=True, slots=True)
class Adopted:
    """What became of one orphan: why is empty for one that was adopted."""

    orphan: Orphan
    key: str = ""  # of its object
    index: int = -1
    made: bool = False  # the object was made for it
    why: str = ""
    hint: str = ""


class Adopter:
    """orphans_of: what a provider knows of sandboxes that nobody may remember."""

    def __init__(self, state: State, market: Market, orphans_of: Callable[[str], Orphans]) -> None:
        self._state, self._market = state, market
        self._orphans_of = orphans_of

    async def adopt(self, orphans: Sequence[Orphan], into: str = "") -> list[Adopted]:
        """Each by itself: one that cannot be adopted says why and stops no other.

        into: the key of the object that they belong to, as a person says; raises NotFound.
        """
        if into:
            named(self._state.store, into)
        done = []
        for orphan in orphans:
            self._state.adopting.add(orphan.run)
            try:
                done.append(await self._adopt(orphan, into))
            except FleetctlError as error:
                done.append(Adopted(orphan, why=str(error), hint=error.hint))
            finally:
                self._state.adopting.discard(orphan.run)
        self._state.inbox.wake()
        return done

    async def _adopt(self, orphan: Orphan, into: str) -> Adopted:
        state, known = self._state, self._remembered(orphan)
        if known is not None:
            await self._claim(orphan, known.uid)
            return Adopted(orphan, known.key, index_of(orphan) or 0)
        home = home_of(state, orphan, into)
        uid = home.resource.uid if home.resource is not None else uid_for(state.store, orphan)
        await self._claim(orphan, uid)
        # Others may have changed the object while the provider was asked.
        home = home_of(state, orphan, into) if home.resource is not None else home
        if home.resource is None or home.taking is None:
            made = enrol_sheltered(state, self._market, orphan, uid)
            return Adopted(orphan, made.key, 0, made=True)
        enrol(state, self._market, home.resource, home.taking, orphan)
        return Adopted(orphan, home.resource.key, home.taking.unit.index)

    async def _claim(self, orphan: Orphan, uid: str) -> None:
        orphans = self._orphans_of(orphan.provider)
        try:
            await orphans.claim(orphan, self._state.store.store_id, uid)
        finally:
            await orphans.close()

    def _remembered(self, orphan: Orphan) -> Resource | None:
        """The object of its run, where an earlier adoption was cut off before the answer."""
        track = self._state.tracks.get(self._state.owner_of.get(orphan.run, ""))
        return None if track is None else track.resource
