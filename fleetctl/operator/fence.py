"""A store that is written only while this process leads: what is not durable is never carried out,
so that a leader whose lease is over starts nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from fleetctl.common.errors import StoreError

if TYPE_CHECKING:
    from fleetctl.stores.base import Store


class LeaseLost(StoreError):
    """Another operator may lead by now. This process never writes again."""

    final = True


class _Fenced:
    """Everything of the store but its transactions is as it was."""

    def __init__(self, store: Store, leads: Callable[[], bool]) -> None:
        self._store, self._leads = store, leads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._store.transaction():
            yield
            # Last of all: a pass may have taken long, and what follows makes it durable.
            if not self._leads():
                raise LeaseLost("the lease is over; nothing was written")


def fenced(store: Store, leads: Callable[[], bool]) -> Store:
    return cast("Store", _Fenced(store, leads))
