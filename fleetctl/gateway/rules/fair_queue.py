"""A queue for slots: round robin over objects, and over the tasks of an object; pure."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A fair queue of waiters. Each waiter stands in a line, in order of arrival; either all
    waiters of a line may go, or the whole line waits.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, OrderedDict[str, OrderedDict[T, None]]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        for lines in self._waiting.values():
            for line in lines.values():
                yield from line

    def add(
        self,
        owner: str,
        waiter: T,
        line: str = "",
    ) -> None:
        lines = self._waiting.setdefault(owner, OrderedDict())
        lines.setdefault(line, OrderedDict())[waiter] = None
        self._length += 1

    def discard(
        self,
        owner: str,
        waiter: T,
        line: str = "",
    ) -> None:
        lines = self._waiting.get(owner, OrderedDict())
        if waiter not in lines.get(line, ()):
            return
        del lines[line][waiter]
        self._length -= 1
        if not lines[line]:
            del lines[line]
        if not lines:
            del self._waiting[owner]

    def take(self, may: Callable[[T], bool] = lambda _: True) -> T | None:
        """Takes the next waiter in turn that `may` go; its owner goes to the end of the round."""
        for owner, lines in self._waiting.items():
            for name, line in lines.items():
                waiter = next(iter(line))
                if may(waiter):
                    self.discard(owner, waiter, name)
                    if name in lines:
                        lines.move_to_end(name)
                    if owner in self._waiting:
                        self._waiting.move_to_end(owner)
                    return waiter
        return None
