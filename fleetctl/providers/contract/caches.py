"""What a provider keeps on this machine for the next use, and what runs left with it: for the
limits of `kind: Settings`. Optional; a row of its plugin names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

# What was used within this may be in use by somebody who has yet to write it down.
YOUNG_S = 3600.0


class Cached(NamedTuple):
    """sort: a word of `limits.Sort` in controllers/kinds/retention. key: for `let_go`; of a work
    directory the uid of its object. used_s: since the epoch. held: why it may not go, or empty.
    """

    sort: str
    key: str
    name: str
    bytes: int
    used_s: float
    held: str = ""


class Caches(Protocol):
    """Built with the home. Both block: they are called in a thread."""

    def listed(self, over: Collection[str], now_s: float) -> Iterable[Cached]:
        """All of it. over: uids of objects that are over; what any other uses is held."""
        ...

    def let_go(self, one: Cached) -> bool:
        """Remove it, unless it was used since it was listed; False then. Whoever wants it gets it
        whole or makes it anew, also when this is killed half-way.
        """
        ...
