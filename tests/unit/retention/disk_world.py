"""A home with a store and files of runs, as providers leave them. Used by the tests beside this."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fleetctl.common.clock import SystemClock
from fleetctl.controllers.kinds.retention_decision import RetentionLimits, RetentionSort
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.providers.paths import jobs_dir
from fleetctl.retention.cleaner import RetentionCleaner
from fleetctl.stores.sqlite.store import SqliteStore, open_store

NOTHING = {sort: RetentionLimits() for sort in RetentionSort}


class Disk:
    """Objects are over from the start unless `phase` says otherwise."""

    def __init__(self, home: Path) -> None:
        self.home, self.cleaner = home, RetentionCleaner(home)
        self.store: SqliteStore = open_store(home, SystemClock())

    def object(
        self, uid: str, *, phase: str = "Succeeded", ended_s: float = 100.0, spec: str = "{}",
        notes: dict[str, str] | None = None, kind: str = "BatchJob",
        made_s: float = 5.0,
    ) -> None:  # fmt: skip
        status = {"phase": phase, "observedGeneration": 1, "completionTime": ended_s}
        new = Resource(uid, kind, f"job-{uid}", 1, 0, spec, "{}", {}, notes or {}, made_s)
        with self.store.transaction():
            row = self.store.resources.put(new, expected_version=None)
            self.store.resources.put_status(uid, json.dumps(status), expected_version=row.version)

    def run(
        self, uid: str, name: str, *, state: RunState = RunState.SUCCEEDED, index: int = 0
    ) -> None:
        over = state not in (RunState.STARTING, RunState.RUNNING, RunState.STOPPING)
        row = Run(
            name, uid, index, 1, RunState.STARTING, "local", name, "hash", "{}", "p", 6.0,
            sandbox_open=not over, ended_at_s=90.0 if over else None,
        )  # fmt: skip
        with self.store.transaction():
            self.store.runs.begin([row])
            if state is not RunState.STARTING:
                self.store.runs.advance(row.__class__(**{**_fields(row), "state": state}))

    def write(self, path: str, size: int, at_s: float = 100.0, *, provider: str = "local") -> Path:
        """Below the provider's directory of jobs."""
        file = jobs_dir(self.home, provider) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(size))
        os.utime(file, (at_s, at_s))
        return file

    def goes(
        self, sort: RetentionSort, limits: RetentionLimits, now_s: float = 1_000.0
    ) -> list[str]:
        """Names of what a round would let go of, without what follows a blank."""
        found = self.cleaner.survey({**NOTHING, sort: limits}, now_s)[sort]
        return [it.item.name.split()[-1] for it in found.decision.goes]

    def let_go(self, sort: RetentionSort, limits: RetentionLimits, now_s: float = 1_000.0) -> None:
        found = self.cleaner.survey({**NOTHING, sort: limits}, now_s)[sort]
        for step in self.cleaner.steps(sort, [it.item for it in found.decision.goes]):
            self.cleaner.let_go(sort, step)


def _fields(row: Run) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__slots__}
