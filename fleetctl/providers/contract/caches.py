"""A provider's caches on this machine, and the files that runs left with it: for the limits of
`kind: Settings`. Optional; a row of its plugin names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

# An entry that was used within this time may be in use by a caller that has yet to write it down.
YOUNG_S = 3600.0


class CachedEntry(NamedTuple):
    """An entry of a cache. sort: a word of `limits.Sort` in controllers/kinds/retention. key: for
    `let_go`; of a work directory the uid of its object. used_s: since the epoch. held: why it may
    not go, or empty.
    """

    sort: str
    key: str
    name: str
    bytes: int
    used_s: float
    held: str = ""


class Caches(Protocol):
    """Built with the home. Both block: they are called in a thread."""

    def listed(self, over: Collection[str], now_s: float) -> Iterable[CachedEntry]:
        """Returns all entries. over: uids of objects that are over; an entry that any other uid
        uses is held.
        """
        ...

    def let_go(self, one: CachedEntry) -> bool:
        """Removes it, unless it was used since it was listed; False then. A later user gets it
        whole or makes it again, also when this is killed half-way.
        """
        ...
