"""The supervisor's loop: calls back when a descriptor is ready, a child ends or time passes.

Single-threaded; its callbacks may not wait.
"""

from __future__ import annotations

import _signal
import os
import select
import time

from fleetctl.guest.supervision.processes import reap_children

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable


class Loop:
    def __init__(self, on_term: Callable[[], None]) -> None:
        """on_term: called after SIGTERM has arrived."""
        self._poll = select.poll()
        self._ready: dict[int, Callable[[], object]] = {}
        self._timers: dict[str, tuple[float, Callable[[], object]]] = {}
        self._children: dict[int, Callable[[int], object]] = {}
        self._on_term = on_term
        self._termed = False
        self._waker, writable = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(writable, False)
        _signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.signal(_signal.SIGTERM, self._note_term)
        self.watch(self._waker, self._take_wake)

    def watch(self, handle: int, act: Callable[[], object]) -> None:
        """Watches a descriptor. act: called when it is readable."""
        self._ready[handle] = act
        self._poll.register(handle, select.POLLIN)

    def watch_room(self, handle: int, act: Callable[[], object]) -> None:
        """Watches as `watch` does, for when the descriptor is writable."""
        self._ready[handle] = act
        self._poll.register(handle, select.POLLOUT)

    def forget(self, handle: int) -> None:
        del self._ready[handle]
        self._poll.unregister(handle)

    def after(
        self,
        name: str,
        delay_s: float,
        act: Callable[[], object],
    ) -> None:
        """Calls later. At most one call of each name is due; a later one replaces it."""
        self._timers[name] = (time.monotonic() + delay_s, act)

    def cancel(self, name: str) -> None:
        self._timers.pop(name, None)

    def waits_for(self, name: str) -> bool:
        return name in self._timers

    def watch_child(self, pid: int, act: Callable[[int], object]) -> None:
        """Watches a child. act: called with its wait status."""
        self._children[pid] = act

    def turn(self) -> None:
        """Waits for an event and calls what is due."""
        for handle, _ in self._poll.poll(self._wait_ms()):
            act = self._ready.get(handle)
            if act is not None:
                act()
        now_s = time.monotonic()
        for name, (at_s, act) in list(self._timers.items()):
            if at_s <= now_s and self._timers.get(name, (0.0, None))[1] is act:
                del self._timers[name]
                act()

    def _wait_ms(self) -> float:
        if not self._timers:
            return -1
        soonest_s = min(at_s for at_s, _ in self._timers.values())
        return max(0.0, soonest_s - time.monotonic()) * 1000 + 0.5

    def _note_term(self, *_: object) -> None:
        self._termed = True

    def _take_wake(self) -> None:
        os.read(self._waker, 4096)
        if self._termed:  # before the children: they may have received the same signal
            self._termed = False
            self._on_term()
        self._reap()

    def _reap(self) -> None:
        for pid, status in reap_children():
            act = self._children.pop(pid, None)
            if act is not None:
                act(status)
