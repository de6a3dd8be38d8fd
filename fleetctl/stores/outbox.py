"""Notices on their way: what a store keeps of them. See base.py, whose transactions these verbs are
called in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fleetctl.controllers.kinds.notices.notice import Notice

# Delivered and given up ones that stay to be seen; about 1 KB each.
NOTICES_KEPT_MAX = 2000


class NoticeStore(Protocol):
    def add(self, notices: Sequence[Notice]) -> None:
        """Those that are new: what is there with this id, for this sink, stays as it is."""
        ...

    def waiting(self, *, after: int, count_max: int) -> Sequence[Notice]:
        """Of those that are neither delivered nor given up, the first with a higher number."""
        ...

    def advance(self, notices: Sequence[Notice]) -> None:
        """Write state, tries, due_at_s, message, problem and ended_at_s of those that still wait,
        by number. Of what is over, the newest NOTICES_KEPT_MAX stay.
        """
        ...
