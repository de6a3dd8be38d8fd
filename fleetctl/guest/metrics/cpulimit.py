"""Ends a call into the standard library that takes too much CPU time. Called by followed.py.

A user's expression may try for ever, and a supervisor does no other work meanwhile. CPython checks
for signals while it matches, so that a clock of the process whose handler raises ends the match; it
must be the main thread, where supervisors work.
"""

from __future__ import annotations

import _signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, TypeVar

    T = TypeVar("T")

TICK_S = 0.1  # of CPU time; a thousand times what an ordinary line takes


class TookTooLong(Exception):
    """A call took too much CPU time and was ended."""


class CpuLimit:
    """Limits the work of a `with` block. ticks: CPU time since its start."""

    def __init__(self) -> None:
        self.ticks = 0
        self._number = self._under_way = self._seen = 0
        self._before: Any = None

    def __enter__(self) -> CpuLimit:
        self.ticks = self._seen = 0
        self._before = _signal.signal(_signal.SIGPROF, self._tick)
        _signal.setitimer(_signal.ITIMER_PROF, TICK_S, TICK_S)
        return self

    def __exit__(self, *_: object) -> None:
        _signal.setitimer(_signal.ITIMER_PROF, 0.0)
        _signal.signal(_signal.SIGPROF, self._before or _signal.SIG_DFL)

    def call(self, function: Callable[[], T]) -> T:
        """Returns the function's value. Raises TookTooLong after a whole tick in the function."""
        self._number += 1
        try:
            self._under_way = self._number
            return function()
        finally:
            self._under_way = 0  # from here on the handler raises no error

    def _tick(self, *_: object) -> None:
        self.ticks += 1
        if self._under_way and self._under_way == self._seen:
            self._under_way = 0
            raise TookTooLong
        self._seen = self._under_way
