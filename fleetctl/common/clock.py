"""The only module that reads the time. Called by the engine, the stores and the CLI; never by
controllers.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds since the epoch, UTC."""
        ...


class SystemClock:
    """Wall time at the start of this process plus monotonic time since.

    A jump of the wall clock inside a process's life neither kills nor prolongs work (I17);
    across restarts, deadlines are wall times in the store.
    """

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def now_s(self) -> float:
        return self._offset_s + time.monotonic()


_: type[Clock] = SystemClock
