"""Tasks and events as documents: the output of `-o json`, and what the server sends. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.common.text import format_timestamp
from fleetctl.specs.kinds.registry import API_VERSION
from fleetctl.views.objects import View, parse_document
from fleetctl.views.store_reading import EventView
from fleetctl.views.tasks import Task, task_usd, wandb_run


def task_document(
    one: Task,
    seen: View,
    now_s: float,
) -> Mapping[str, object]:
    """Returns a task, or an attempt, as an object of its own."""
    run = one.run
    status: dict[str, object] = {
        "phase": one.state, "reason": one.reason, "message": run.message, "hint": run.hint,
        "attempts": one.attempts,
        "exitCode": run.exit_code, "provider": run.provider, "sandbox": run.sandbox,
        "whyThere": run.placed,
    }  # fmt: skip
    if not one.wanted:
        status["wanted"] = False
    if one.outdated:
        status["outdated"] = True
    if one.run.started_at_s is not None:
        spent_s = now_s - one.run.started_at_s if one.duration_s is None else one.duration_s
        status["durationSeconds"] = round(max(0.0, spent_s), 3)
    for key, at_s in (("startTime", run.started_at_s), ("completionTime", run.ended_at_s)):
        if at_s is not None:
            status[key] = format_timestamp(at_s)
    if place := wandb_run(one, seen):
        status["wandb"] = place
    spent = task_usd(one, now_s) if one.begun else None
    status["cost"] = {"actual": None if spent is None else round(spent, 6)}
    return {
        "apiVersion": API_VERSION,
        "kind": "Task",
        "metadata": {
            "name": run.name,
            "owner": seen.key,
            "index": run.index,
            "attempt": run.attempt,
            **({"creationTimestamp": format_timestamp(run.created_at_s)} if one.begun else {}),
        },
        "spec": {"params": parse_document(run.params)},
        "status": status,
    }


def event_document(event: EventView) -> dict[str, object]:
    row = event.line
    gone_at_s = event.gone_at_s
    return {
        "type": row.kind,
        "reason": row.reason,
        "object": event.key,
        "uid": row.uid,
        "message": row.message,
        "hint": row.hint or "",
        "count": row.count,
        "lastTimestamp": format_timestamp(row.at_s),
        "deletedAt": None if gone_at_s is None else format_timestamp(gone_at_s),
    }
