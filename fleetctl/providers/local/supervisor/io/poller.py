"""Waits for descriptors to become readable. Does what `selectors` does, without its objects.

The supervisor's memory is shared with the tasks that it forks: memory that it touches for a task
must be copied for each task, so its inner loop makes do with little.
"""

from __future__ import annotations

import select
from typing import Any, Callable, Optional

Act = Callable[..., Any]


class Poller:
    def __init__(self) -> None:
        self._acts: dict[int, tuple[Act, tuple[Any, ...]]] = {}
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._poll = None if self._epoll else select.poll()

    def watch(
        self,
        descriptor: int,
        act: Act,
        *arguments: Any,
    ) -> None:
        """Calls `act(*arguments)` whenever there is data to read, or the other end closed."""
        self._acts[descriptor] = (act, arguments)
        if self._epoll is not None:
            self._epoll.register(descriptor, select.EPOLLIN)
        elif self._poll is not None:
            self._poll.register(descriptor, select.POLLIN)

    def forget(self, descriptor: int) -> None:
        """Stops watching a descriptor; to be called before it is closed."""
        del self._acts[descriptor]
        if self._epoll is not None:
            self._epoll.unregister(descriptor)
        elif self._poll is not None:
            self._poll.unregister(descriptor)

    def wait(self, timeout_s: Optional[float]) -> None:
        """Waits once, and acts on all that is readable."""
        for descriptor, _ in self._ready(timeout_s):
            act = self._acts.get(descriptor)  # an earlier act may have made it be forgotten
            if act is not None:
                act[0](*act[1])

    def _ready(self, timeout_s: Optional[float]) -> list[tuple[int, int]]:
        if self._epoll is not None:
            return self._epoll.poll(-1 if timeout_s is None else timeout_s)
        assert self._poll is not None
        return self._poll.poll(None if timeout_s is None else timeout_s * 1000)
