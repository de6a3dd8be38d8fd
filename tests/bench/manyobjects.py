"""A store with many finished jobs, as the engine leaves them, written in one go."""

from __future__ import annotations

import json
from pathlib import Path

from controllers.model import Resource
from fleetctl.clock import SystemClock
from fleetctl.stores.base import EventRow
from fleetctl.stores.sqlite import open_store

EVENTS_EACH = 2


def build(home: Path, count: int) -> None:
    store = open_store(home, SystemClock())
    now_s = SystemClock().now_s()
    status = json.dumps(_status(now_s))
    with store.transaction():
        for number in range(count):
            row = Resource(
                uid=f"u-{number}", kind="BatchJob", name=f"job-{number}", generation=1, version=0,
                spec=json.dumps({"tasks": {"completions": 5}, "template": {"python": "..."}}),
                status="", labels={"team": "rlm"}, annotations={}, created_at_s=now_s,
            )  # fmt: skip
            stored = store.resources.put(row, expected_version=None)
            store.resources.put_status(row.uid, status, expected_version=stored.version)
            store.events.record(
                [
                    EventRow(row.uid, now_s, "Normal", "Created", f"batchjob/{row.name} created"),
                    EventRow(row.uid, now_s, "Normal", "Completed", "5 of 5 tasks succeeded"),
                ]
            )
    store.close()


def _status(now_s: float) -> dict[str, object]:
    complete = {"type": "Complete", "status": "True", "reason": "Completed", "message": "5 of 5"}
    return {
        "phase": "Succeeded", "reason": "Completed", "message": "", "observedGeneration": 1,
        "total": 5, "active": 0, "starting": 0, "stopping": 0, "succeeded": 5, "failed": 0,
        "cached": 0, "retries": 0, "infraFailures": 0, "completedIndexes": "0-4",
        "failedIndexes": "", "cost": {"actual": 0.12, "reserved": 0.0, "unpricedRuns": 0},
        "startTime": now_s, "activeSince": now_s, "completionTime": now_s,
        "firstResultTime": now_s, "waitingOn": [], "where": {}, "isolation": "namespaces+landlock",
        "placement": [{"provider": "local", "live": 0, "total": 5}], "scratchFreed": False,
        "conditions": [{**complete, "lastTransitionTime": now_s}],
    }  # fmt: skip
