"""Waits until objects meet a goal, or can no longer meet it, and answers with how far each is;
changes nothing.

A request has an end, met or not: a client that wants to wait longer sends it again, with the uids
of the reply, so that a new object of the same name does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.common.text import escape_line
from fleetctl.daemon.client.lock_holder import find_stall_reason
from fleetctl.daemon.client.spawn import find_holder_pid
from fleetctl.providers.paths import serves_cluster
from fleetctl.server.callers import VIEWER
from fleetctl.server.change_feed import ObjectChange
from fleetctl.server.changes import keys_of, read_body
from fleetctl.server.response_types import WaitedObject, WaitReply
from fleetctl.server.route_table import ApiCall
from fleetctl.server.streams import STREAMS
from fleetctl.views.goals import (
    GoalOutcome,
    GoalStatus,
    WaitGoal,
    check_goal,
    format_tally,
    parse_goal,
)
from fleetctl.views.kinds import Target, target_with
from fleetctl.views.objects import View, explain_status, suggest_fix
from fleetctl.views.store_reading import StoreReading, all_missing

GOAL = "complete"
WAIT_S = 50.0  # many clients give up a request after a minute
WAIT_S_MAX = 600.0
KEYS_MAX = 100  # of one wait
NAMED_MAX = 5  # objects in a sentence
TIMED_OUT = 124  # as of `timeout` and `fleetctl wait`
LASTING = ("delete", "condition")  # goals of objects that never end
# Of the body, beside `keys` and `namespace`, as JSON Schema.
FIELDS: Mapping[str, object] = {
    "for": {
        "type": "string",
        "description": "`complete` (a good end; the default), `finished` (any end), `failed`,"
        " `first-result`, `delete` (gone) or `condition=NAME`.",
    },
    "timeoutSeconds": {
        "type": "number",
        "minimum": 0,
        "maximum": WAIT_S_MAX,
        "description": f"Answers after this time, met or not (default {WAIT_S:g}); 0: at once.",
    },
    "uids": {
        "type": "object",
        "description": "Uids by key, as a reply before had them: no new object of a name counts.",
        "additionalProperties": {"type": "string"},
    },
}


async def wait_for_goal(call: ApiCall) -> WaitReply:
    """Waits until objects meet a goal."""
    body = await read_body(call)
    goal = parse_goal(str(body.get("for") or GOAL))
    wait_s = _read_seconds(body)
    targets = _read_targets(call, body, goal)
    uids = await call.parts.readers.read(lambda it: _find_uids(it, targets, body, goal))
    deadline_s = time.monotonic() + wait_s
    STREAMS.check()
    STREAMS.open += 1
    try:
        while True:
            since = call.parts.feed.cursor  # before the read: no change is missed
            found = await call.parts.readers.read(lambda it: _check_all(it, uids, goal))
            left_s = deadline_s - time.monotonic()
            reply = _build_reply(found, goal)
            if reply["code"] != TIMED_OUT:
                return reply
            if left_s <= 0:
                return _add_standstill(call, reply)
            await _await_change(call, since, [it.name for it in targets], left_s)
    finally:
        STREAMS.open -= 1


def _read_seconds(body: Mapping[str, Any]) -> float:
    found = body.get("timeoutSeconds", WAIT_S)
    if (
        isinstance(found, bool)
        or not isinstance(found, int | float)
        or not math.isfinite(found)
        or not 0 <= found <= WAIT_S_MAX
    ):
        raise UsageError(f"`timeoutSeconds` must be a number from 0 to {WAIT_S_MAX:g}")
    return float(found)


def _read_targets(call: ApiCall, body: Mapping[str, Any], goal: WaitGoal) -> list[Target]:
    """Returns the objects of a request, each once. Raises UsageError and HttpError."""
    targets = [target_with(key) for key in dict.fromkeys(keys_of(call, body, role=VIEWER))]
    if len(targets) > KEYS_MAX:
        raise UsageError(f"{len(targets)} objects; one wait is for at most {KEYS_MAX}")
    for one in targets:
        if not one.kind.runs and goal.word not in LASTING:
            raise UsageError(
                f"{one.key}: a {one.kind.name} never ends",
                hint="wait for `delete` or for `condition=NAME`",
            )
    return targets


def _find_uids(
    reading: StoreReading,
    targets: Sequence[Target],
    body: Mapping[str, Any],
    goal: WaitGoal,
) -> dict[str, str]:
    """Returns the uids by key; empty for an object that is gone, where that is the goal. Raises
    NotFound and UsageError."""
    given = body.get("uids") or {}
    if not isinstance(given, Mapping):
        raise UsageError("`uids` must be an object with a uid for each key")
    found: dict[str, str] = {}
    missing: list[Target] = []
    for one in targets:
        uid = given.get(one.key)
        if isinstance(uid, str):
            named = reading.by_uid(uid)
            # The role was checked for the key alone.
            if named is not None and named.key != one.key:
                raise UsageError(f"{one.key} is not the object of that uid")
            found[one.key] = uid
            continue
        seen = reading.find(one)
        if seen is None and goal.word != "delete":
            missing.append(one)
        found[one.key] = "" if seen is None else seen.resource.uid
    if missing:
        raise all_missing(missing, reading)
    return found


def _check_all(
    reading: StoreReading,
    uids: Mapping[str, str],
    goal: WaitGoal,
) -> list[WaitedObject]:
    found: list[WaitedObject] = []
    for key, uid in uids.items():
        seen = reading.by_uid(uid) if uid else None
        found.append(_describe_object(key, uid, seen, check_goal(goal, seen)))
    return found


def _describe_object(
    key: str,
    uid: str,
    seen: View | None,
    status: GoalStatus,
) -> WaitedObject:
    made: WaitedObject = {
        "key": key,
        "uid": uid,
        "outcome": status.outcome.value,
        "because": status.because,
        "phase": "" if seen is None else seen.phase,
        "why": "",
        "fix": "",
    }
    if seen is None:
        return made
    made["why"], made["fix"] = explain_status(seen), suggest_fix(seen)
    if seen.kind.runs:
        total = seen.status.get("total")
        made["done"] = seen.settled
        made["total"] = total if isinstance(total, int) else None
        made["active"], made["failed"] = seen.active, seen.count("failed")
        made["tally"] = format_tally(seen)
    return made


def _build_reply(found: Sequence[WaitedObject], goal: WaitGoal) -> WaitReply:
    """Returns the reply, with the exit code of `fleetctl wait`."""
    by_outcome = {
        outcome: [it for it in found if it["outcome"] == outcome.value] for outcome in GoalOutcome
    }
    code = 0
    errors: list[str] = []
    hint = ""
    if lost := by_outcome[GoalOutcome.IMPOSSIBLE]:
        code = 1
        errors = [
            f"{it['key']} can no longer meet `{escape_line(str(goal))}`: {it['because']}"
            for it in lost
        ]
        hint = f"fleetctl describe {lost[0]['key']}" if lost[0]["phase"] else ""
    elif waiting := by_outcome[GoalOutcome.WAITING]:
        code = TIMED_OUT
        names = _join_some([it["key"] for it in waiting], ", ")
        errors = [f"timed out: {names} has not met `{escape_line(str(goal))}`"]
        hint = "wait again: the work goes on"
    return {
        "ok": code == 0,
        "code": code,
        "goal": str(goal),
        "message": _join_some([_phrase_state(it) for it in found], "; "),
        "errors": errors,
        "hint": hint,
        "items": found,
    }


def _phrase_state(one: WaitedObject) -> str:
    """Returns `batchjob/x: Running, 3/10 done, 2 active (the reason that it waits)`."""
    if one["outcome"] == GoalOutcome.MET.value or not one["phase"]:
        return f"{one['key']}: {one['because'] or one['outcome']}"
    parts = [part for part in (one["phase"], one.get("tally", "")) if part]
    why = f" ({one['why']})" if one["why"] else ""
    return f"{one['key']}: {', '.join(parts)}{why}"


def _join_some(parts: Sequence[str], separator: str) -> str:
    left = len(parts) - NAMED_MAX
    more = [f"and {left} more"] if left > 0 else []
    return separator.join([*parts[:NAMED_MAX], *more])


def _add_standstill(call: ApiCall, reply: WaitReply) -> WaitReply:
    """Adds why nothing moves at all: objects say only why they wait themselves."""
    if serves_cluster(call.parts.home):
        return reply
    if find_holder_pid(call.parts.home) is None:
        why, hint = "no controller runs, so nothing moves on", "fleetctl up --detach"
    elif (stall := find_stall_reason(call.parts.home)) is not None:
        why, hint = stall.why, stall.hint
    else:
        return reply
    return {**reply, "message": f"{reply['message']}; {why}", "hint": hint}


async def _await_change(
    call: ApiCall,
    since: str,
    names: Sequence[str],
    left_s: float,
) -> None:
    """Returns after a change of an object with one of these names, or a while."""

    def takes(change: ObjectChange) -> bool:
        return change.name in names

    changes = call.parts.feed.follow(since, takes)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(left_s), contextlib.aclosing(changes):
            await anext(changes)
