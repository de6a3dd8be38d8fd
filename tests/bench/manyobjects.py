"""A store with many finished jobs, as the engine leaves them, written in one go."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.stores.base import EventRow, Store
from fleetctl.stores.sqlite.store import open_store

EVENTS_EACH = 2
TEMPLATE_HASH = "5883771e21747238"
RUNS_EACH = 5


def build(home: Path, count: int, *, runs: int = RUNS_EACH, local: bool = False) -> None:
    """local: with what provider `local` leaves of each job that the engine meets again: the
    directory of a supervisor, which has left and taken its socket away.
    """
    store = open_store(home, SystemClock())
    now_s = SystemClock().now_s()
    status = json.dumps(_status(now_s, runs))
    with store.transaction():
        for number in range(count):
            uid = f"{number:016x}"
            row = Resource(
                uid=uid, kind="BatchJob", name=f"job-{number}", generation=1, version=0,
                spec=json.dumps({"completions": runs, "template": {"python": "SUBMIT(n=1)\n"}}),
                status="", labels={"team": "rlm"}, annotations={}, created_at_s=now_s,
            )  # fmt: skip
            stored = store.resources.put(row, expected_version=None)
            version = store.resources.put_status(row.uid, status, expected_version=stored.version)
            assert version is not None
            store.sleep.put(row.uid, until_s=None, expected_version=version)
            _record_runs(store, uid, runs, now_s)
            store.events.record(
                [
                    EventRow(row.uid, now_s, "Normal", "Created", f"batchjob/{row.name} created"),
                    EventRow(row.uid, now_s, "Normal", "Completed", "5 of 5 tasks succeeded"),
                ]
            )
            if local:
                _leave_behind(home / "local", uid)
    store.close()


def _record_runs(store: Store, uid: str, runs: int, now_s: float) -> None:
    begun = [
        Run(
            name=f"fl-{uid}-{index}", uid=uid, index=index, attempt=1, state=RunState.STARTING,
            provider="local", sandbox=f"fl-{uid}-{index}", template_hash=TEMPLATE_HASH,
            params="{}", params_hash="44136fa355b3678a", created_at_s=now_s, usd_per_s=0.0,
        )
        for index in range(runs)
    ]  # fmt: skip
    store.runs.begin(begun)
    for run in begun:
        ended = replace(
            run, state=RunState.SUCCEEDED, handle=f"{uid}.{TEMPLATE_HASH}/61ec0577b41e191a",
            started_at_s=now_s, ended_at_s=now_s, reason="Completed", exit_code=0, usd=0.0,
            journal_offset=486,
        )  # fmt: skip
        store.runs.advance(ended, result='{"n":1}')


def _leave_behind(local: Path, uid: str) -> None:
    supervisor = local / "keepers" / f"{uid}.{TEMPLATE_HASH}"
    supervisor.mkdir(parents=True)
    held = {
        "keeper": f"{supervisor.name}/61ec0577b41e191a",
        "boot": "of-another-time",
        "mark_base": 1,
    }
    for name, text in (("lock", json.dumps(held)), ("config.json", "{}")):
        (supervisor / name).write_text(text)


def _status(now_s: float, total: int) -> dict[str, object]:
    complete = {"type": "Complete", "status": "True", "reason": "Completed"}
    message = f"{total} of {total} tasks succeeded"
    return {
        "phase": "Succeeded", "reason": "Completed", "message": message, "observedGeneration": 1,
        "total": total, "active": 0, "starting": 0, "stopping": 0, "succeeded": total, "failed": 0,
        "cached": 0, "retries": 0, "infraFailures": 0, "completedIndexes": f"0-{total - 1}",
        "failedIndexes": "", "cost": {"actual": 0.12, "reserved": 0.0, "unpricedRuns": 0},
        "startTime": now_s, "activeSince": now_s, "completionTime": now_s,
        "firstResultTime": now_s, "waitingOn": [], "where": {}, "isolation": "namespaces+landlock",
        "placement": [{"provider": "local", "live": 0, "total": total}], "scratchFreed": False,
        "conditions": [{**complete, "message": message, "lastTransitionTime": now_s}],
    }  # fmt: skip
