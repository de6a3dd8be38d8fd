"""The stores that the contract suite runs over, and small things to put into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.stores.sqlite.store import MemoryDatabase, SqliteStore, open_memory_store, open_store


class FixedClock:
    def now_s(self) -> float:
        return 1_000.0


@dataclass
class World:
    """A store, and the power to crash and reopen it."""

    open: Callable[..., SqliteStore]
    store: SqliteStore

    def crash(self, **hooks: Callable[[], None]) -> SqliteStore:
        """Abandon the writer as a killed process does, and open what it left behind."""
        self.store = self.open(**hooks)
        return self.store


def _on_disk(tmp_path: Path) -> Iterator[World]:
    opened: list[SqliteStore] = []

    def reopen(**hooks: Callable[[], None]) -> SqliteStore:
        while opened:
            opened.pop().close()
        opened.append(open_store(tmp_path / "home", FixedClock(), **hooks))
        return opened[0]

    yield World(reopen, reopen())
    opened.pop().close()


def _in_memory(tmp_path: Path) -> Iterator[World]:
    database = MemoryDatabase()

    def reopen(**hooks: Callable[[], None]) -> SqliteStore:
        return open_memory_store(FixedClock(), database, **hooks)

    yield World(reopen, reopen())


WORLDS = {"sqlite": _on_disk, "memory": _in_memory}


def job(uid: str = "u1", name: str = "chunks", **changes: object) -> Resource:
    made = Resource(uid, "BatchJob", name, 1, 0, '{"a":1}', "{}", {"team": "rlm"}, {"n": "1"}, 5.0)
    return replace(made, **changes)  # type: ignore[arg-type]


def run(index: int = 0, attempt: int = 1, uid: str = "u1", **changes: object) -> Run:
    name = f"fl-{uid}-{index}-{attempt}"
    made = Run(
        name, uid, index, attempt, RunState.STARTING, "local", name, "hash", '{"x":1}', "p", 6.0
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def put(store: SqliteStore, resource: Resource) -> Resource:
    with store.transaction():
        return store.resources.put(resource, expected_version=None)


def begin(store: SqliteStore, *runs: Run) -> None:
    with store.transaction():
        store.runs.begin(runs)
