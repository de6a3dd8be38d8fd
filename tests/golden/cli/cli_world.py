"""A store that shows every state a screen has to tell about. Times are fixed; see NOW_S."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fleetctl.controllers.kinds.notices import Notice, NoticeState
from fleetctl.controllers.model import LIVE_STATES, Metric, Resource, Run, RunState, SavedCheckpoint
from fleetctl.providers.rundir.build_logs import link_log
from fleetctl.stores.base import CallSums, EndpointUsage, EventRow
from fleetctl.stores.sqlite.store import SqliteStore, open_store

NOW_S = 1_800_000_000.0
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0

TRACEBACK = """Traceback (most recent call last):
  File "<task>", line 3, in <module>
    image = shrink(open(path, "rb").read())
  File "<task>", line 1, in shrink
    raise ValueError("not an image: \x1b[31mred\x1b[0m \u202ereversed")
ValueError: not an image: \x1b[31mred\x1b[0m \u202ereversed
"""

# Longer than a screen shows; one line is of no human's length.
PROGRAM = f"blob = {'x' * 170!r}\n" + "step()\n" * 8


class FixedClock:
    def now_s(self) -> float:
        return NOW_S


def build(home: Path) -> None:
    store = open_store(home, FixedClock())
    with store.transaction():
        for add in (_nightly, _resize, _embed, _big, _paused, _refused, _fresh, _leaving):
            add(store)
        for add in (
            _learning_rate,
            _seed_sweep,
            _pretrain,
            _assets,
            _budgeted,
            _served,
            _hostile,
            _scheduled,
            _settled,
            _notified,
            _kept,
        ):
            add(store)
    store.close()
    _write_logs(home)
    _write_build_log(home)
    _write_volume(home / "local" / "volumes" / "ckpt")


def _put(
    store: SqliteStore,
    kind: str,
    name: str,
    *,
    age_s: float,
    status: dict[str, object] | None = None,
    spec: dict[str, object] | None = None,
    labels: dict[str, str] | None = None,
    deleted: bool = False,
    namespace: str = "default",
) -> str:
    uid = f"u-{name}"
    filled = {"observedGeneration": 1, "active": 0, "succeeded": 0, "failed": 0, **(status or {})}
    row = Resource(
        uid=uid, kind=kind, name=name, generation=1, version=0,
        spec=json.dumps(spec if spec is not None else {"template": {"python": "..."}}),
        status="", labels=labels or {}, annotations={}, created_at_s=NOW_S - age_s,
        deleted_at_s=None, namespace=namespace,
    )  # fmt: skip
    stored = store.resources.put(row, expected_version=None)
    if status is not None:
        version = store.resources.put_status(
            uid, json.dumps(filled), expected_version=stored.version
        )
        assert version is not None
        stored = Resource(**{**_fields(stored), "version": version, "status": json.dumps(filled)})
    if deleted:
        gone = Resource(**{**_fields(stored), "deleted_at_s": NOW_S - 20})
        store.resources.put(gone, expected_version=stored.version)
    return uid


def _fields(resource: Resource) -> dict[str, object]:
    return {name: getattr(resource, name) for name in Resource.__slots__}


def _run(
    store: SqliteStore,
    uid: str,
    index: int,
    *,
    attempt: int = 1,
    state: RunState = RunState.SUCCEEDED,
    params: dict[str, object] | None = None,
    result: dict[str, object] | None = None,
    reason: str = "Completed",
    message: str = "",
    exit_code: int | None = 0,
    began_s: float = 20 * MINUTE_S,
    took_s: float | None = 41.0,
    metrics: tuple[Metric, ...] = (),
    saved: tuple[SavedCheckpoint, ...] = (),
    provider: str = "local",
    handle: str = "",
) -> None:
    name = f"{uid}-{index}-{attempt}"
    started = NOW_S - began_s
    if state in LIVE_STATES:
        reason, exit_code, took_s = "", None, None
    run = Run(
        name=name, uid=uid, index=index, attempt=attempt, state=RunState.STARTING,
        provider=provider, sandbox=name, template_hash="t", params=json.dumps(params or {}),
        params_hash="p", created_at_s=started - 0.2,
    )  # fmt: skip
    store.runs.begin([run])
    ended = None if took_s is None else started + took_s
    done = Run(
        **{
            **{field: getattr(run, field) for field in Run.__slots__},
            "state": state, "reason": reason, "message": message, "exit_code": exit_code,
            "started_at_s": None if state is RunState.STARTING else started,
            "ended_at_s": ended, "handle": handle or f"h-{name}",
        }
    )  # fmt: skip
    text = None if result is None else json.dumps(result)
    assert store.runs.advance(done, result=text, metrics=metrics, saved=saved)


def _nightly(store: SqliteStore) -> None:
    uid = _put(store, "BatchJob", "nightly-ev", age_s=9 * HOUR_S, labels={"team": "eval"}, status={
        "phase": "Succeeded", "reason": "Completed", "total": 3, "succeeded": 3, "retries": 1,
        "infraFailures": 1, "completedIndexes": "0-2", "startTime": NOW_S - 9 * HOUR_S,
        "completionTime": NOW_S - 9 * HOUR_S + 182.4, "isolation": "namespaces+landlock",
        "where": {}, "placement": [
            {"provider": "local", "live": 0, "total": 3},
            {"provider": "slurm", "live": 0, "total": 1},
        ],
        "conditions": [{"type": "Complete", "status": "True", "reason": "Completed",
                        "message": "3 of 3", "lastTransitionTime": NOW_S - 8 * HOUR_S}],
    })  # fmt: skip
    _run(
        store, uid, 0, params={"chunk_id": 0, "data": [1, 2, 3]}, result={"chunk_id": 0, "count": 3}
    )
    _run(store, uid, 1, state=RunState.LOST, reason="ProviderLost", exit_code=None, took_s=3.2,
         params={"chunk_id": 1, "data": [4]})  # fmt: skip
    _run(store, uid, 1, attempt=2, params={"chunk_id": 1, "data": [4]},
         result={"chunk_id": 1, "count": 1, "note": "a b"})  # fmt: skip
    _run(store, uid, 2, params={"chunk_id": 2, "data": []}, result={"chunk_id": 2, "count": 0},
         provider="slurm", handle="4711/box@a")  # fmt: skip


def _resize(store: SqliteStore) -> None:
    uid = _put(store, "BatchJob", "resize", age_s=3 * HOUR_S, status={
        "phase": "Failed", "reason": "MaxFailedIndexesExceeded", "total": 4, "succeeded": 2,
        "cost": {"actual": 0.4521, "unpricedRuns": 1},
        "failed": 2, "retries": 2, "completedIndexes": "0-1", "failedIndexes": "2-3",
        "message": "2 tasks failed, more than maxFailedIndexes 1",
        "startTime": NOW_S - 3 * HOUR_S, "completionTime": NOW_S - 3 * HOUR_S + 59,
        "lastFailure": {"index": 3, "attempt": 1, "reason": "Error"},
    })  # fmt: skip
    for index in (0, 1):
        _run(store, uid, index, began_s=2 * HOUR_S, result={"path": f"{index}.png"})
    for attempt in (1, 2, 3):
        _run(store, uid, 2, attempt=attempt, state=RunState.FAILED, reason="OOMKilled",
             message="killed: more than 512 MiB of memory", exit_code=137,
             began_s=2 * HOUR_S)  # fmt: skip
    _run(store, uid, 3, state=RunState.FAILED, reason="Error", message=TRACEBACK, exit_code=1,
         began_s=HOUR_S, took_s=3.0)  # fmt: skip


def _embed(store: SqliteStore) -> None:
    labels = {"team": "rlm"}
    uid = _put(store, "BatchJob", "embed-docs", age_s=18 * MINUTE_S, labels=labels, status={
        "phase": "Running", "reason": "InProgress", "total": 6, "succeeded": 1, "active": 2,
        "completedIndexes": "0", "where": {"local": 2}, "isolation": "namespaces",
        "startTime": NOW_S - 18 * MINUTE_S, "retries": 1, "gpu": "H100:1",
        "workedSeconds": 41.0, "workingSince": NOW_S - 12 * MINUTE_S,
        "waitingOn": ["task 3: backing off for 4 s after ExitCode:2"],
        "lastFailure": {"index": 3, "attempt": 1, "reason": "ExitCode:2"},
    }, spec={
        "parameters": {"shard": list(range(6))}, "parallelism": 2,
        "template": {"python": PROGRAM, "resources": {"gpu": {"type": "H100", "count": 1}}},
    })  # fmt: skip
    _run(store, uid, 0, result={"rows": 7})
    _run(store, uid, 1, state=RunState.RUNNING)
    _run(store, uid, 2, state=RunState.STARTING)
    _run(
        store,
        uid,
        3,
        state=RunState.FAILED,
        reason="ExitCode:2",
        exit_code=2,
        message="exit code 2",
    )
    store.events.record([
        EventRow(uid, NOW_S - 17 * MINUTE_S, "Normal", "Created", "batchjob/embed-docs created"),
        EventRow(uid, NOW_S - 40, "Warning", "TaskFailed", "task 3 attempt 1: ExitCode:2", 3),
    ])  # fmt: skip


def _big(store: SqliteStore) -> None:
    need = "task 0: needs 8 GPUs of any kind, this machine has 0"
    _put(store, "BatchJob", "big-eval", age_s=2 * MINUTE_S, status={
        "phase": "Pending", "reason": "NoCapacity", "message": need.removeprefix("task 0: "),
        "total": 2000, "active": 1,
        "waitingOn": [need, "1 run is being stopped"],
    })  # fmt: skip


def _budgeted(store: SqliteStore) -> None:
    """A budget that is nearly used up, and a job that waits for more of it."""
    until_s = NOW_S + 13 * DAY_S
    _put(store, "Budget", "team-vision", age_s=9 * DAY_S, spec={
        "selector": {"team": "vision"}, "maxCost": 500, "warnAt": [50, 80],
    }, status={
        "phase": "Ready", "reason": "Ready", "used": 431.5, "reserved": 61.2, "left": 7.3,
        "maxCost": 500.0, "state": "Warning", "unpricedSeconds": 0.0, "warned": 80,
        "since": NOW_S - 17 * DAY_S, "until": until_s,
    })  # fmt: skip
    text = "the next task may cost $9.00, budget/team-vision has $7.30 of $500.00 left"
    message = f"{text} until 2027-01-28"
    _put(store, "BatchJob", "sketch", age_s=2 * MINUTE_S, labels={"team": "vision"}, status={
        "phase": "Pending", "reason": "BudgetExhausted", "total": 40,
        "message": message, "hint": "fleetctl set budget/team-vision maxCost=510",
        "waitingOn": [message],
        "budget": {"maxCost": 60.0, "used": 0.0, "left": 60.0, "warned": 0},
        "cost": {"actual": 0.0, "reserved": 0.0, "unpricedRuns": 0,
                 "estimated": 81.0, "estimatedLow": 64.0, "estimatedHigh": 97.5},
        "conditions": [{
            "type": "BudgetOK", "status": "False", "reason": "BudgetExhausted", "message": message,
            "lastTransitionTime": NOW_S - 100,
        }],
    })  # fmt: skip


def _scheduled(store: SqliteStore) -> None:
    """One that waits for the end of the run before, and one that is suspended."""
    work = {"kind": "TrainingRun", "spec": {"template": {"script": "..."}}}
    running = "trainingrun/retrain-29999880"
    text = f"the run of 2027-01-15 08:45 CET waits for the end of {running}"
    _put(store, "Schedule", "retrain", age_s=9 * DAY_S, namespace="nights", spec={
        "schedule": "*/15 8-18 * * MON-FRI", "timeZone": "Europe/Berlin", "template": work,
        "concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 7200.0,
    }, status={
        "phase": "Pending", "reason": "Waiting", "message": text, "waitingOn": [text], "active": 1,
        "activeRuns": [running], "lastScheduleTime": NOW_S - HOUR_S, "missed": 3,
        "lastSuccessfulTime": NOW_S - 70 * MINUTE_S, "nextScheduleTime": NOW_S + 15 * MINUTE_S,
    })  # fmt: skip
    _put(store, "Schedule", "weekly", age_s=HOUR_S, namespace="nights", spec={
        "schedule": "@weekly", "suspend": True, "template": {**work, "kind": "Sweep"},
    }, status={
        "phase": "Suspended", "reason": "Suspended", "nextScheduleTime": None,
        "message": "suspend is set: nothing is started",
    })  # fmt: skip


def _settled(store: SqliteStore) -> None:
    """Settings whose newest backup failed."""
    text = "the backup failed: `s3://vision/fleet` cannot be reached to write: timed out"
    last = "s3://vision/fleet/fleetctl-0123456789ab-20270114T020000Z.backup"
    _put(store, "Settings", "default", age_s=9 * DAY_S, spec={
        "retention": {
            "finishedWork": {"maxAge": 14 * DAY_S, "maxSize": 2 << 30}, "logs": {"keepLast": 9},
        },
        "backup": {"schedule": "0 3 * * *", "timeZone": "Europe/Berlin", "to": "s3://vision/fleet"},
    }, status={
        "phase": "Pending", "reason": "BackupFailed", "message": text, "waitingOn": [text],
        "backup": {
            "times": "0 3 * * * Europe/Berlin", "decidedUntil": NOW_S - 30 * HOUR_S,
            "nextTime": NOW_S - 6 * HOUR_S, "lastSuccessfulTime": NOW_S - 30 * HOUR_S,
            "file": last, "bytes": 3 << 20, "lastFailureTime": NOW_S - MINUTE_S, "failures": 3,
            "error": text.removeprefix("the backup failed: "),
        },
        "retained": [
            {"sort": "logs", "items": 12, "bytes": 5 << 20, "freedBytes": 1 << 20},
            {"sort": "environments", "items": 2, "bytes": 3 << 30, "freedBytes": 0},
        ],
    })  # fmt: skip


def _notified(store: SqliteStore) -> None:
    """One notice that came, one that is tried again, and one that was given up."""
    uid = _put(store, "BatchJob", "told", age_s=9 * HOUR_S, namespace="nights", status={
        "phase": "Failed", "reason": "FailedIndexes", "message": "1 of 2 tasks failed", "total": 2,
        "succeeded": 1, "failed": 1,
    })  # fmt: skip
    ways = (
        ({"slack": {"secret": "chat"}}, NoticeState.DELIVERED, 1, ""),
        ({"webhook": {"url": "https://ci.example.org/t0ken"}}, NoticeState.WAITING, 3,
         "it answers 503"),
        ({"webhook": {"secret": "hook"}}, NoticeState.UNDELIVERED, 2, "it answers 410"),
    )  # fmt: skip
    at_s = NOW_S - 20 * MINUTE_S
    store.notices.add([
        Notice(
            id="msg_1", sink=json.dumps({"namespace": "nights", **how}), uid=uid,
            object="batchjob/told -n nights", namespace="nights", event="Failed",
            body=json.dumps({"id": "msg_1", "event": "Failed"}), at_s=at_s, state=state,
            deadline_s=at_s + DAY_S, tries=tries, problem=problem, message="msg_1",
            due_at_s=NOW_S + 5 * MINUTE_S,
            ended_at_s=None if state is NoticeState.WAITING else at_s + 3,
        )
        for how, state, tries, problem in ways
    ])  # fmt: skip


def _kept(store: SqliteStore) -> None:
    """A Source whose newest commit is wrong, one that waits for consent, and what one keeps."""
    good, newest = "3f2c1d9" + "0" * 33, "9b1e77a" + "0" * 33
    wrong = "jobs/embed.yaml:7:16: spec.parallelism is `-1`; it must be at least 0"
    text = f"{wrong}; the objects stay as at {good[:7]}"
    git = {"url": "https://git.example.org/team/fleet.git", "ref": "main", "path": "fleet"}
    _put(store, "Source", "fleet", age_s=9 * DAY_S, namespace="repos", spec={
        "git": git, "prune": True,
    }, status={
        "phase": "Pending", "reason": "RevisionRefused", "message": text, "waitingOn": [text],
        "appliedRevision": good, "attemptedRevision": newest, "lastError": wrong, "objects": 12,
        "appliedAt": NOW_S - DAY_S, "attemptedAt": NOW_S - HOUR_S, "failingSince": NOW_S - HOUR_S,
        "changed": {"created": 0, "configured": 2, "pruned": 1},
        "drift": ["batchjob/embed -n repos was changed by hand"],
    })  # fmt: skip
    loss = "batchjob/long: 1 running task would be replaced (7,200 s of work)"
    _put(store, "Source", "held", age_s=HOUR_S, namespace="repos", spec={"git": git}, status={
        "phase": "Pending", "reason": "NeedsConsent", "objects": 1, "appliedRevision": good,
        "message": f"{newest[:7]} waits for consent: {loss}", "attemptedRevision": newest,
        "hint": "fleetctl reconcile source/held -n repos --yes", "appliedAt": NOW_S - MINUTE_S,
    })  # fmt: skip


def _served(store: SqliteStore) -> None:
    """Two model servers, one of which does not answer, and what a job asked of them."""
    _put(store, "Endpoint", "small", age_s=HOUR_S, spec={
        "servers": [{"url": "http://10.0.0.7:8000/v1", "slots": 16},
                    {"url": "http://10.0.0.8:8000/v1", "slots": 16}],
        "models": {"chat": "Qwen2.5-7B-Instruct"}, "apiKey": {"secret": "llm", "name": "API_KEY"},
        "limits": {"callsPerTask": 50},
        "prices": {"chat": {"inputPerMillion": 0.1, "outputPerMillion": 0.3}},
    }, status={
        "phase": "Ready", "reason": "Ready", "calls": 1204, "tries": 1215, "fallbacks": 2,
        "cacheHits": 31, "refusedCalls": 4, "tokens": 912_345, "tokensIn": 700_000,
        "tokensOut": 212_345, "cost": {"actual": 0.133704}, "concurrency": 16, "inFlight": 12,
        "queue": 5, "latency": {"waitingMsP50": 0.4, "waitingMsP95": 81.0, "answerMsP50": 412.0,
                                "answerMsP95": 903.0},
        "servers": [
            {"url": "http://10.0.0.7:8000", "state": "Ready", "inFlight": 12, "slots": 16},
            {"url": "http://10.0.0.8:8000", "state": "ServerUnreachable", "inFlight": 0,
             "slots": 16, "restingSeconds": 22.4},
        ],
    })  # fmt: skip
    total = CallSums(calls=9, tries=10, tokens_in=5_000, tokens_out=2_000, usd=0.0011)
    store.calls.record(
        [EndpointUsage("u-nightly-ev-0-1", "small", "u-small", total, (0.3, 9.0, 400.0, 910.0))]
    )


def _paused(store: SqliteStore) -> None:
    _put(store, "BatchJob", "paused", age_s=90, status={
        "phase": "Suspended", "reason": "Suspended", "message": "spec.suspend is true", "total": 5,
        "succeeded": 1,
    })  # fmt: skip


def _refused(store: SqliteStore) -> None:
    message = "provider `local` has no container images"
    _put(store, "BatchJob", "docker", age_s=30, status={
        "phase": "Failed", "reason": "Refused", "message": message, "total": 1,
        "hint": "list pip and apt under `image`",
    })  # fmt: skip


def _fresh(store: SqliteStore) -> None:
    _put(store, "BatchJob", "fresh", age_s=1)


def _leaving(store: SqliteStore) -> None:
    _put(store, "BatchJob", "leaving", age_s=DAY_S, deleted=True, status={
        "phase": "Deleting", "reason": "Deleted", "total": 2, "active": 1,
        "waitingOn": ["1 run is being stopped"],
    })  # fmt: skip


def _learning_rate(store: SqliteStore) -> None:
    uid = _put(store, "Sweep", "lr", age_s=41 * MINUTE_S, status={
        "phase": "Running", "reason": "InProgress", "total": 4, "succeeded": 2, "active": 1,
        "failed": 1, "failedIndexes": "3", "method": "grid",
        "metric": {"name": "loss", "goal": "minimize"},
        "best": {"index": 1, "params": {"batch_size": 64, "lr": 0.01},
                 "metric": {"name": "loss", "value": 1.6024042183073266}},
    })  # fmt: skip
    _run(store, uid, 0, params={"batch_size": 32, "lr": 0.01}, result={"loss": 3.0942457101488188})
    _run(store, uid, 1, params={"batch_size": 64, "lr": 0.01}, metrics=(
        Metric(0, 1, "loss", 2.5, NOW_S), Metric(1, 2, "loss", 1.6024042183073266, NOW_S),
        Metric(2, 2, "other", 9.0, NOW_S)))  # fmt: skip
    _run(store, uid, 2, params={"batch_size": 32, "lr": 0.001}, state=RunState.RUNNING)
    _run(store, uid, 3, params={"batch_size": 64, "lr": 0.001}, state=RunState.FAILED,
         reason="Timeout", message="longer than timeoutSeconds 120", exit_code=None)  # fmt: skip


def _seed_sweep(store: SqliteStore) -> None:
    _put(store, "Sweep", "seed", age_s=2 * DAY_S, status={
        "phase": "Succeeded", "reason": "Completed", "message": "1 of 1", "total": 1,
        "succeeded": 1, "method": "random", "metric": {"name": "train/acc", "goal": "maximize"},
        "best": {"index": 0, "params": {"lr": 3e-05, "net": {"depth": 2}},
                 "metric": {"name": "train/acc", "value": 0.97}},
        "startTime": NOW_S - 2 * DAY_S, "completionTime": NOW_S - 2 * DAY_S + 40.2,
    })  # fmt: skip


def _pretrain(store: SqliteStore) -> None:
    uid = _put(store, "TrainingRun", "pretrain", age_s=5 * HOUR_S, status={
        "phase": "Running", "reason": "InProgress", "total": 2, "succeeded": 1, "active": 1,
        "stage": "train", "restarts": 1, "retries": 1, "where": {"local": 1},
        "checkpoint": {"step": 1200, "path": "/ckpt/run/step-00001200", "at": NOW_S - 180,
            "bytes": 15_246_000_000, "everySeconds": 540},
    })  # fmt: skip
    _run(store, uid, 0, params={"stage": "data"})
    saved = tuple(
        SavedCheckpoint(step, f"/ckpt/run/step-{step:08d}", NOW_S - ago_s, 15_246_000_000, 38.0)
        for step, ago_s in ((800, 720.0), (1200, 180.0))
    )
    _run(store, uid, 1, params={"stage": "train"}, state=RunState.RUNNING, saved=saved)


def _assets(store: SqliteStore) -> None:
    _put(store, "Volume", "ckpt", age_s=DAY_S, spec={}, status={"phase": "Ready"})
    spec = {"provider": "local", "deletionPolicy": "Delete"}
    full = "no space left on the disk"
    _put(store, "Volume", "scratch", age_s=60, spec=spec, status={
        "phase": "Pending", "reason": "Creating", "message": full, "waitingOn": [full],
    })  # fmt: skip
    limits = {"limits": {"maxConcurrent": 3}, "prices": {"perHour": 0.5, "gpu": {"L4": 0.8}}}
    _put(store, "Provider", "daytona", age_s=DAY_S, spec=limits, status={
        "phase": "Ready", "reason": "Ready", "slots": {"used": 2, "limit": 3},
        "spend": {"usdPerHour": 1.3, "unpriced": 1},
    })  # fmt: skip
    warm = {"containers": 2, "usdPerSecond": 0.001, "idle": 60.0, "since": NOW_S - HOUR_S}
    spec = {"minContainers": 2, "scaledownSeconds": 300, "resources": {"gpu": "L4"}}
    _put(store, "Function", "embedder", age_s=DAY_S, spec=spec, status={
        "phase": "Ready", "reason": "Ready", "warm": warm, "cost": {"actual": 1.5},
    })  # fmt: skip
    source = {"fromEnv": ["HF_TOKEN"]}
    _put(store, "Secret", "hf", age_s=DAY_S, spec=source, status={"phase": "Ready"})


def _hostile(store: SqliteStore) -> None:
    """Texts of users and of tasks that would move the cursor, ring, or read backwards."""
    evil = "\x1b]0;owned\x07\r\nNAME \x9b2J\u202e"
    uid = _put(store, "BatchJob", "hostile", age_s=5, labels={"team": evil}, status={
        "phase": "Failed", "reason": "Refused", "message": evil, "total": 1, "failed": 1,
        "failedIndexes": "0", "isolation": evil, "where": {evil: 1},
    })  # fmt: skip
    _run(store, uid, 0, state=RunState.FAILED, reason=evil, message=evil, params={evil: evil},
         result={"text": evil})  # fmt: skip
    store.events.record([EventRow(uid, NOW_S - 1, "Warning", evil, evil)])


def _write_build_log(home: Path) -> None:
    """As provider local leaves it: one file a build, linked from each object that uses it."""
    log = home / "local" / "envs" / "0123456789abcdef.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"=> uv pip install\nInstalled 2 packages\n + \x1b[1mnumpy\x1b[0m==2.3.4")
    link_log(home / "local" / "jobs" / "u-nightly-ev", log)


def _write_volume(volume: Path) -> None:
    """Two files, and a name that would ring and move the cursor."""
    (volume / "run-1").mkdir(parents=True)
    for name, size in (("run-1/last.pt", 2_500_000), ("notes.md", 12), ("\x1b[2J\x07evil", 1)):
        (volume / name).write_bytes(b"x" * size)
        os.utime(volume / name, (NOW_S - DAY_S, NOW_S - DAY_S))
    os.utime(volume / "run-1", (NOW_S - DAY_S, NOW_S - DAY_S))


def _write_logs(home: Path) -> None:
    """As provider local leaves them: one file a run."""
    logs = {
        ("u-nightly-ev", "u-nightly-ev-0-1"): b"chunk 0\nline two\n",
        ("u-nightly-ev", "u-nightly-ev-1-2"): b"chunk 1, no line end",
        ("u-resize", "u-resize-3-1"): TRACEBACK.encode() + b"\xff raw byte\r\n",
        ("u-hostile", "u-hostile-0-1"): b"\x1b[2J\x1b[1;1Hfake prompt $ \r overwritten\n",
    }
    for (uid, run), text in logs.items():
        folder = home / "local" / "jobs" / uid / "runs"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{run}.log").write_bytes(text)
