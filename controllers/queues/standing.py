"""What people see of a queue: the order of all who wait, and when their turn may come. Pure; told
from statuses, so that it is as fresh as they are and costs nobody anything until it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.controllers.queues.lines import Line, Lines, Rules, Waiter, ask_in
from fleetctl.controllers.queues.takes import Quota
from fleetctl.controllers.queues.turn import add, place_in, tried


@dataclass(frozen=True, slots=True)
class Standing:
    """of: how many wait. ahead: runs that those before it have yet to start, at least one each."""

    position: int
    of: int
    ahead: int


def rules_in(name: str, spec: Mapping[str, Any]) -> Rules:
    """A Queue's stored spec as plain data; what it leaves out has its default."""
    share = spec.get("fairShare")
    preemption = spec.get("preemption", {})
    return Rules(
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


def waiter_in(uid: str, key: str, namespace: str, status: Mapping[str, Any]) -> Waiter | None:
    """As its status tells that it waits; None where it does not."""
    known = status.get("queued") or {}
    if "waitingSince" not in known:
        return None
    return Waiter(
        uid=uid,
        key=key,
        queue=known["queue"],
        namespace=namespace,
        priority=known["priority"],
        since_s=known["since"],
        stands_since_s=known["waitingSince"],
        asks=tuple(ask_in(it) for it in known["asks"]),
    )


def in_order(
    rules: Rules, shares: Mapping[str, list[float]], waiters: Iterable[Waiter]
) -> list[Waiter]:
    """Who goes first, if each got one run in turn. shares: by namespace, what it uses of each
    quota.
    """
    lines = Lines()
    lines.declare([rules])
    line = lines.lines[rules.name]
    line.by_namespace = {name: list(used) for name, used in shares.items()}
    for waiter in waiters:
        lines.put(waiter)
    names: dict[str, list[Waiter]] = {}
    for waiter in sorted(lines.waiters.values(), key=lambda it: it.rank, reverse=True):
        names.setdefault(waiter.namespace if rules.weights is not None else "", []).append(waiter)
    found: list[Waiter] = []
    with tried([line]):
        while names:
            name = min(names, key=lambda it: place_in(line, names[it][-1]))
            waiter = names[name].pop()
            if not names[name]:
                del names[name]
            found.append(waiter)
            _starts(line, waiter)
    return found


def standing_of(order: list[Waiter], uid: str, left: Mapping[str, int]) -> Standing | None:
    """left: by uid, the runs that an object has yet to start. None: it does not wait."""
    for at, waiter in enumerate(order):
        if waiter.uid == uid:
            ahead = sum(max(1, left.get(it.uid, 1)) for it in order[:at])
            return Standing(at + 1, len(order), ahead)
    return None


def waits_s(standing: Standing, *, at_once: int, run_s: float | None) -> float | None:
    """Seconds until its first run starts, if runs take as long as they did and so many run at once;
    None: unknown, for no run of the queue has ended, or none runs.
    """
    if run_s is None or at_once < 1:
        return None
    return run_s * (standing.ahead + 1) / at_once


def _starts(line: Line, waiter: Waiter) -> None:
    vector = line.vector(waiter.asks[0]) if waiter.asks else None
    if vector is not None:
        add(line, waiter.namespace, vector)
