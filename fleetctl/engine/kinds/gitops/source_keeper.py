"""A keeper that fetches a Source's repository, and stores the resulting objects: the same way as an
apply.

Defined here and implemented in fleetctl/gitops, which knows git, files and how a manifest becomes
an object; the daemon passes it in.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from fleetctl.common.errors import FleetctlError
from fleetctl.controllers.model import Resource
from fleetctl.specs.kinds.source import SourceSpec


class ObjectsChanged(FleetctlError):
    """Objects changed since the commit was read: the store is unchanged, and the commit is read
    again.
    """


class SourceReading(Protocol):
    """A commit, fetched, loaded without an error, and what it would change."""

    @property
    def commit(self) -> str: ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns the warnings of its manifests, a sentence each."""
        ...


@dataclass(frozen=True, slots=True)
class SourceStoreResult:
    """rows: as they are stored by now. losses: why the store is unchanged, as consent is missing.
    changed: how many were created, configured and pruned. objects: how many are kept in all. left:
    how many lost their manifest and stay, as pruning is off.
    """

    rows: tuple[Resource, ...] = ()
    losses: tuple[str, ...] = ()
    changed: dict[str, int] = field(default_factory=dict)
    objects: int = 0
    left: int = 0


class SourceKeeper(Protocol):
    """Writes happen inside a transaction of the caller's."""

    async def tip(self, source: Resource, spec: SourceSpec) -> str:
        """Returns the commit that the ref names now, 40 hex digits. Raises Refused where there is
        no such ref, and Unavailable.
        """
        ...

    async def read(
        self,
        source: Resource,
        spec: SourceSpec,
        commit: str,
    ) -> SourceReading:
        """Reads the whole commit or fails. Raises FleetctlError with all problems; an error names
        its file and line.
        """
        ...

    def keep(
        self,
        reading: SourceReading,
        live: Collection[str],
        *,
        approved: bool,
        now_s: float,
    ) -> SourceStoreResult:
        """Stores the objects of a commit. live: uids of objects that have runs now. Raises Moved
        where it was read for other objects than exist now.
        """
        ...

    def release(self, source: Resource) -> tuple[Resource, ...]:
        """Releases its objects: they stay, without an owner from now on. Returns the rows as they
        are stored by now.
        """
        ...

    async def forget(self, source: Resource) -> None:
        """Removes the fetched data of a Source that is gone."""
        ...
