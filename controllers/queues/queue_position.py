"""Computes the queue status that users see: the order of all waiting objects, and when their turn
may come. Pure; read from statuses, so that it is as fresh as they are and costs only those who
request it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.controllers.queues.queue_admission import add_usage, preserve_usage, rank_in_queue
from fleetctl.controllers.queues.queue_state import (
    QueuedObject,
    QueueRules,
    QueueState,
    QueueStates,
    Quota,
    parse_ask,
)


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The position of an object among the `of` waiting objects of its queue, from 1.

    ahead: runs that the objects before it have yet to start, at least one each.
    """

    position: int
    of: int
    ahead: int


def parse_rules(name: str, spec: Mapping[str, Any]) -> QueueRules:
    """Parses a Queue's stored spec, a JSON mapping; absent fields have their defaults."""
    share = spec.get("fairShare")
    preemption = spec.get("preemption", {})
    return QueueRules(
        name=name,
        quotas=tuple(
            Quota(
                it.get("resource", "sandboxes"),
                it["nominal"],
                it.get("provider") or "",
                it.get("borrowingLimit"),
                it.get("lendingLimit"),
            )
            for it in spec["quotas"]
        ),
        cohort=spec.get("cohort") or "",
        strict=spec.get("strategy") == "StrictFIFO",
        overtake_s=spec.get("overtakeSeconds", 600.0),
        within_queue=preemption.get("withinQueue") == "LowerPriority",
        reclaim=preemption.get("reclaimWithinCohort", "Never"),
        weights=None if share is None else share.get("weights", {}),
        suspend=bool(spec.get("suspend", False)),
    )


def parse_waiter(
    uid: str,
    key: str,
    namespace: str,
    status: Mapping[str, Any],
) -> QueuedObject | None:
    """Reads a waiting object from its status; None if it does not wait."""
    known = status.get("queued") or {}
    if "waitingSince" not in known:
        return None
    return QueuedObject(
        uid=uid,
        key=key,
        queue=known["queue"],
        namespace=namespace,
        priority=known["priority"],
        since_s=known["since"],
        stands_since_s=known["waitingSince"],
        asks=tuple(parse_ask(it) for it in known["asks"]),
    )


def order_waiters(
    rules: QueueRules,
    shares: Mapping[str, list[float]],
    waiters: Iterable[QueuedObject],
) -> list[QueuedObject]:
    """Returns the waiters in the order in which they would start if each got one run in turn.

    shares: what each namespace uses of each quota, in the order of the quotas.
    """
    lines = QueueStates()
    lines.declare([rules])
    line = lines.lines[rules.name]
    line.by_namespace = {name: list(used) for name, used in shares.items()}
    for waiter in waiters:
        lines.put(waiter)
    names: dict[str, list[QueuedObject]] = {}
    for waiter in sorted(lines.waiters.values(), key=lambda it: it.rank, reverse=True):
        names.setdefault(waiter.namespace if rules.weights is not None else "", []).append(waiter)
    found: list[QueuedObject] = []
    with preserve_usage([line]):
        while names:
            name = min(names, key=lambda it: rank_in_queue(line, names[it][-1]))
            waiter = names[name].pop()
            if not names[name]:
                del names[name]
            found.append(waiter)
            _simulate_start(line, waiter)
    return found


def find_position(
    order: list[QueuedObject],
    uid: str,
    left: Mapping[str, int],
) -> QueuePosition | None:
    """Returns the position of an object; None if it does not wait. left: how many runs each object
    has yet to start, by uid; 1 for an absent one.
    """
    for at, waiter in enumerate(order):
        if waiter.uid == uid:
            ahead = sum(max(1, left.get(it.uid, 1)) for it in order[:at])
            return QueuePosition(at + 1, len(order), ahead)
    return None


def estimate_wait_s(
    position: QueuePosition,
    *,
    at_once: int,
    run_s: float | None,
) -> float | None:
    """Returns the estimated seconds until the next run of an object at this position starts.

    Assumes that runs take `run_s` seconds, and that `at_once` of them run together. None when
    either is unknown: no run of the queue has ended, or none is running.
    """
    if run_s is None or at_once < 1:
        return None
    return run_s * (position.ahead + 1) / at_once


def _simulate_start(line: QueueState, waiter: QueuedObject) -> None:
    vector = line.vector(waiter.asks[0]) if waiter.asks else None
    if vector is not None:
        add_usage(line, waiter.namespace, vector)
