"""Who waits for a slot: in order of arrival within an object, round robin over objects; pure."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, owner: str, waiter: T) -> None:
        self._waiting.setdefault(owner, deque()).append(waiter)

    def discard(self, owner: str, waiter: T) -> None:
        line = self._waiting.get(owner)
        if line is not None and waiter in line:
            line.remove(waiter)
            if not line:
                del self._waiting[owner]

    def take(self, may: Callable[[T], bool] = lambda _: True) -> T | None:
        """The next whose turn it is and who `may` go; its owner goes to the end of the round."""
        for owner, line in self._waiting.items():
            for waiter in line:
                if may(waiter):
                    self.discard(owner, waiter)
                    if owner in self._waiting:
                        self._waiting.move_to_end(owner)
                    return waiter
        return None
