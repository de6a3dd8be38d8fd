"""The committed state of the store, read back through its own verbs after each commit."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fleetctl.controllers.model import LIVE_STATES, Resource, Run
from fleetctl.specs.values.namespaces import asset_name
from fleetctl.stores.base import Store
from fleetctl.stores.sqlite.store import SqliteStore


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What would be found after a crash now."""

    resources: dict[str, Resource] = field(default_factory=dict)  # by uid
    runs: dict[str, Run] = field(default_factory=dict)  # by name
    results: dict[str, str | None] = field(default_factory=dict)  # by run name
    # What each run was charged, by name; also of objects that are gone.
    kept: dict[str, float | None] = field(default_factory=dict)

    ledger_usd: float = 0.0  # the charges of all days together
    cached: frozenset[str] = frozenset()  # runs whose success equal work may take over

    # What runs of searches have reported that decide by it while they run, by run name.
    reported: dict[str, list[float]] = field(default_factory=dict)

    # Filled by the first question of each sort, as some thirty checks ask about each commit.
    _by_uid: dict[str, list[Run]] = field(default_factory=dict, compare=False)
    _units: dict[tuple[str, int], list[Run]] = field(default_factory=dict, compare=False)

    def runs_of(self, uid: str) -> list[Run]:
        if not self._by_uid:
            for run in self.runs.values():
                self._by_uid.setdefault(run.uid, []).append(run)
        return self._by_uid.get(uid, [])

    def live_of(self, uid: str) -> list[Run]:
        return [run for run in self.runs_of(uid) if run.state in LIVE_STATES]

    def units(self) -> Iterable[tuple[tuple[str, int], list[Run]]]:
        """The runs of each unit, by attempt."""
        if not self._units:
            for run in self.runs.values():
                self._units.setdefault((run.uid, run.index), []).append(run)
            for runs in self._units.values():
                runs.sort(key=lambda run: run.attempt)
        return self._units.items()

    def find(self, kind: str, name: str) -> Resource | None:
        """The living resource of that name, which has its namespace before a dot."""
        for resource in self.resources.values():
            called = asset_name(resource.name, resource.namespace)
            if (resource.kind, called) == (kind, name) and resource.deleted_at_s is None:
                return resource
        return None


EMPTY = Snapshot()


def read(store: Store) -> Snapshot:
    assert isinstance(store, SqliteStore)
    state = store._session.state  # no verb of the engine's reads what is gone
    snapshot = Snapshot(
        ledger_usd=sum(entry.usd for entry in store.ledger.entries()),
        cached=frozenset(run for (run,) in state.execute("SELECT run FROM cache")),
    )
    for resource in store.resources.list():
        snapshot.resources[resource.uid] = resource
        for run, result in store.runs.of(resource.uid):
            snapshot.runs[run.name] = run
            snapshot.results[run.name] = result
            if any(word in resource.spec for word in ('"early_terminate"', '"target"')):
                found = store.runs.metrics_of(run.name)
                snapshot.reported[run.name] = [it.value for it in found if it.name == "loss"]
    snapshot.kept.update(state.execute("SELECT name, usd FROM runs"))
    return snapshot


@lru_cache(maxsize=4096)
def parsed(text: str) -> dict[str, Any]:
    """A spec or status; empty when it is none or cannot be read."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def status(resource: Resource) -> dict[str, Any]:
    return parsed(resource.status)


def spec(resource: Resource) -> dict[str, Any]:
    return parsed(resource.spec)
