"""Who fetches what a Source names, and stores what follows from it: the same way as an apply.

Stated here and written in fleetctl/gitops, which knows git, files and what a manifest makes of an
object; the daemon hands it in.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from fleetctl.common.errors import FleetctlError
from fleetctl.controllers.model import Resource
from fleetctl.specs.kinds.source import SourceSpec


class Moved(FleetctlError):
    """Objects changed since the commit was read: nothing is stored, and it is read again."""


class Reading(Protocol):
    """A commit, fetched, loaded without an error, and what it would change."""

    @property
    def commit(self) -> str: ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of its manifests, a sentence each."""
        ...


@dataclass(frozen=True, slots=True)
class Kept:
    """rows: as they are stored by now. losses: why nothing was stored, for consent is missing.
    changed: how many were created, configured and pruned. objects: how many are kept in all. left:
    how many lost their manifest and stay, for nothing is pruned.
    """

    rows: tuple[Resource, ...] = ()
    losses: tuple[str, ...] = ()
    changed: dict[str, int] = field(default_factory=dict)
    objects: int = 0
    left: int = 0


class Keeper(Protocol):
    """Writes happen inside a transaction of the caller's."""

    async def tip(self, source: Resource, spec: SourceSpec) -> str:
        """The commit that the ref names now, 40 hex digits. Raises Refused where there is no such
        ref, and Unavailable.
        """
        ...

    async def read(self, source: Resource, spec: SourceSpec, commit: str) -> Reading:
        """All of it or nothing. Raises FleetctlError with all that is wrong; an error says which
        file and line.
        """
        ...

    def keep(
        self, reading: Reading, live: Collection[str], *, approved: bool, now_s: float
    ) -> Kept:
        """Store what follows from it. live: uids of objects that have runs now. Raises Moved where
        it was read for other objects than there are.
        """
        ...

    def release(self, source: Resource) -> tuple[Resource, ...]:
        """What it kept stays, and is nobody's from now on. The rows as they are stored by now."""
        ...

    async def forget(self, source: Resource) -> None:
        """The Source is gone: what was fetched for it goes."""
        ...
