"""A store that is written only while this process leads: an action that is not durable is never
carried out, so that a leader whose lease is over starts no more work.
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


class _FencedStore:
    """A store that checks the lease at the end of each transaction; the rest is the store's own."""

    def __init__(self, store: Store, leads: Callable[[], bool]) -> None:
        self._store = store
        self._leads = leads
        # Asked for dozens of times for each object.
        self.resources, self.runs = store.resources, store.runs
        self.cache, self.events = store.cache, store.events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._store.transaction():
            yield
            # Last of all: a pass may have taken long, and what follows makes it durable.
            if not self._leads():
                raise LeaseLost(
                    "the lease has expired; nothing was written",
                    hint="another operator works now, or this one once it is started again",
                )


def fence_store(store: Store, leads: Callable[[], bool]) -> Store:
    return cast("Store", _FencedStore(store, leads))
