"""Stores notices until they are delivered. See base.py, whose transactions these verbs are called
in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fleetctl.controllers.kinds.notices.notice import Notice

# Delivered and given up ones that stay to be seen; about 1 KB each.
NOTICES_KEPT_MAX = 2000


class NoticeStore(Protocol):
    def add(self, notices: Sequence[Notice]) -> None:
        """Adds new notices: an existing row with this id, for this sink, stays as it is."""
        ...

    def waiting(self, *, after: int, count_max: int) -> Sequence[Notice]:
        """Returns unsent notices, neither delivered nor given up, the first with a number above
        `after`.
        """
        ...

    def advance(self, notices: Sequence[Notice]) -> None:
        """Writes state, tries, due_at_s, message, problem and ended_at_s of notices that still
        wait, by number. The newest NOTICES_KEPT_MAX finished ones stay.
        """
        ...
